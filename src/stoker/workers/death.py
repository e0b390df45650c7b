"""What can be learnt of a worker process that has ended.

A worker counts as dead although its status was taken by somebody else: by a program that waits
for all its children, or by the system where SIGCHLD is ignored.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from multiprocessing import process as multiprocessing_process
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from stoker.workers.blackbox import BlackBox
from stoker.workers.raised import Raised

_KIB = 1 << 10
_LOOK_S = 0.01


class Died(NamedTuple):
    """A worker ended unasked.

    Attributes:
        pid: Its process id.
        exitcode: As multiprocessing has it; None when it could not be learnt.
        peak_bytes: The most memory it had at once; None when not known.
        stack: The Python stack that it left when a fatal signal ended it; empty if none.
        noted: The batch, and the position in it, that it was told to note; None if none.
        why: Why it was ended, where that was done here; else empty.
        could_note: Whether it had something to note in.
        asked: Whether somebody wanted it ended.
        last_words: The end of what its Python code wrote to standard error; empty if nothing.
        unbuildable: Why it could not build what it was sent, if that was told.
    """

    pid: int | None
    exitcode: int | None
    peak_bytes: int | None = None
    stack: str = ""
    noted: tuple[int, int] | None = None
    why: str = ""
    could_note: bool = False
    asked: bool = False
    last_words: str = ""
    unbuildable: Raised | None = None


def died_as(process: Any, box: BlackBox, why: str, *, asked: bool) -> Died:
    """What a worker that has ended has left."""
    return Died(
        process.pid,
        process.exitcode,
        peak_bytes(process),
        box.stack(),
        box.noted(),
        why,
        could_note=box.is_there,
        asked=asked,
        last_words=box.last_words(),
    )


def await_end(process: Any, within_s: float) -> bool:
    """Waits for a process to end, and tells whether it has."""
    deadline = time.monotonic() + within_s
    while True:
        if has_ended(process):
            return True
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        # What the process has started may hold its sentinel open.
        if wait([process.sentinel], min(left_s, _LOOK_S)):
            time.sleep(_LOOK_S / 10)


def has_ended(process: Any) -> bool:
    """Whether a process is dead; does not block."""
    if not process.is_alive():
        return True
    if os.name != "posix" or process.pid is None:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        # Multiprocessing would wait for it for ever, and keep its descriptors.
        children: Any = getattr(multiprocessing_process, "_children", set())
        children.discard(process)
        return True
    except OSError:
        pass
    return False


def keep_peak(process: Any) -> None:
    """Whoever takes the status of a process from now on has `peak_bytes` kept.

    Multiprocessing's own wait would drop what the system tells of it, and may come from anywhere:
    it asks after all of a program's processes whenever one is started.
    """
    popen: Any = getattr(process, "_popen", None)
    module = type(popen).__module__
    if not hasattr(os, "wait4") or "forkserver" in module or "popen" not in module:
        return  # It is no child of ours.
    held = weakref.ref(popen)

    def poll(flag: int = os.WNOHANG) -> int | None:
        popen = held()
        return None if popen is None else _poll(popen, flag)

    popen.poll = poll


def _poll(popen: Any, flag: int) -> int | None:
    if popen.returncode is None:
        try:
            pid, status, usage = os.wait4(popen.pid, flag)
        except OSError:  # Somebody else has taken its status.
            return None
        if pid == popen.pid:
            popen.peak_bytes = int(usage.ru_maxrss * (1 if sys.platform == "darwin" else _KIB))
            popen.returncode = os.waitstatus_to_exitcode(status)
    code: int | None = popen.returncode
    return code


def peak_bytes(process: Any) -> int | None:
    """The most memory that a process had which has ended; None where that is not known."""
    peak: int | None = getattr(getattr(process, "_popen", None), "peak_bytes", None)
    return peak
