"""Packed records that act like the list they were."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, SupportsIndex, TypeVar, overload

from stoker.records.blocks import Block
from stoker.records.fixed import Fixed
from stoker.sizes import in_words

T_co = TypeVar("T_co", covariant=True)


class PackedList(Fixed, Sequence[T_co]):
    """Records in flat buffers; `stoker.packed` makes it. It acts like the list of them.

    An item is a new object at each access, equal to the record and of its type: changing it does
    not change the pack. Two records that shared an object have one each. A slice is a view:
    nothing is copied. Any thread may read; a pickle holds what lies between the first and the
    last record of a view, and under protocol 5 the buffers are handed out of band.

    Attributes:
        nbytes: The size of the buffers in bytes, those that a slice shares included.
    """

    __slots__ = ("__weakref__", "_blocks", "_ends", "_places")
    __hash__ = None  # type: ignore[assignment]  # As of a list.

    def __init__(self, blocks: Sequence[Block], places: range | None = None) -> None:
        self._blocks = tuple(blocks)
        self._ends = tuple(accumulate(map(len, self._blocks)))
        self._places = range(self._ends[-1] if self._ends else 0) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> PackedList[T_co]: ...

    def __getitem__(self, index: Any) -> Any:
        try:
            place = self._places[index]
        except IndexError:
            raise IndexError("index of packed records out of range") from None
        except TypeError:
            kind = type(index).__name__
            raise TypeError(
                f"indices of packed records must be integers or slices, not {kind}"
            ) from None
        if type(place) is range:
            return PackedList(self._blocks, place)
        return self.at(place)

    def at(self, place: int) -> Any:
        """The record at a place that is known to be there, counted without regard to slicing."""
        number = bisect_right(self._ends, place)
        block = self._blocks[number]
        return block.read(place - self._ends[number] + len(block))

    def __iter__(self) -> Iterator[T_co]:
        return map(self.at, self._places)

    def __reversed__(self) -> Iterator[T_co]:
        return map(self.at, reversed(self._places))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, tuple, PackedList)):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __repr__(self) -> str:
        return f"<packed list: {len(self):,} records, {in_words(self.nbytes)}>"

    @property
    def nbytes(self) -> int:
        """See the class."""
        return sum(block.nbytes for block in self._blocks)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedList, self._looked_at()

    def _looked_at(self) -> tuple[list[Block], range]:
        """The blocks from the first to the last record of a view, and the places in them."""
        places = self._places
        if not places:
            return [], range(0)
        low, high = sorted((places[0], places[-1]))
        parts = []
        for block, end in zip(self._blocks, self._ends, strict=True):
            begin = end - len(block)
            if begin >= low and end <= high + 1:
                parts.append(block)
            elif begin <= high and end > low:
                parts.append(block.part(max(low, begin) - begin, min(high + 1, end) - begin))
        return parts, range(places.start - low, places.stop - low, places.step)
