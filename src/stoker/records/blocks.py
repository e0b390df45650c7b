"""Blocks: some tens of MiB of records each, in two flat arrays at most.

What is read of a block is its bytes. No Python object lies among them, so no reference count is
written to there, and no page of a forked copy becomes private. Blocks never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from stoker.records.own_names import Names, reader_of

Array = npt.NDArray[Any]


def flat_view(array: Array) -> memoryview:
    """An array to be read item by item as Python's numbers, which is twice as fast as by numpy."""
    return memoryview(array)  # type: ignore[arg-type,unused-ignore]  # Since Python 3.12 it's none.


class Block:
    """A run of records. They are counted from 0 within it.

    Attributes:
        read: Gives a new object, equal to a record, for its number.
        arrays: What the records lie in.
    """

    __slots__ = ("__weakref__", "arrays", "read")
    read: Callable[[int], Any]

    def __init__(self, *arrays: Array) -> None:
        for array in arrays:
            array.flags.writeable = False
        self.arrays = arrays

    def __len__(self) -> int:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.arrays

    def part(self, first: int, end: int) -> Block:
        """The records from the first to before the end, over the same memory where it can be."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in self.arrays)


class Numbers(Block):
    """Each an item of one array of ints, floats or bools."""

    __slots__ = ()

    def __init__(self, items: Array) -> None:
        super().__init__(items)
        self.read = flat_view(items).__getitem__

    def __len__(self) -> int:
        return len(self.arrays[0])

    def part(self, first: int, end: int) -> Block:
        return Numbers(self.arrays[0][first:end])


class Pieces(Block):
    """Each a piece of the first array.

    Args:
        data: All bytes, one record after the other.
        starts: Where each begins, and at last where the last one ends: one more than records.
    """

    __slots__ = ()

    def __init__(self, data: Array, starts: Array) -> None:
        super().__init__(data, starts)
        self.read = self._reader(flat_view(data), flat_view(starts))

    def __len__(self) -> int:
        return len(self.arrays[1]) - 1

    def part(self, first: int, end: int) -> Block:
        data, starts = self.arrays
        inside = starts[first : end + 1]
        _, arguments = self.__reduce__()
        return type(self)(data[inside[0] : inside[-1]], inside - inside[0], *arguments[2:])

    def _reader(self, data: memoryview, starts: memoryview) -> Callable[[int], Any]:
        raise NotImplementedError


class Texts(Pieces):
    """Strings, lone surrogates included."""

    __slots__ = ()

    def _reader(self, data: memoryview, starts: memoryview) -> Callable[[int], Any]:
        return lambda at: str(data[starts[at] : starts[at + 1]], "utf-8", "surrogatepass")


class Bytes(Pieces):
    """Byte strings."""

    __slots__ = ()

    def _reader(self, data: memoryview, starts: memoryview) -> Callable[[int], Any]:
        return lambda at: bytes(data[starts[at] : starts[at + 1]])


class Pickles(Pieces):
    """Whatever pickles.

    Args:
        data: See above; each piece is a pickle.
        starts: See above.
        names: What pickles name of the main program.
    """

    __slots__ = ("names",)

    def __init__(self, data: Array, starts: Array, names: Names) -> None:
        self.names = names
        super().__init__(data, starts)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.arrays, self.names)

    def _reader(self, data: memoryview, starts: memoryview) -> Callable[[int], Any]:
        load = reader_of(self.names)
        return lambda at: load(data[starts[at] : starts[at + 1]])
