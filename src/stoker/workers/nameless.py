"""A file without a name, that two processes have: nothing of it stays when both are gone.

A memfd on Linux. Where a descriptor can't be passed on (Windows), a temporary file that the system
takes away when nobody has it open, see `handing`.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

from stoker.transport.handing import hand_over, taken

_PIECE_BYTES = 1 << 30


class Nameless:
    """See the module. Pickles while a process is spawned, which then has the same file.

    Args:
        name: For who looks at a process's files.

    Attributes:
        descriptor: Of the file; -1 when it is closed.

    Raises:
        OSError: There is none to be had.
    """

    def __init__(self, name: str) -> None:
        self.descriptor, self._path = new_file(name)

    def __reduce__(self) -> tuple[object, ...]:
        if self._path is not None:
            return _taken, (hand_over(self.descriptor),)
        return _received, (reduction.DupFd(self.descriptor),)

    def write(self, data: bytes) -> None:
        """Puts this into it, from its beginning."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest[:_PIECE_BYTES]) :]

    def map(self) -> mmap.mmap:
        """Its content, which is not empty; other processes may do so at the same time."""
        return mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Gives the descriptor back."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def new_file(name: str) -> tuple[int, str | None]:
    """A file for two processes: without a path where a descriptor can be passed on."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC), None
    if os.name == "posix":
        descriptor, path = tempfile.mkstemp(prefix="stoker-")
        os.unlink(path)
        return descriptor, None
    # Windows takes it away when it is no longer open anywhere.
    descriptor, path = tempfile.mkstemp(prefix="stoker-")
    os.close(descriptor)
    return open_temporary(path), path


def open_temporary(path: str) -> int:
    """The file of another process that has a path."""
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
    return os.open(path, flags | getattr(os, "O_TEMPORARY", 0))


def _over(descriptor: int, path: str | None) -> Nameless:
    file = Nameless.__new__(Nameless)
    file.descriptor, file._path = descriptor, path
    return file


def _received(duplicate: Any) -> Nameless:
    return _over(duplicate.detach(), None)


def _taken(handle: int) -> Nameless:
    return _over(taken(handle), "")
