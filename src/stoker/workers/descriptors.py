"""Files that came along by fork, opened again for a worker of its own.

A forked worker has its parent's descriptors, and with them the position in each file: what one
process reads moves it for all, and they read wrong data. So a worker opens anew, over the number
it has and at the position that its parent had, every regular file that can be read, whoever holds
it: the data set, a global variable, a class, a cache, a library in C, or nobody but a number.

Guarantees
    - The parent's own files are not touched; the worker's have the flags they had, and stay or
      don't stay over an exec as they did. On Linux a file may have been moved or removed since.
    - Not touched are files that are only written to, since who writes after another relies on
      one position; the standard streams, and files open for both that are one of them; pipes,
      sockets, devices. Nor is what Stoker opens for a worker after it has looked around.
    - What a worker writes to a file that is open for both goes to the worker's own place, as if
      it had opened the file itself; with O_APPEND to the end.
    - Another thread that reads meanwhile may move a position between the look and the fork. A
      file that is at a number in place of another is left alone.

    - Copies of a descriptor (`os.dup`) go on having one position, on Linux 6.10 and later, and
      for up to 8 numbers of one file; elsewhere each has its own.
    - A lock (`flock`) that the parent holds is the parent's alone: the worker can't give it back,
      and would wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import os
import stat
import sys
from collections.abc import Iterable
from typing import NamedTuple

_LISTS = "/proc/self/fd", "/dev/fd"
_LAST_STANDARD = 2
_IS_COPY_OF, _COMPARED = 1027, 8  # F_DUPFD_QUERY; Linux 6.10
# Of the flags that a file has: not what made it, or emptied it.
_KEPT = functools.reduce(
    operator.or_,
    (
        getattr(os, name, 0)
        for name in ["O_APPEND", "O_NONBLOCK", "O_DIRECT", "O_NOATIME", "O_DSYNC", "O_SYNC"]
    ),
)
_NO_ROOM = errno.EMFILE, errno.ENFILE, errno.ENOMEM


class File(NamedTuple):
    """A file of this process that a worker can open for itself.

    Attributes:
        descriptor: Its number.
        flags: To open it with.
        device: With the inode, which file it is.
        inode: See there.
        copy_of: The number of another one that it has its position in common with.
    """

    descriptor: int
    flags: int
    device: int
    inode: int
    copy_of: int | None = None

    def is_at(self, descriptor: int) -> bool:
        """Whether it is this file that is open there."""
        told = os.fstat(descriptor)
        return (told.st_dev, told.st_ino) == (self.device, self.inode)


class Position(NamedTuple):
    """Where this process is in a file."""

    file: File
    offset: int


def files_here() -> list[File]:
    """The files that are open in this process now, and that a worker can open for itself."""
    found: list[File] = []
    same: dict[tuple[int, int], list[int]] = {}
    for number in _numbers():
        with contextlib.suppress(OSError):  # It was closed meanwhile.
            file = _file(number)
            if file is not None:
                others = same.setdefault((file.device, file.inode), [])
                found.append(file._replace(copy_of=_original(number, others)))
    return found


def _original(descriptor: int, others: list[int]) -> int | None:
    """Which of the others this one is a copy of; else it becomes one of the others."""
    import fcntl

    for other in others:
        try:
            if fcntl.fcntl(descriptor, _IS_COPY_OF, other):
                return other
        except OSError:  # Systems that can't tell.
            return None
    if len(others) < _COMPARED:
        others.append(descriptor)
    return None


def _numbers() -> list[int]:
    for place in _LISTS:
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(place)]
    return []


def _file(descriptor: int) -> File | None:
    import fcntl  # not on every system; where there is none, there is no fork

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    mode = flags & os.O_ACCMODE
    opened = mode in (os.O_RDONLY, os.O_RDWR) and not flags & getattr(os, "O_PATH", 0)
    if descriptor <= _LAST_STANDARD or not opened:
        return None
    told = os.fstat(descriptor)
    if not stat.S_ISREG(told.st_mode):
        return None
    file = File(descriptor, mode | flags & _KEPT, told.st_dev, told.st_ino)
    return None if mode == os.O_RDWR and _is_standard(file) else file


def _is_standard(file: File) -> bool:
    for number in range(_LAST_STANDARD + 1):
        with contextlib.suppress(OSError):  # There is none.
            if file.is_at(number):
                return True
    return False


def can_be_opened_again(descriptor: int) -> bool:
    """Whether a worker will have this one for itself.

    It is not tried: closing the second one would give back the locks (`fcntl.lockf`) that this
    process has on the file.

    Raises:
        OSError: It is closed.
    """
    file, name = _file(descriptor), _name(descriptor)
    if file is None or name is None:
        return False
    writes = os.W_OK if file.flags & os.O_RDWR else 0
    return os.access(name, os.R_OK | writes, effective_ids=os.access in os.supports_effective_ids)


def _name(descriptor: int) -> str | bytes | None:
    """A path by which what is open there can be opened anew; None where there is none."""
    if sys.platform == "linux":
        return f"/proc/self/fd/{descriptor}"
    import fcntl

    ask = getattr(fcntl, "F_GETPATH", None)  # macOS; elsewhere /dev/fd gives the same position.
    return None if ask is None else fcntl.fcntl(descriptor, ask, bytes(1024)).rstrip(b"\0")


def positions(files: Iterable[File]) -> list[Position]:
    """Where this process is in these files now; without those that were closed meanwhile."""
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            found.append(Position(file, os.lseek(file.descriptor, 0, os.SEEK_CUR)))
    return found


def open_again(files: Iterable[Position]) -> None:
    """For a forked worker: its own position in each file, under the descriptor it had.

    One that can't be opened is left as it is.

    Raises:
        OSError: There is no room for a further open file: reading would move others' positions.
    """
    for file, offset in files:
        try:
            _open_again(file, offset)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise


def _open_again(file: File, offset: int) -> None:
    name = _name(file.descriptor)
    if name is None or not file.is_at(file.descriptor):
        return
    if file.copy_of is not None:
        if file.is_at(file.copy_of):
            os.dup2(file.copy_of, file.descriptor, os.get_inheritable(file.descriptor))
        return
    own = os.open(name, file.flags | os.O_CLOEXEC)
    try:
        if file.is_at(own):
            os.lseek(own, offset, os.SEEK_SET)
            os.dup2(own, file.descriptor, inheritable=os.get_inheritable(file.descriptor))
    finally:
        os.close(own)
