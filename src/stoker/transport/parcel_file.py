"""Memory that a parcel lies in: written once by its maker, mapped privately by who opens it.

A memfd on Linux, sealed once it is written, so that nobody can change it. Elsewhere a file without
a name, or (Windows) one that goes when nobody has it open. Whoever maps it sees the same pages
until it writes to one: that page is its own then, as after a fork.

Its descriptor is closed with the object; the memory goes with the last mapping.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import tempfile
import weakref
from multiprocessing import reduction
from typing import Any

from stoker.errors import TransportError
from stoker.transport.handing import hand_over, taken
from stoker.transport.one_copy import LABEL

_AT_ONCE_BYTES = 1 << 30
_FAILED = ctypes.c_void_p(-1).value


class ParcelFile:
    """See the module. Pickles while a process is spawned, which then has the same file.

    Args:
        size_bytes: Its size.

    Attributes:
        descriptor: Of the file.
        inode: By which its mappings are known.
        size_bytes: Its size.
        close: Gives the descriptor back; so does the end of the object.

    Raises:
        TransportError: The system gave no memory or no descriptor.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        try:
            self._take(*_new())
            os.truncate(self.descriptor, size_bytes)
        except OSError as error:
            raise _lacking(size_bytes, error) from error

    def _take(self, descriptor: int, path: str | None) -> None:
        self.descriptor, self._path = descriptor, path
        self.close = weakref.finalize(self, os.close, descriptor)
        self.inode = os.fstat(descriptor).st_ino

    def __reduce__(self) -> tuple[object, ...]:
        if self._path is not None:
            return _taken, (hand_over(self.descriptor), self.size_bytes)
        return _received, (reduction.DupFd(self.descriptor), self.size_bytes)

    def write(self, address: int, size_bytes: int, offset: int) -> None:
        """Copies this process's memory into it.

        Raises:
            TransportError: The system has no memory for it.
        """
        source = memoryview((ctypes.c_ubyte * size_bytes).from_address(address)).cast("B")
        try:
            while source:
                written = _write_at(self.descriptor, source[:_AT_ONCE_BYTES], offset)
                source, offset = source[written:], offset + written
        except OSError as error:
            raise _lacking(self.size_bytes, error) from error

    def holds(self, address: int, size_bytes: int, offset: int) -> bool:
        """Whether a few bytes of this process's memory are what was written there."""
        return ctypes.string_at(address, size_bytes) == os.pread(
            self.descriptor, size_bytes, offset
        )

    def seal(self) -> None:
        """Nobody can change it any more, where the system can say so."""
        if self._path is None and hasattr(os, "memfd_create"):
            import fcntl

            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)

    def map(self) -> memoryview:
        """All of it, writable; what is written is this process's own."""
        return memoryview(_mapped(self.descriptor, self.size_bytes, 0)).cast("B")


def map_part(
    path: str,
    identity: tuple[int, ...],
    offset: int,
    size_bytes: int,
    *,
    shared: bool,
    writes: bool,
) -> memoryview:
    """A part of somebody's file.

    Args:
        path: Of the file.
        identity: As `identity_of` gave it.
        offset: Where the part begins.
        size_bytes: How much.
        shared: Whether writes go to the file; else they are this process's own.
        writes: Whether it may be written to.

    Raises:
        TransportError: It is not there, or another file is.
    """
    try:
        descriptor = os.open(path, os.O_RDWR if shared and writes else os.O_RDONLY)
        try:
            if identity_of(os.fstat(descriptor)) != identity:
                raise OSError(errno.ESTALE, "another file is there now", path)
            before = offset % mmap.ALLOCATIONGRANULARITY
            whole = _mapped(
                descriptor, before + size_bytes, offset - before, shared=shared,
                writes=writes or not shared,
            )  # fmt: skip
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise TransportError(
            f"the file behind an array of the data set can't be mapped: {error}",
            doing="opening what a fresh worker was sent",
            likely="it was replaced, removed or cut short after the program had mapped it",
            change="leave the file in place, or copy the array into memory",
        ) from error
    return memoryview(whole).cast("B")[before:]


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from another that took its place."""
    return status.st_dev, status.st_ino


def _mapped(
    descriptor: int, size_bytes: int, offset: int, *, shared: bool = False, writes: bool = True
) -> Any:
    if os.name != "posix":
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        access = access if writes else mmap.ACCESS_READ
        return mmap.mmap(descriptor, size_bytes, access=access, offset=offset)
    if not 0 < size_bytes <= os.fstat(descriptor).st_size - offset:
        raise ValueError("the file is shorter than it was")
    flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
    return _mapped_alone(descriptor, size_bytes, offset, flags, access)


def _mapped_alone(descriptor: int, size_bytes: int, offset: int, flags: int, access: int) -> Any:
    """Without a descriptor of its own, which `mmap.mmap` would keep (before Python 3.13)."""
    call, uncall = _library().mmap, _library().munmap
    address = call(None, size_bytes, access, flags, descriptor, offset)
    if address in (None, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * size_bytes).from_address(address)
    # Not at exit: what is built over it may be in use then.
    weakref.finalize(memory, uncall, address, size_bytes).atexit = False
    return memory if access & mmap.PROT_WRITE else memoryview(memory).toreadonly()


@functools.cache
def _library() -> Any:
    library: Any = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    library.mmap.restype = pointer
    library.munmap.argtypes = [pointer, size]
    return library


def _write_at(descriptor: int, data: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


def _new() -> tuple[int, str | None]:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(LABEL, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), None
    descriptor, path = tempfile.mkstemp(prefix=f"{LABEL}-")
    if os.name == "posix":
        os.unlink(path)
        return descriptor, None
    os.close(descriptor)
    return _open_temporary(path), path


def _open_temporary(path: str) -> int:
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
    return os.open(path, flags | getattr(os, "O_TEMPORARY", 0))


def _over(descriptor: int, path: str | None, size_bytes: int) -> ParcelFile:
    file = ParcelFile.__new__(ParcelFile)
    file.size_bytes = size_bytes
    file._take(descriptor, path)
    return file


def _received(duplicate: Any, size_bytes: int) -> ParcelFile:
    return _over(duplicate.detach(), None, size_bytes)


def _taken(handle: int, size_bytes: int) -> ParcelFile:
    return _over(taken(handle), "", size_bytes)


def _lacking(size_bytes: int, error: OSError) -> TransportError:
    too_large = error.errno == errno.EFBIG
    return TransportError(
        f"no shared memory for {size_bytes:,} bytes of the data set's arrays: {error}",
        doing="packing the data set for fresh workers",
        likely="it is above this process's limit for the size of a file (`ulimit -f`)"
        if too_large
        else "the memory or the descriptors of this process are used up",
        change="`ulimit -f unlimited`, or worker_method"
        if too_large
        else "the memory limit, `ulimit -n`, or arrays that are mapped from files (np.memmap)",
    )
