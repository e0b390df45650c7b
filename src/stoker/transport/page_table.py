"""What this process's memory is made of, page by page, as Linux tells it.

Read from ``/proc/self/maps`` and ``/proc/self/pagemap`` (proc(5)), for which no privilege is
needed. Elsewhere there is nothing to read, and every answer is that nothing is known.
"""

from __future__ import annotations

import array
import bisect
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

PAGE_BYTES = mmap.PAGESIZE
_ENTRY_BYTES = 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
_AT_ONCE = 1 << 15


@dataclass(frozen=True, slots=True)
class Area:
    """A mapping: addresses from `start` to `end`, and what is behind them.

    Attributes:
        access: As in the file: "rw-p" is readable, writable and private.
        offset: Where in the file it begins, in bytes.
        inode: Of the file; 0 for memory without one.
        path: Of the file, or a name in brackets, or "".
    """

    start: int
    end: int
    access: str
    offset: int
    inode: int
    path: str


class AddressSpace:
    """The mappings of this process at one moment."""

    def __init__(self) -> None:
        self._areas = list(_read_areas())
        self._starts = [area.start for area in self._areas]

    def __len__(self) -> int:
        return len(self._areas)

    def shows(self, paths: tuple[str, ...]) -> bool:
        """Whether a file is mapped whose path begins with one of these."""
        return any(area.path.startswith(paths) for area in self._areas)

    def over(self, start: int, end: int) -> list[Area]:
        """The mappings that hold every address from `start` to `end`; empty if one is in none."""
        at = bisect.bisect_right(self._starts, start) - 1
        found: list[Area] = []
        reached = start
        while 0 <= at < len(self._areas) and self._areas[at].start <= reached < end:
            area = self._areas[at]
            if area.end <= reached:
                return []
            found.append(area)
            reached, at = area.end, at + 1
        return found if reached >= end else []


def _read_areas() -> Iterator[Area]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        addresses, access, offset, _device, inode, *path = line.split(maxsplit=5)
        start, _, end = addresses.partition("-")
        yield Area(int(start, 16), int(end, 16), access, int(offset, 16), int(inode), "".join(path))


def is_untouched(start: int, end: int) -> bool:
    """Whether a private mapping of a file still shows the file there, byte for byte.

    A page that was written to is memory of the process's own from then on, in use or swapped
    out. One that is merely absent was never written to.

    Args:
        start: The first address, at the start of a page.
        end: The first address behind it, at the start of a page.
    """
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            return all(_is_the_file(entries) for entries in _entries(file.fileno(), start, end))
    except OSError:
        return False


def _entries(descriptor: int, start: int, end: int) -> Iterator[array.array[int]]:
    at, last = start // PAGE_BYTES, end // PAGE_BYTES
    while at < last:
        count = min(_AT_ONCE, last - at)
        entries = array.array("Q", os.pread(descriptor, count * _ENTRY_BYTES, at * _ENTRY_BYTES))
        if not entries:
            raise OSError("the table of pages ends early")
        yield entries
        at += len(entries)


def _is_the_file(entries: array.array[int]) -> bool:
    # Few kinds of entries make up a table: absent, and present with the same flags.
    return not any(
        entry & _SWAPPED or (entry & _PRESENT and not entry & _OF_FILE) for entry in set(entries)
    )
