"""What fresh workers are sent beside the pickled job: its large buffers, in memory of their own.

They are written once for any number of workers, and each maps them privately: the pages are
shared until they are written to, and what a worker writes is its own, as after a fork.

Where it can be, the program's own pages become those of the parcel (`exchange`, `one_copy`), so
that the program and all of its workers have one copy together. Parts of files that the program
has mapped are opened by path, and not copied.

Guarantees
    - A parcel holds the buffers as they are while it is packed. What the program or a worker
      writes later is seen by nobody else, and by no worker of a later parcel unless it was
      written before that one was packed.
    - Buffers that overlap in memory are one piece of memory in the worker, too.
    - Its memory is gone with the program, its workers and what was built over it, however they
      end (a page that was moved stays as long as the program's array does).

Assumes that nothing else is changing the data set meanwhile, as pickling it does.

Stages::

    Packing: take_buffer, reduce (while the job is pickled) --> ship --> Parcel
    Parcel:  pickled while a process is spawned --> open there: buffers in their order
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Iterable
from pickle import PickleBuffer
from typing import Any, NamedTuple

from stoker.transport.exchange import Exchange
from stoker.transport.one_copy import Grounds, is_moved
from stoker.transport.page_table import PAGE_BYTES, Area, is_untouched
from stoker.transport.parcel_file import ParcelFile, identity_of, map_part
from stoker.transport.parcel_leaves import LARGE_BYTES, Span, block_of, reduced

_ALIGNMENT_BYTES = 64
_SECOND_AT_MOST = 0.05


class _Piece(NamedTuple):
    """A buffer that pickle handed out; `span` keeps its memory."""

    start: int
    size_bytes: int
    span: Span

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


class _InFile(NamedTuple):
    """Where a block lies: which of the parcel's files, and from where on."""

    file: int
    offset: int


class _OnDisk(NamedTuple):
    """Where a block lies: the arguments of `map_part`."""

    path: str
    identity: tuple[int, ...]
    offset: int
    size_bytes: int
    shared: bool
    writes: bool


class _Moved(NamedTuple):
    """A block whose pages are those of a file of a parcel."""

    offset: int
    size_bytes: int
    first_page: int
    pages_bytes: int


_MOVED: dict[int, tuple[_Moved, weakref.ref[ParcelFile]]] = {}
"""By the first address. It holds no file: what no parcel has any more is not used again."""


_KEPT: dict[int, list[ParcelFile]] = {}
_OWNERS: dict[int, weakref.ref[Any]] = {}
"""What `Parcel.keep_with` was given, by identity."""


def _owner_ended(identity: int, _: Any) -> None:
    _OWNERS.pop(identity, None)
    _KEPT.pop(identity, None)


class Parcel:
    """Buffers on their way. It can be handed to any number of processes.

    Attributes:
        size_bytes: What it holds in memory; parts of files on disk are not counted.
        second_bytes: What of that is a second copy of the program's memory, since its pages
            could not be moved.
    """

    def __init__(
        self,
        files: list[ParcelFile],
        blocks: list[_InFile | _OnDisk],
        buffers: list[tuple[int, int, int]],
        second_bytes: int = 0,
    ) -> None:
        self._files, self._blocks, self._buffers = files, blocks, buffers
        self.second_bytes = second_bytes
        self.size_bytes = sum(file.size_bytes for file in files)

    def __reduce__(self) -> tuple[object, ...]:
        return Parcel, (self._files, self._blocks, self._buffers, self.second_bytes)

    def open(self) -> Iterable[memoryview]:
        """The buffers in the order in which pickle handed them out, in memory that may be written.

        Raises:
            TransportError: A file on disk is not what it was.
        """
        maps = [file.map() for file in self._files]
        found = [
            maps[block.file][block.offset :]
            if isinstance(block, _InFile)
            else map_part(
                block.path, block.identity, block.offset, block.size_bytes,
                shared=block.shared, writes=block.writes,
            )
            for block in self._blocks
        ]  # fmt: skip
        return [found[block][first : first + size] for block, first, size in self._buffers]

    def keep_with(self, owner: Any) -> None:
        """Has the next parcel of an object use again what was not written to since.

        Until then the memory is the program's own, shown by its descriptor; of an object that
        is gone, or of which there is a second copy, nothing is kept.

        Args:
            owner: What was packed, or holds it. Nothing is kept if it can't be referred to weakly.
        """
        _KEPT.pop(id(owner), None)
        if self.second_bytes > self.size_bytes * _SECOND_AT_MOST or hasattr(owner, "resize"):
            return  # numpy does not resize an array that is referred to
        with contextlib.suppress(TypeError):
            if id(owner) not in _OWNERS:
                _OWNERS[id(owner)] = weakref.ref(owner, functools.partial(_owner_ended, id(owner)))
            _KEPT[id(owner)] = list(self._files)

    def close(self) -> None:
        """Forgets the memory, and gives back the descriptors that no other parcel has."""
        self._files.clear()


class Packing:
    """The sending side: takes large buffers out of what is pickled, then ships them."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._spans: dict[int, Span] = {}

    def reduce(self, thing: Any) -> Any:
        """For ``reducer_override`` of a pickler, before anybody else's."""
        return reduced(thing, self._spans)

    def take_buffer(self, buffer: PickleBuffer) -> bool:
        """For ``buffer_callback``: takes a buffer out (False), or leaves it in (True)."""
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < LARGE_BYTES:
            return True
        span = self._spans.get(id(raw.obj))
        if span is None:
            span = Span(raw, block_of(raw.obj))
        self._pieces.append(_Piece(_address(raw), raw.nbytes, span))
        return False

    def ship(self) -> Parcel | None:
        """Writes what was taken into memory for workers, and moves pages there.

        Returns:
            The parcel; None where nothing was taken.

        Raises:
            TransportError: There is no memory for it.
        """
        if not self._pieces:
            return None
        _forget_what_is_gone()
        blocks, buffers = _blocks(self._pieces)
        places = _Places(Grounds())
        for block in blocks:
            places.find(block)
        return Parcel(places.files(), places.found, buffers, places.second_bytes)


def _blocks(pieces: list[_Piece]) -> tuple[list[_Piece], list[tuple[int, int, int]]]:
    """Joins pieces that overlap; tells for each in which block it is, from where, how large."""
    blocks: list[_Piece] = []
    buffers = [(0, 0, 0)] * len(pieces)
    for at in sorted(range(len(pieces)), key=lambda at: pieces[at].start):
        piece = pieces[at]
        if blocks and piece.start < blocks[-1].end:
            last = blocks[-1]
            end = max(last.end, piece.end)
            blocks[-1] = last._replace(size_bytes=end - last.start)
        else:
            blocks.append(piece)
        buffers[at] = len(blocks) - 1, piece.start - blocks[-1].start, piece.size_bytes
    return blocks, buffers


class _Places:
    """Finds each block its place, then writes those that are to be in a new file."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds
        self._files: list[ParcelFile] = []
        self._new: list[tuple[_Piece, int]] = []
        self._end = 0
        self.second_bytes = 0
        self.found: list[_InFile | _OnDisk] = []

    def find(self, block: _Piece) -> None:
        self.found.append(self._on_disk(block) or self._as_before(block) or self._in_new(block))

    def _on_disk(self, block: _Piece) -> _OnDisk | None:
        areas = self._grounds.space.over(block.start, block.end)
        return _part_of_file(areas[0], block) if len(areas) == 1 else None

    def _as_before(self, block: _Piece) -> _InFile | None:
        """Its place in an earlier parcel, if nothing was written to it since."""
        moved, known = _MOVED.get(block.start, (None, None))
        file = known() if known is not None else None
        if moved is None or file is None or moved.size_bytes != block.size_bytes:
            return None
        last_page = moved.first_page + moved.pages_bytes
        areas = self._grounds.space.over(moved.first_page, last_page)
        if not areas or not all(_shows(area, moved, file) for area in areas):
            return None
        if not is_untouched(moved.first_page, last_page) or not _same_edges(moved, file):
            return None
        return _InFile(self._number(file), moved.offset)

    def _number(self, file: ParcelFile) -> int:
        if file not in self._files:
            self._files.append(file)
        return self._files.index(file) + 1  # the new one is the first

    def _in_new(self, block: _Piece) -> _InFile:
        # As far into a page as it is here, so that pages can be exchanged.
        step = PAGE_BYTES if block.size_bytes >= PAGE_BYTES * 64 else _ALIGNMENT_BYTES
        offset = -(-self._end // step) * step + block.start % step
        self._end = offset + block.size_bytes
        self._new.append((block, offset))
        return _InFile(0, offset)

    def files(self) -> list[ParcelFile]:
        """The parcel's files; writes the new one."""
        if not self._new:
            # Nothing is in the first file: the others move up.
            self.found = [
                at._replace(file=at.file - 1) if isinstance(at, _InFile) else at
                for at in self.found
            ]
            return self._files
        file = ParcelFile(self._end)
        try:
            with Exchange() as exchange:
                for block, offset in self._new:
                    self._write(block, file, offset, exchange)
            file.seal()
        except BaseException:
            file.close()
            raise
        return [file, *self._files]

    def _write(self, block: _Piece, file: ParcelFile, offset: int, exchange: Exchange) -> None:
        pages = None
        if exchange.possible:
            pages = self._grounds.pages(block.start, block.size_bytes, block.span.pointer)
        if pages is None:
            file.write(block.start, block.size_bytes, offset)
            self.second_bytes += block.size_bytes
            return
        first, size_bytes = pages
        head = first - block.start
        file.write(block.start, head, offset)
        done = exchange.exchange(first, size_bytes, file.descriptor, offset + head)
        at = head + done
        self.second_bytes += size_bytes - done
        file.write(block.start + at, block.size_bytes - at, offset + at)
        if done == size_bytes:
            _MOVED[block.start] = _Moved(offset, block.size_bytes, first, done), weakref.ref(file)


def _forget_what_is_gone() -> None:
    for start, (_, file) in list(_MOVED.items()):
        if file() is None:
            _MOVED.pop(start, None)


def _shows(area: Area, moved: _Moved, file: ParcelFile) -> bool:
    if not is_moved(area) or area.inode != file.inode:
        return False
    return area.start - area.offset == moved.first_page - moved.offset - _head(moved)


def _head(moved: _Moved) -> int:
    return -moved.offset % PAGE_BYTES


def _same_edges(moved: _Moved, file: ParcelFile) -> bool:
    """The few bytes before and behind the whole pages, which were not moved."""
    head = _head(moved)
    start, end = moved.first_page - head, moved.first_page + moved.pages_bytes
    tail = moved.size_bytes - head - moved.pages_bytes
    return file.holds(start, head, moved.offset) and file.holds(
        end, tail, moved.offset + head + moved.pages_bytes
    )


def _part_of_file(area: Area, block: _Piece) -> _OnDisk | None:
    """The part of a file on disk that a block is, if a worker can map just that."""
    if not area.inode or not area.path.startswith("/") or "\\" in area.path:
        return None
    try:
        status = os.stat(area.path)
    except OSError:
        return None  # it was removed, or is in memory and has no path
    offset = block.start - area.start + area.offset
    shared, writes = area.access[3] == "s", area.access[1] == "w"
    if status.st_ino != area.inode or status.st_size < offset + block.size_bytes:
        return None
    first = block.start // PAGE_BYTES * PAGE_BYTES
    last = -(-block.end // PAGE_BYTES) * PAGE_BYTES
    if not shared and not is_untouched(first, last):
        return None
    return _OnDisk(area.path, identity_of(status), offset, block.size_bytes, shared, writes)


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )  # fmt: skip


def _address(memory: memoryview) -> int:
    """Where some memory begins. Writable or not, which `ctypes` alone would ask for."""
    found = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(found), 0)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return int(found.buf or 0)
