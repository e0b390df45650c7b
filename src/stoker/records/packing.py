"""`packed`: from Python's containers of records to flat buffers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from stoker.errors import ArgumentTypeError
from stoker.records.hashing import stable_hash
from stoker.records.keyed import PackedDict
from stoker.records.listed import PackedList
from stoker.records.table import Table
from stoker.records.writing import blocks_of
from stoker.transport.fields import kind_of

K = TypeVar("K")
T = TypeVar("T")


@overload
def packed(records: Mapping[K, T]) -> PackedDict[K, T]: ...  # type: ignore[overload-overlap]


@overload
def packed(records: Iterable[T]) -> PackedList[T]: ...


def packed(records: Any) -> Any:
    """Packs records into flat buffers that workers share and nobody copies.

    Reading a Python object writes its reference count, so in a forked worker each page of a list
    of records becomes a copy of its own as it is read. Of these buffers only bytes are read.

    Args:
        records: A list, tuple, generator or other iterable of whatever pickles, iterated once; or
            a dict of such. Keys are strings, byte strings, numbers, None, or tuples of these. What
            is packed already is returned as it is.

    Returns:
        What acts like the list, a `PackedList`, or like the dict, a `PackedDict`. Records come
        out equal and of the same types, as new objects. It does not change, and pickles.

    Raises:
        NotPicklable: A record does not pickle; the error names it and the field.
        ArgumentTypeError: This is no container of records, or a key is of another kind.
    """
    if isinstance(records, (PackedList, PackedDict)):
        return records
    if isinstance(records, Mapping):
        return _keyed(records)
    _check(records)
    return PackedList(blocks_of(records, lambda index: f"records[{index}]"))


def _keyed(records: Mapping[Any, Any]) -> PackedDict[Any, Any]:
    hashes = array("Q", map(_hash_of, records))
    keys: PackedList[Any] = PackedList(blocks_of(records, lambda index: f"the key number {index}"))
    values: PackedList[Any] = PackedList(
        blocks_of(records.values(), lambda index: f"records[{keys[index]!r}]")
    )
    return PackedDict(keys, values, Table.of(hashes))


def _hash_of(key: object) -> int:
    hashed = stable_hash(key)
    if hashed is None:
        raise ArgumentTypeError(
            f"The key {key!r} is a {kind_of(key)}, which has no hash that is the same in every "
            "process",
            doing="packing a dict of records",
            change="the keys, to be strings, byte strings, numbers, None, or tuples of these "
            "(str(key), for example)",
        )
    return hashed


def _check(records: Any) -> None:
    """Refuses what is iterable and yet no list of records."""
    why = ""
    if isinstance(records, (str, bytes, bytearray)):
        why = "is one record; a list of them is packed"
    elif hasattr(records, "dtype"):
        why = "is one flat buffer already, and workers share it as it is"
    elif hasattr(records, "iloc"):
        why = "is iterated by columns; packed(table.to_dict('records')) packs its rows"
    elif isinstance(records, (set, frozenset)):
        why = "has no order that is the same in every run; packed(sorted(records)) has one"
    elif not isinstance(records, Iterable):
        why = "can't be iterated; packed(data[i] for i in range(len(data))) packs a data set"
    if why:
        raise ArgumentTypeError(
            f"packed() takes a list, another iterable or a dict of records: a {kind_of(records)} "
            + why,
            doing="packing records",
        )
