"""Hashes of keys that are the same in every process.

Python's own of strings and byte strings differ from one interpreter to the next, so a table of
them could not be sent. Keys that are equal have equal hashes, across types as in a dict.
"""

from __future__ import annotations

from numbers import Number
from zlib import crc32

MASK = (1 << 64) - 1
_NONE = 0x5E7C


def stable_hash(key: object) -> int | None:
    """A number of 64 bits; None for a kind of key that has none.

    Raises:
        TypeError: The key can't be hashed at all.
    """
    if type(key) is str:
        return crc32(key.encode("utf-8", "surrogatepass"))
    own = hash(key)  # May raise.
    if key is None:
        return _NONE
    if isinstance(key, Number):
        return own & MASK  # Python defines it across its numeric types, and does not vary it.
    if isinstance(key, str) and own == str.__hash__(key):
        return crc32(str.encode(key, "utf-8", "surrogatepass"))
    if isinstance(key, bytes) and own == bytes.__hash__(key):
        return crc32(key)
    if isinstance(key, tuple) and own == tuple.__hash__(key):
        return _of_tuple(key)
    return None


def _of_tuple(key: tuple[object, ...]) -> int | None:
    mixed = len(key) + 0x345678
    for item in key:
        own = stable_hash(item)
        if own is None:
            return None
        mixed = (mixed * 1_000_003 ^ own) & MASK
    return mixed
