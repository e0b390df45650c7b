"""The process that fresh workers are forked from: a new interpreter that has their job already.

Several workers cost one start, and share the pages of what the job holds. It has imported what the
job needs and nothing else, has run nothing of the program's main module, and has one thread.

Guarantees
    - It ends with the main process, or when that closes the pipe; its workers end with it.
    - What the job opens or starts while it is unpickled is never shared by workers, as an open
      file would be, with its position: where there is such a thing, each worker is a new
      interpreter of its own and unpickles the job for itself.
    - The main process never waits for it: what it asks for lies in the pipe.

For each worker the main process hands over the worker's end of its pipe, its box, and the end of a
pipe for its status, into which go, as they happen::

    pid, when it has been forked  -->  exit code, peak memory  -->  end
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from stoker.workers import blackbox, by_value
from stoker.workers.death import keep_peak, peak_bytes
from stoker.workers.raised import Raised
from stoker.workers.sending import Sent, was_received
from stoker.workers.signals import leave_to_the_parent
from stoker.workers.starting import end_with
from stoker.workers.state import State

PID, STATUS = struct.Struct("=q"), struct.Struct("=qq")
_LONGEST_REQUEST_BYTES = 1 << 18
_ORPHAN_CHECK_S = 1.0


class Request(NamedTuple):
    """A worker that the main process wants.

    Attributes:
        worker: Its number.
        first: The epoch to begin with.
        differing: The fields of the job that are not as they were pickled.
        has_box: Whether there is a box for it.
    """

    worker: int
    first: Any
    differing: dict[str, Any]
    has_box: bool


def serve(control: socket.socket, sent: Sent, state: bytes, parent_pid: int | None) -> None:
    """What the process does; it returns when it is no longer wanted.

    Args:
        control: To the main process.
        sent: The job.
        state: To begin with, a `State` as `by_value.dumps` has it.
        parent_pid: The process to end with; None where only the pipe tells of its end.
    """
    leave_to_the_parent()
    parent = os.getppid()
    if parent_pid is not None and not end_with(parent_pid):
        return
    template = _Template(control, parent)
    try:
        template.take(sent, state)
        template.serve()
    finally:
        template.end()


def open_job(sent: Sent, data: bytes) -> Any:
    """The job, in a new interpreter, whose main module is an empty one."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    state: State = by_value.loads(data)
    state.apply()
    state.settings.put_in_place()
    job = sent.open()
    state.wanted.apply_of_main()
    state.apply_to_libraries()
    return job


class _Template:
    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._workers: dict[int, tuple[Any, int]] = {}
        self._begin: Callable[..., None] = _fail
        self._given: tuple[Any, ...] = ()
        self._forks = True
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def take(self, sent: Sent, state: bytes) -> None:
        """Unpickles the job; whatever that raises, each worker will tell of it."""
        before = _descriptors()
        try:
            job = open_job(sent, state)
            _bring(job)
        except BaseException as error:
            self._given = (Raised.of(error, ""),)
            return
        from stoker.workers.etiquette import look_around

        opened = [each for each in _descriptors() - before if not was_received(each)]
        if _has_one_thread() and not opened:
            self._begin, self._given = _run, (job,)
            sent.close()
            look_around()
            gc.collect()
            gc.freeze()
        else:
            self._begin, self._given, self._forks = run_alone, (sent, state), False

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while os.getppid() == self._parent:
            ends: list[Any] = [self._control, self._woken]
            ready, _, _ = select.select(ends, [], [], _ORPHAN_CHECK_S)
            if self._woken in ready:
                os.read(self._woken, 4096)
            self._tell_of_ends()
            if self._control in ready and not self._answer():
                return

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_REQUEST_BYTES, 3)
        if not data:
            return False
        request = Request(*pickle.loads(data))
        pipe, status, *box = descriptors
        try:
            if not _is_closed(pipe):
                self._start(request, pipe, status, box[0] if box else -1)
                return True
        finally:
            for descriptor in (pipe, *box):
                os.close(descriptor)
        os.close(status)
        return True

    def _start(self, request: Request, pipe: int, status: int, box: int) -> None:
        if self._forks:
            others = [self._control.fileno(), self._woken, self._wake, status]
            others += [each for _, each in self._workers.values()]
            ends: Any = (pipe, box)
            process: Any = get_context("fork").Process(
                target=self._begin,
                args=(*self._given, request, ends, others, os.getpid()),
                daemon=True,
            )
        else:
            connection = Connection(os.dup(pipe))
            ends = (connection, blackbox.over(os.dup(box) if box >= 0 else -1))
            process = get_context("spawn").Process(
                target=self._begin, args=(*self._given, request, ends, os.getpid()), daemon=True
            )
        try:
            process.start()
        except OSError:
            traceback.print_exc()
            _write(status, PID.pack(0) + STATUS.pack(1, -1))
            os.close(status)
            return
        finally:
            if not self._forks:
                ends[0].close()
                ends[1].close()
        keep_peak(process)
        self._workers[process.pid] = process, status
        _write(status, PID.pack(process.pid))

    def _tell_of_ends(self) -> None:
        for pid, (process, status) in list(self._workers.items()):
            code = process._popen.poll()
            if code is not None:
                del self._workers[pid]
                _write(status, STATUS.pack(code, peak_bytes(process) or -1))
                os.close(status)
                process.join()
                process.close()

    def end(self) -> None:
        """Its workers end with it."""
        for process, _ in self._workers.values():
            process.kill()
        os._exit(0)


def _write(status: int, data: bytes) -> None:
    try:
        os.write(status, data)
    except OSError:  # Nobody wants to know any more.
        pass


def _is_closed(pipe: int) -> bool:
    """Whether the main process has closed its end: the worker is not wanted any more."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _bring(job: Any) -> None:
    """Imports for all workers at once what each would, one by one, at its first batch."""
    if job.needs_torch:
        with contextlib.suppress(ImportError):  # Who needs it after all tells of it.
            importlib.import_module("torch")


def _descriptors() -> set[int]:
    """Those that are open; the directory itself, which is read for it, is closed by then."""
    return {int(name) for name in os.listdir("/proc/self/fd") if _is_open(int(name))}


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _has_one_thread() -> bool:
    return len(list(Path("/proc/self/task").iterdir())) == 1


# In a worker.


def _run(
    job: Any, request: Request, ends: tuple[int, int], others: list[int], parent_pid: int
) -> None:
    from stoker.workers.building import Sealed
    from stoker.workers.job import run

    for other in others:
        os.close(other)
    job = replace(job, forked=True, **request.differing)
    pipe, box = Connection(ends[0]), blackbox.over(ends[1])
    run(Sealed(job), request.worker, pipe, [], request.first, parent_pid, box)


def _fail(
    raised: Raised, request: Request, ends: tuple[int, int], others: list[int], parent_pid: int
) -> None:
    """Tells why there is no job, as a worker does that can't unpickle it."""
    from stoker.workers.building import tell_why_not

    for other in others:
        os.close(other)
    tell_why_not(raised, request.worker, Connection(ends[0]))


def run_alone(
    sent: Sent, state: bytes, request: Request, ends: tuple[Any, Any], parent_pid: int | None
) -> None:
    """In a new interpreter that serves as one worker."""
    from stoker.workers.building import Sealed, build
    from stoker.workers.job import run

    job = build(lambda: open_job(sent, state), request.worker, ends[0])
    job = replace(job, forked=False, **request.differing)
    sent.close()
    run(Sealed(job), request.worker, ends[0], [], request.first, parent_pid, ends[1])
