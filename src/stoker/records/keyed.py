"""Packed records by key that act like the dict they were."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

from stoker.records.fixed import Fixed
from stoker.records.hashing import stable_hash
from stoker.records.listed import PackedList
from stoker.records.table import Table
from stoker.sizes import in_words

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class PackedDict(Fixed, Mapping[K, V_co]):
    """Keys and records in flat buffers; `stoker.packed` makes it. It acts like the dict.

    The order is that of the dict. What `PackedList` says of records holds for these, and for
    keys. A key that is not equal to itself, such as NaN, is listed but not found.

    Attributes:
        nbytes: The size of the buffers in bytes.
    """

    __slots__ = ("__weakref__", "_keys", "_table", "_values")
    __hash__ = None  # type: ignore[assignment]  # As of a dict.

    def __init__(self, keys: PackedList[K], values: PackedList[V_co], table: Table) -> None:
        self._keys, self._values, self._table = keys, values, table

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, key: K) -> V_co:
        place = self._place(key)
        if place is None:
            raise KeyError(key)
        record: V_co = self._values.at(place)
        return record

    def __contains__(self, key: object) -> bool:
        return self._place(key) is not None

    def _place(self, key: object) -> int | None:
        hashed = stable_hash(key)
        if hashed is None:
            return None
        at = self._keys.at
        for place in self._table.places(hashed):
            if at(place) == key:
                return place
        return None

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._keys)

    def values(self) -> ValuesView[V_co]:
        """The records, in order."""
        return _Values(self)

    def items(self) -> ItemsView[K, V_co]:
        """Pairs of key and record, in order."""
        return _Items(self)

    def packed_values(self) -> PackedList[V_co]:
        """The records as a packed list; nothing is copied."""
        return self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(
            key in other and other[key] == record for key, record in self.items()
        )

    def __repr__(self) -> str:
        return f"<packed dict: {len(self):,} records, {in_words(self.nbytes)}>"

    @property
    def nbytes(self) -> int:
        """See the class."""
        return self._keys.nbytes + self._values.nbytes + self._table.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedDict, (self._keys, self._values, self._table)


class _Values(ValuesView[Any]):
    _mapping: PackedDict[Any, Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping.packed_values())

    def __reversed__(self) -> Iterator[Any]:
        records: Iterator[Any] = reversed(self._mapping.packed_values())
        return records

    def __contains__(self, record: object) -> bool:
        return record in self._mapping.packed_values()


class _Items(ItemsView[Any, Any]):
    _mapping: PackedDict[Any, Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._mapping, self._mapping.packed_values(), strict=True)

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        records = reversed(self._mapping.packed_values())
        return zip(reversed(self._mapping), records, strict=True)
