"""What a worker leaves to be read when it has died, or no longer answers.

The main process makes a box for each worker and the worker writes into it: the Python stack of
all its threads when a fatal signal ends it, or when it is asked to while it is stuck; and, where
it was told to be careful, which sample it is about to read; and the end of what Python code has
written to its standard error. A box is a file without a name (a
memfd on Linux), so that what was written stays when the worker is gone, and nothing stays when
the main process is.

Guarantees
    - A worker that is stuck in a system call, in a library, or with the interpreter's lock held,
      is shown all the same: the stack is written by a signal handler that needs no lock. Where
      the system has no such signals (Windows) a thread of the worker writes it, which needs it.
    - A worker is only asked once it has said that it can answer: to others the signal is fatal.
    - A box that can't be had (no descriptor left) is no error: it stays empty.

The file::

    answers by | asked | batch + 1 | position | length | what it wrote last | stack ...
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import struct
import threading
import time
from multiprocessing import reduction
from typing import Any

from stoker.workers.nameless import new_file, open_temporary

_HEADER = struct.Struct("=5q")
_FIELD_BYTES = 8
_ANSWERS_BY, _ASKED, _NOTED, _LENGTH = 0, 1, 2, 4
_LAST_WORDS_BYTES = 2048
_STACK_AT = _HEADER.size + _LAST_WORDS_BYTES
_NOT_YET, _BY_SIGNAL, _BY_THREAD = 0, 1, 2

_LONGEST_TEXT_BYTES = 256 * 1024
_LOOK_AGAIN_S = 0.005
_QUIET_S = 0.05
_THREAD_LOOKS_S = 0.25


def _signal_here() -> int | None:
    """Which signal asks for a stack: one that programs, schedulers and runtimes seldom use."""
    if not hasattr(faulthandler, "register"):
        return None
    if hasattr(signal, "SIGRTMAX"):
        return int(signal.SIGRTMAX) - 5
    return int(signal.SIGUSR2)


ASKING_SIGNAL = _signal_here()


class BlackBox:
    """See the module. Made and closed by the main process; handed to one worker's `start`."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._descriptor = -1
        self._length_bytes = 0
        with contextlib.suppress(OSError):
            self._descriptor, self._path = new_file("stoker-blackbox")
            self._drop_stack()

    def _drop_stack(self) -> None:
        os.ftruncate(self._descriptor, _STACK_AT)
        os.lseek(self._descriptor, _STACK_AT, os.SEEK_SET)

    def __reduce__(self) -> tuple[object, ...]:
        if self._descriptor < 0 or self._path is not None:
            return _reopened, (self._path,)
        return _received, (reduction.DupFd(self._descriptor),)

    # For the main process.

    def stack(self) -> str:
        """What the worker has written so far; empty when nothing. Does not block."""
        if self._descriptor < 0:
            return ""
        data = _read_at(self._descriptor, _STACK_AT, _LONGEST_TEXT_BYTES)
        return data.strip(b"\0").decode(errors="replace").strip()

    def last_words(self) -> str:
        """The end of what the worker's Python code wrote to its standard error; "" if nothing."""
        if self._descriptor < 0:
            return ""
        data = _read_at(self._descriptor, _HEADER.size, self._field(_LENGTH))
        return data.decode(errors="replace").strip("\0\n")

    def ask(self, pid: int, within_s: float) -> str:
        """The present Python stack of all threads of a living worker.

        Args:
            pid: Of the worker. It must not have been waited for: its number may be another's.
            within_s: How long to block at most; usually it takes some 60 ms.

        Returns:
            As `faulthandler` writes it; empty when the worker can't answer: it has not come
            up, is dead or stopped by a signal, or waits in the kernel for a device.
        """
        return self.answer(within_s) if self.request(pid) else ""

    def request(self, pid: int) -> bool:
        """The first half of `ask`, to ask several workers at once; does not block.

        What the worker had written before is dropped. Tells whether there will be an answer.
        """
        answers_by = self._field(_ANSWERS_BY)
        if answers_by == _NOT_YET:
            return False
        try:
            if answers_by == _BY_THREAD:
                self._set(_ASKED, 1)
                return True
            assert ASKING_SIGNAL is not None
            # The position is shared with the worker: it writes from here.
            self._drop_stack()
            os.kill(pid, ASKING_SIGNAL)
        except OSError:  # It is dead.
            return False
        return True

    def answer(self, within_s: float) -> str:
        """The second half of `ask`; blocks until the answer is there, at most `within_s`."""
        deadline = time.monotonic() + within_s
        written_bytes, since = 0, time.monotonic()
        while (now := time.monotonic()) < deadline:
            size_bytes = os.fstat(self._descriptor).st_size - _STACK_AT
            if size_bytes != written_bytes:
                written_bytes, since = size_bytes, now
            elif written_bytes and now - since >= _QUIET_S and not self._field(_ASKED):
                break
            time.sleep(_LOOK_AGAIN_S)
        return self.stack()

    @property
    def descriptor(self) -> int:
        """Of its file, to be handed to its worker; -1 where there is none."""
        return self._descriptor

    @property
    def is_there(self) -> bool:
        """Whether anything can be written into it."""
        return self._descriptor >= 0

    def noted(self) -> tuple[int, int] | None:
        """The batch and the position in it that a careful worker noted last; None: none."""
        batch, position = self._field(_NOTED), self._field(_NOTED + 1)
        return (batch - 1, position) if batch else None

    def close(self) -> None:
        """Gives the descriptor back; the box is empty from then on."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    # For the worker.

    def install(self) -> None:
        """In the worker, first of all: from now on fatal signals are written here, and answers."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError, RuntimeError):  # The worker can do without.
            faulthandler.enable(self._descriptor)
            if ASKING_SIGNAL is None:
                self._answer_by_thread()
            else:
                self._answer_by_signal(ASKING_SIGNAL)

    def note(self, number: int, position: int) -> None:
        """In the worker: it is about to read a sample. Takes about a microsecond.

        Args:
            number: Of the batch in the epoch.
            position: Of the sample in the batch, from 0.
        """
        if self._descriptor >= 0:
            _write_at(
                self._descriptor, _FIELD_BYTES * _NOTED, struct.pack("=2q", number + 1, position)
            )

    def keep(self, text: str) -> None:
        """In the worker: this is the end of what it has written. Takes about two microseconds."""
        data = text.encode(errors="replace")[-_LAST_WORDS_BYTES:]
        if self._descriptor >= 0:
            _write_at(self._descriptor, _HEADER.size, data)
            self._set(_LENGTH, len(data))

    def _answer_by_signal(self, number: int) -> None:
        faulthandler.register(number, self._descriptor)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        self._set(_ANSWERS_BY, _BY_SIGNAL)

    def _answer_by_thread(self) -> None:
        threading.Thread(target=self._look_for_questions, name="stoker stacks", daemon=True).start()
        self._set(_ANSWERS_BY, _BY_THREAD)

    def _look_for_questions(self) -> None:
        while True:
            time.sleep(_THREAD_LOOKS_S)
            if self._field(_ASKED):
                self._drop_stack()
                faulthandler.dump_traceback(self._descriptor)
                self._set(_ASKED, 0)

    def _field(self, index: int) -> int:
        if self._descriptor < 0:
            return 0
        header = _read_at(self._descriptor, 0, _HEADER.size)
        return int(_HEADER.unpack(header)[index]) if len(header) == _HEADER.size else 0

    def _set(self, index: int, value: int) -> None:
        _write_at(self._descriptor, _FIELD_BYTES * index, struct.pack("=q", value))


def _received(duplicate: Any) -> BlackBox:
    return over(duplicate.detach())


def _reopened(path: str | None) -> BlackBox:
    with contextlib.suppress(OSError):
        if path is not None:
            return over(open_temporary(path))
    return over(-1)


def over(descriptor: int) -> BlackBox:
    """The box that a descriptor belongs to; -1: one that stays empty."""
    box = BlackBox.__new__(BlackBox)
    box._descriptor, box._path = descriptor, None
    return box


def _read_at(descriptor: int, offset: int, most_bytes: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, most_bytes, offset)
    data: bytes = _elsewhere(descriptor, offset, lambda: os.read(descriptor, most_bytes))
    return data


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    if hasattr(os, "pwrite"):
        os.pwrite(descriptor, data, offset)
    else:
        _elsewhere(descriptor, offset, lambda: os.write(descriptor, data))


def _elsewhere(descriptor: int, offset: int, perform: Any) -> Any:
    """Performs something at an offset, and goes back to where the file's text goes on."""
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, offset, os.SEEK_SET)
    try:
        return perform()
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)
