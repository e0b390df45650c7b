"""From a few records to bytes: strings, byte strings and numbers as they are, others pickled."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.errors import NotPicklable
from stoker.records.blocks import Array, Block, Bytes, Numbers, Pickles, Texts
from stoker.records.own_names import Names, Noting, reader_of
from stoker.transport.fields import innermost, kind_of

_FRAME = 9
"""Bytes of a pickle's frame, which says how long it is: an opcode and eight bytes, third in it."""
_FRAME_OPCODE = 0x95
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)

Name = Callable[[int], str]


@dataclass(frozen=True)
class Run:
    """Some records as bytes.

    Attributes:
        kind: What of a block they may go into.
        data: Numbers, or all bytes.
        lengths: In bytes, of each record; None for numbers.
    """

    kind: type[Block]
    data: Array
    lengths: Array | None = None


def encoded(records: list[Any], first: int, name: Name, names: Names) -> Run:
    """The records as bytes.

    Args:
        records: At least one.
        first: The index of the first one.
        name: What to call a record in an error, by its index.
        names: Where to note what pickles name of the main program.

    Raises:
        NotPicklable: One of them does not pickle, or can't be unpickled.
    """
    kinds = set(map(type, records))
    if kinds == {str}:
        return _joined(Texts, [text.encode("utf-8", "surrogatepass") for text in records])
    if kinds == {bytes}:
        return _joined(Bytes, records)
    numbers = _numbers(records, kinds)
    if numbers is not None:
        return Run(Numbers, numbers)
    return _pickled(records, first, name, names)


def _joined(kind: type[Block], pieces: list[bytes]) -> Run:
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    return Run(kind, np.frombuffer(b"".join(pieces), np.uint8), lengths)


def _numbers(records: list[Any], kinds: set[type]) -> Array | None:
    if kinds == {float}:
        return np.array(records, np.float64)
    if kinds == {bool}:
        return np.array(records, np.bool_)
    if kinds != {int}:
        return None
    least, most = min(records), max(records)
    for width in _WIDTHS:
        if np.iinfo(width).min <= least and most <= np.iinfo(width).max:
            return np.array(records, width)
    return None


def _pickled(records: list[Any], first: int, name: Name, names: Names) -> Run:
    file = io.BytesIO()
    pickler = Noting(file, names)
    dump, clear, tell = pickler.dump, pickler.clear_memo, file.tell
    ends: list[int] = []
    try:
        for record in records:
            dump(record)
            clear()
            ends.append(tell())
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as why:
        raise _unpicklable(records[len(ends)], name(first + len(ends)), why) from why
    _try_first(file.getbuffer()[: ends[0]], records[0], name(first), names)
    return _without_frames(np.frombuffer(file.getbuffer(), np.uint8), np.array(ends, np.int64))


def _without_frames(data: Array, ends: Array) -> Run:
    """Leaves the frame out of each pickle that has one: for streams, and 9 bytes a record."""
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    framed = starts[lengths > 2 + _FRAME]
    framed = framed[data[framed + 2] == _FRAME_OPCODE]
    sizes = data[framed[:, None] + np.arange(3, 2 + _FRAME)].view("<u8")[:, 0]
    whole = sizes == (lengths[np.searchsorted(starts, framed)] - 2 - _FRAME).astype(np.uint64)
    kept = np.ones(len(data), np.bool_)
    kept[framed[whole][:, None] + np.arange(2, 2 + _FRAME)] = False
    lengths[np.searchsorted(starts, framed[whole])] -= _FRAME
    return Run(Pickles, data[kept], lengths)


def _try_first(data: memoryview, record: Any, name: str, names: Names) -> None:
    """Reads the first record back: a class that can't be built again shows there."""
    try:
        back: Any = reader_of(names)(data)
    except Exception as why:
        raise NotPicklable(
            f"{name}, a {kind_of(record)}, pickles, but can't be unpickled "
            f"({type(why).__name__}: {why})",
            doing="packing records",
            likely="its class takes other arguments than it passes on (__reduce__, __init__)",
            change=f"the class of {name}, or records of plain values",
        ) from why
    if type(back) is not type(record):
        raise NotPicklable(
            f"{name} is a {kind_of(record)}, and comes back from its pickle as a {kind_of(back)}",
            doing="packing records",
            change=f"{name}, to be what its pickle gives",
        )


def _unpicklable(record: Any, name: str, why: BaseException) -> NotPicklable:
    found = innermost(record, name, _fails)
    return NotPicklable(
        f"A record can't be packed, since it does not pickle: {found.path} is a "
        f"{kind_of(found.thing)} ({type(why).__name__}: {why})",
        doing="packing records",
        likely="an open file or connection, a lock, a generator, or a function or class defined "
        "inside a function",
        change=f"{found.path}, to be left out, or kept as what it is made from (a path, a name)",
    )


def _fails(thing: object) -> bool:
    try:
        pickle.dumps(thing, protocol=5)
    except Exception:
        return True
    return False
