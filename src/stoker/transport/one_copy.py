"""Which memory of this process may be given other pages: large blocks of glibc's malloc.

A block above malloc's threshold (128 KiB to 32 MiB, malloc(3) M_MMAP_THRESHOLD) is a mapping of
its own, with a header in the 16 bytes before what malloc returned. Whatever glibc does with it
later works page by page and does not ask what is behind a page:

- ``free`` unmaps from the header's start for the header's length.
- ``realloc`` (``ndarray.resize`` in place) that shrinks unmaps the end. One that grows asks for
  one mapping to be stretched; the page with the header is never exchanged, so the block is more
  than one mapping, the kernel refuses, and glibc copies the block to a new one.
- A forked copy of the process has the same pages, shared until written.

Of other allocators that can't be said: they may give pages back and count on finding zeros. So
a block is taken only if malloc is glibc's, the header fits to the page, the mappings cover the
block, and glibc itself gives the same size for it.

Nor is memory moved that a device may write to by itself, since that goes to the pages of before:
where an accelerator is open, torch is asked for each block whether it is page-locked, and nothing
is moved if torch does not use the accelerator and so can't tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

from stoker.transport.page_table import PAGE_BYTES, AddressSpace, Area

MOVE_BYTES = 2**20
"""Smaller blocks are copied, and stay: each that is moved takes two of the system's mappings."""

_MOVES_AT_MOST = 8192
_HEADER_BYTES = 16
_FLAGS, _MMAPPED = 7, 2
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/infiniband", "/dev/accel")
_VARIABLE = "STOKER_ONE_COPY"
LABEL = "stoker-parcel"


class Grounds:
    """What of this process's memory may be moved; as of when it was made."""

    def __init__(self) -> None:
        self._space = AddressSpace()
        self._devices = self._space.shows(_DEVICES)
        self._left = _MOVES_AT_MOST if _is_allowed(len(self._space)) else 0

    @property
    def space(self) -> AddressSpace:
        return self._space

    def pages(self, start: int, size_bytes: int, pointer: int) -> tuple[int, int] | None:
        """The whole pages of some memory, when it is a part of a block that may be moved.

        Args:
            start: The first address of the memory.
            size_bytes: Its size.
            pointer: What malloc returned for the block, so far as is known.

        Returns:
            The first address and the size in bytes, or None.
        """
        if self._left <= 0 or size_bytes < MOVE_BYTES:
            return None
        block = self._block(pointer)
        if block is None or not block[0] <= start <= start + size_bytes <= block[1]:
            return None
        first = -(-start // PAGE_BYTES) * PAGE_BYTES
        last = (start + size_bytes) // PAGE_BYTES * PAGE_BYTES
        self._left -= 1
        return first, last - first

    def _block(self, pointer: int) -> tuple[int, int] | None:
        header = pointer - _HEADER_BYTES
        if pointer <= _HEADER_BYTES or pointer % 16 or not self._all(header, pointer, _is_own):
            return None
        before, size = (ctypes.c_size_t * 2).from_address(header)
        if size & _FLAGS != _MMAPPED:
            return None
        start, end = header - before, header + (size & ~_FLAGS)
        if start % PAGE_BYTES or end % PAGE_BYTES or end - start < MOVE_BYTES:
            return None
        if self._devices and _may_be_page_locked(pointer):
            return None
        if not self._all(start, end, _is_own) or _usable(pointer) != end - pointer:
            return None
        return pointer, end

    def _all(self, start: int, end: int, holds: Any) -> bool:
        areas = self._space.over(start, end)
        return bool(areas) and all(map(holds, areas))


def _is_own(area: Area) -> bool:
    if area.access != "rw-p":
        return False
    return (area.inode == 0 and (not area.path or area.path.startswith("[anon:"))) or is_moved(area)


def _may_be_page_locked(pointer: int) -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    memory = (ctypes.c_ubyte * _HEADER_BYTES).from_address(pointer)
    return bool(torch.frombuffer(memory, dtype=torch.uint8).is_pinned())


def is_moved(area: Area) -> bool:
    """Whether it shows a parcel."""
    return area.path.startswith(f"/memfd:{LABEL}")


def _is_allowed(areas: int) -> bool:
    """Whether blocks may be moved here, and so many mappings more be made."""
    if os.environ.get(_VARIABLE) == "0" or _malloc() is None:
        return False
    system = Path("/proc/sys/vm")
    try:
        # Where every page is promised in advance, a mapping may be refused once its
        # predecessor is gone; locked pages may be written to by devices.
        strict = int((system / "overcommit_memory").read_text()) == 2
        most = int((system / "max_map_count").read_text())
    except (OSError, ValueError):
        return False
    return not strict and not _has_locked_pages() and areas + 2 * _MOVES_AT_MOST < most


def _has_locked_pages() -> bool:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return True
    told = [line.split() for line in lines if line.startswith(("VmLck:", "VmPin:"))]
    return any(int(words[1]) for words in told)


@functools.cache
def _malloc() -> Any:
    """``malloc_usable_size`` of glibc, if its malloc is the one in use here; else None."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, AttributeError):
        here, glibc = ctypes.PyDLL(None), ctypes.PyDLL("libc.so.6")
        _ = glibc.gnu_get_libc_version
        if _address(here.malloc) == _address(glibc.malloc):
            usable = glibc.malloc_usable_size
            usable.argtypes, usable.restype = [ctypes.c_void_p], ctypes.c_size_t
            return usable
    return None


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _usable(pointer: int) -> int:
    usable = _malloc()
    return 0 if usable is None else int(usable(pointer))
