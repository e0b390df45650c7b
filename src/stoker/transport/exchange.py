"""Puts equal pages of a file under memory of this process, at the same addresses.

After it, the memory reads as before and is written as before; but its pages are those of the
file, shared with whoever maps the file too, until one of them is written to.

Guarantees
    - No write by another thread is lost. While a piece is copied and exchanged, its pages are
      write-protected by userfaultfd(2): a thread that writes to one of them waits until the
      exchange is done, and then writes to the new page. A system call that another thread has
      writing into the piece waits as well; without privileges it fails with EFAULT instead.
    - Nothing else of Python runs meanwhile. The whole chain from protecting to releasing is one
      pass of C code through prepared calls, none of which lets go of the GIL: a thread that
      waits for a page may hold no GIL, or nobody could ever release it.
    - Pages are exchanged only when all of their bytes are in the file. When a step fails, the
      ones behind it are not made, and the protection is taken away.

Assumes
    - Nobody unmaps the addresses meanwhile: the caller holds what owns them.
    - No device writes to the memory by itself. Page-locked memory must not be exchanged.

Where userfaultfd is missing or forbidden (older kernels, the default of some containers),
pages are exchanged only while no other thread could write: there is none, or all of them sleep
on a futex, without a time limit, and none is Python's. Otherwise they are not exchanged.

A piece::

    absent pages are brought in -> protect -> copy into the file -> map the file there -> wake
                                     |          |  (short)             |
                                     +----------+----------------------+--> unprotect -> wake
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import mmap
import operator
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PIECE_BYTES = 4 * 2**20
"""So much is copied at a time; other threads of Python wait as long: a few milliseconds."""

_CALL_NUMBERS = {"x86_64": (323, 202), "aarch64": (282, 98)}  # userfaultfd, futex
_API, _REGISTER, _PROTECT, _WAKE = 0xC018AA3F, 0xC020AA00, 0xC018AA06, 0x8010AA02
_VERSION, _WITH_PROTECTION, _FOR_WRITES, _ON, _OFF = 0xAA, 1, 2, 1, 0
_USER_FAULTS_ONLY = 1
_POPULATE_READ = 22  # of madvise(2), since Linux 5.14
_FIXED = 0x10
_LIMIT = 3  # Which argument of futex(2) is the time limit; 0 is none.

Step = Callable[[], Any]


class Exchange:
    """Exchanges pages; a context. One at a time in a process, in the thread that made it.

    Attributes:
        possible: Whether it can be done here at all.
    """

    def __init__(self) -> None:
        self._guard = _Guard.made()
        self.possible = _calls() is not None and (self._guard is not None or _is_alone())

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def exchange(self, start: int, size_bytes: int, descriptor: int, offset: int) -> int:
        """Copies memory into a file and maps it there.

        Args:
            start: The first address, at the start of a page, of private writable memory.
            size_bytes: How much, whole pages.
            descriptor: Of the file, whose size covers it.
            offset: Where in the file, at the start of a page.

        Returns:
            How many bytes were exchanged, from the start; the rest is as it was, and what of it
            is in the file is not known.
        """
        done = 0
        while done < size_bytes:
            piece = min(PIECE_BYTES, size_bytes - done)
            if not self._piece(start + done, piece, descriptor, offset + done):
                break
            done += piece
        return done

    def _piece(self, start: int, size_bytes: int, descriptor: int, offset: int) -> bool:
        calls = _calls()
        if calls is None:
            return False
        guard = self._guard
        before: list[tuple[Step, int]] = []
        after: list[Step] = []
        if guard is None:
            if not _is_alone():
                return False
        else:
            if not guard.watch(start, size_bytes):
                return False
            before, after = guard.steps(start, size_bytes)
        flags = mmap.MAP_PRIVATE | _FIXED
        access = mmap.PROT_READ | mmap.PROT_WRITE
        steps: list[tuple[Step, int]] = [
            *before,
            (functools.partial(calls.pwrite, descriptor, start, size_bytes, offset), size_bytes),
            (functools.partial(calls.mmap, start, size_bytes, access, flags, descriptor, offset),
             start),
        ]  # fmt: skip
        return _run(steps, after)


def _run(steps: list[tuple[Step, int]], after: list[Step]) -> bool:
    """Makes calls up to the first with another result than given, then all of `after`.

    From the first call to the last no bytecode is run, so that no thread takes the GIL and no
    signal handler comes between; nor does the garbage collector.
    """
    call: Any = functools.partial.__call__
    results: Any = map(call, [step for step, _ in steps])
    checked: Any = functools.partial(
        all, map(operator.eq, results, [expected for _, expected in steps])
    )
    everything = map(call, [checked, *after])
    collecting = gc.isenabled()
    gc.disable()
    try:
        safely, *_ = everything
        return bool(safely)
    finally:
        if collecting:
            gc.enable()


class _Guard:
    """Write protection of pages of this process, by a descriptor of userfaultfd(2)."""

    def __init__(self, descriptor: int, calls: Any) -> None:
        self._descriptor = descriptor
        self._calls = calls
        self._kept: list[Any] = []

    @classmethod
    def made(cls) -> _Guard | None:
        """One, or None where the system has or allows none."""
        calls = _calls()
        if calls is None:
            return None
        # First for faults of the kernel, too, which needs a privilege.
        for only in (0, _USER_FAULTS_ONLY):
            descriptor = calls.syscall(calls.userfaultfd, os.O_CLOEXEC | os.O_NONBLOCK | only)
            if descriptor < 0:
                continue
            guard = cls(descriptor, calls)
            if guard._control(_API, "QQQ", _VERSION, _WITH_PROTECTION, 0):
                return guard
            guard.close()
        return None

    def watch(self, start: int, size_bytes: int) -> bool:
        """Registers memory, and brings in absent pages: only what is there can be protected."""
        self._kept.clear()
        return (
            self._control(_REGISTER, "QQQQ", start, size_bytes, _FOR_WRITES, 0)
            and self._calls.madvise(start, size_bytes, _POPULATE_READ) == 0
        )

    def steps(self, start: int, size_bytes: int) -> tuple[list[tuple[Step, int]], list[Step]]:
        """The call that protects, with its result; and those that end it, whatever came."""
        protect = self._prepared(_PROTECT, "QQQ", start, size_bytes, _ON)
        release = self._prepared(_PROTECT, "QQQ", start, size_bytes, _OFF)
        wake = self._prepared(_WAKE, "QQ", start, size_bytes)
        return [(protect, 0)], [release, wake]

    def _control(self, code: int, layout: str, *values: int) -> bool:
        done: int = self._prepared(code, layout, *values)()
        return done == 0

    def _prepared(self, code: int, layout: str, *values: int) -> Step:
        memory = ctypes.create_string_buffer(struct.pack(layout, *values))
        self._kept.append(memory)
        return functools.partial(
            self._calls.ioctl, self._descriptor, code, ctypes.addressof(memory)
        )

    def close(self) -> None:
        os.close(self._descriptor)  # takes every protection away, and wakes


class _Calls:
    """Functions of the C library that keep the GIL while they run."""

    def __init__(self, userfaultfd: int, futex: int) -> None:
        library = ctypes.PyDLL(None)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
        self.userfaultfd, self.futex = userfaultfd, futex
        self.syscall: Any = library.syscall
        self.syscall.argtypes, self.syscall.restype = [number, number], number
        self.ioctl: Any = library.ioctl
        self.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, pointer]
        self.pwrite: Any = library.pwrite
        self.pwrite.argtypes = [ctypes.c_int, pointer, size, number]
        self.pwrite.restype = ctypes.c_ssize_t
        self.madvise: Any = library.madvise
        self.madvise.argtypes = [pointer, size, ctypes.c_int]
        self.mmap: Any = library.mmap
        self.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, number]
        self.mmap.restype = pointer


@functools.cache
def _calls() -> _Calls | None:
    numbers = _CALL_NUMBERS.get(platform.machine())
    if sys.platform != "linux" or numbers is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    with contextlib.suppress(OSError, AttributeError):
        return _Calls(*numbers)
    return None


def _is_alone() -> bool:
    """Whether no other thread can write before this one lets go of the GIL.

    So it is when all others sleep on a futex until somebody wakes them, as idle pools of threads
    do, and none is one of Python, which could go on in C code once it is woken.
    """
    calls = _calls()
    if calls is None or len(sys._current_frames()) > 1:
        return False
    try:
        return all(_sleeps(task, calls.futex) for task in _other_tasks())
    except OSError:
        return False


def _other_tasks() -> Iterator[Path]:
    me = str(threading.get_native_id())
    return (task for task in Path("/proc/self/task").iterdir() if task.name != me)


def _sleeps(task: Path, futex: int) -> bool:
    try:
        number, *rest = (task / "syscall").read_text().split()
        return number == str(futex) and rest[_LIMIT] == "0x0"
    except FileNotFoundError:
        return True  # it has ended
