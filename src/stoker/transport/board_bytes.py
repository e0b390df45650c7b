"""What a board looks like in memory: a head and equal areas, one for each key. Pure.

An area is written under a sequence number that is odd while the copy is under way. A
reader takes the number, the text, and the number again; where they differ, where it is
odd, or where the checksum does not fit, it looks again a little later. So a reader never
sees half a text, and the writer never knows that it is read. All numbers are in this
machine's byte order: nobody else can see the memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

MAGIC = b"stoker-1"
HEAD_BYTES = 64
MOST_BYTES = 64 << 20
TRIES = 8

_HEAD = Struct("@8sqdQQ")
_NUMBER = Struct("@Q")
_ENTRY = Struct("@QqII")
ENTRY_BYTES = _ENTRY.size

Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Head:
    """Whose board it is and how it is divided.

    Attributes:
        pid: The process that writes it, as that process knows itself.
        started: When that process started, in seconds on a clock of the system's choice;
            with the pid it names one process for good.
        area_bytes: Size of one area, with its entry.
        areas: How many there are.
    """

    pid: int
    started: float
    area_bytes: int
    areas: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole board."""
        return HEAD_BYTES + self.area_bytes * self.areas


def write_head(memory: Any, head: Head) -> None:
    """Put the head down; once, before any area is written."""
    _HEAD.pack_into(memory, 0, MAGIC, head.pid, head.started, head.area_bytes, head.areas)


def write_area(memory: Any, head: Head, area: int, key: int, text: bytes) -> None:
    """Copy a text into an area. Never waits.

    Args:
        memory: The board, writable.
        head: How it is divided.
        area: Number of the area, from 0.
        key: What the text belongs to.
        text: At most ``head.area_bytes - ENTRY_BYTES`` bytes; an empty one clears the area.
    """
    at = HEAD_BYTES + area * head.area_bytes
    (number,) = _NUMBER.unpack_from(memory, at)
    odd = number | 1
    _NUMBER.pack_into(memory, at, odd)
    start = at + ENTRY_BYTES
    memory[start : start + len(text)] = text
    _ENTRY.pack_into(memory, at, odd, key, len(text), _checksum(key, text))
    _NUMBER.pack_into(memory, at, odd + 1)


def read_head(read: Read) -> Head | None:
    """The head, or None where it is not the head of a board.

    Args:
        read: Gives so many bytes (second) from an offset (first); fewer where it ends.
    """
    data = read(0, HEAD_BYTES)
    if len(data) < HEAD_BYTES:
        return None
    magic, *rest = _HEAD.unpack_from(data)
    head = Head(*rest)
    whole = head.area_bytes > ENTRY_BYTES and 0 < head.size_bytes <= MOST_BYTES
    return head if magic == MAGIC and whole else None


def read_texts(read: Read, head: Head, pause: Callable[[], None]) -> dict[int, bytes]:
    """The texts of a board by their keys.

    Args:
        read: As for `read_head`.
        head: What `read_head` gave.
        pause: Called between two looks at an area that is being written.
    """
    areas = (_settled(read, head, area, pause) for area in range(head.areas))
    return {key: text for key, text in filter(None, areas) if text}


def _settled(
    read: Read, head: Head, area: int, pause: Callable[[], None]
) -> tuple[int, bytes] | None:
    """An area's key and text; None where it stays unfit to be read, as in a dead writer's."""
    for last in _tries():
        found = _look(read, HEAD_BYTES + area * head.area_bytes, head.area_bytes)
        if found is not None:
            return found
        if not last:
            pause()
    return None


def _tries() -> Iterator[bool]:
    """Whether this is the last try."""
    return (left == 0 for left in reversed(range(TRIES)))


def _look(read: Read, at: int, area_bytes: int) -> tuple[int, bytes] | None:
    before = read(at, ENTRY_BYTES)
    if len(before) < ENTRY_BYTES:
        return None
    number, key, length, checksum = _ENTRY.unpack(before)
    if number == 0:
        return key, b""  # never written
    if number % 2 or length > area_bytes - ENTRY_BYTES:
        return None
    text = read(at + ENTRY_BYTES, length)
    if read(at, ENTRY_BYTES) != before or _checksum(key, text) != checksum:
        return None
    return key, text


def _checksum(key: int, text: bytes) -> int:
    return zlib.crc32(text, key & 0xFFFFFFFF)
