"""What can be learnt of a worker process that has ended.

A worker counts as dead although its status was taken by somebody else: by a program that waits
for all its children, or by the system where SIGCHLD is ignored.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing import process as multiprocessing_process
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from stoker.workers.blackbox import BlackBox

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
    """

    pid: int | None
    exitcode: int | None
    peak_bytes: int | None = None
    stack: str = ""
    noted: tuple[int, int] | None = None
    why: str = ""
    could_note: bool = False
    asked: bool = False


def died_as(process: Any, box: BlackBox, known_bytes: int | None, why: str, *, asked: bool) -> Died:
    """What a worker that has ended has left."""
    return Died(
        process.pid,
        process.exitcode,
        known_bytes,
        box.stack(),
        box.noted(),
        why,
        could_note=box.is_there,
        asked=asked,
    )


def await_end(process: Any, within_s: float) -> tuple[bool, int | None]:
    """Waits for a process to end.

    Returns:
        Whether it has, and the most memory that it had at once in bytes, where that is known.
    """
    deadline = time.monotonic() + within_s
    peak: int | None = None
    while True:
        peak = peak or peak_bytes(process)
        if has_ended(process):
            return True, peak
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False, None
        # What the process has started may hold its sentinel open.
        if wait([process.sentinel], min(left_s, _LOOK_S)):
            time.sleep(_LOOK_S / 10)


def has_ended(process: Any) -> bool:
    """Whether a process is dead; does not block."""
    if not process.is_alive():
        return True
    if os.name != "posix":
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


def peak_bytes(process: Any) -> int | None:
    """The most memory that a process had which has just ended; asked before anybody waits for it.

    Multiprocessing's own wait would drop what the system tells of it.
    """
    popen: Any = getattr(process, "_popen", None)
    if not hasattr(os, "wait4") or getattr(popen, "returncode", 0) is not None:
        return None
    if type(popen).__name__ != "Popen" or "forkserver" in type(popen).__module__:
        return None  # It is no child of ours.
    try:
        pid, status, usage = os.wait4(popen.pid, os.WNOHANG)
    except OSError:
        return None
    if pid != popen.pid:
        return None
    popen.returncode = os.waitstatus_to_exitcode(status)
    return int(usage.ru_maxrss * (1 if sys.platform == "darwin" else _KIB))
