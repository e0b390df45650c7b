"""Where a key is: a hash table in two flat arrays.

``starts[b]`` to ``starts[b + 1]`` are the entries of bucket b, and each is the place of a key.
The keys themselves are not here; whoever looks compares them.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from stoker.records.blocks import Array, flat_view
from stoker.records.hashing import MASK

_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: spreads neighbouring hashes (Knuth, volume 3, section 6.4)."""


class Table:
    """See the module.

    Args:
        starts: One more than buckets, of which there are a power of two.
        entries: One for each key.
    """

    __slots__ = ("_shift", "_views", "arrays")

    def __init__(self, starts: Array, entries: Array) -> None:
        for flat in (starts, entries):
            flat.flags.writeable = False
        self.arrays = (starts, entries)
        self._views = (flat_view(starts), flat_view(entries))
        self._shift = 65 - (len(starts) - 1).bit_length()

    @classmethod
    def of(cls, hashes: array[int]) -> Table:
        """For keys with these hashes, each of 64 bits, in order."""
        count = len(hashes)
        bits = max(1, (count - 1).bit_length())
        mixed = np.frombuffer(hashes, np.uint64) * np.uint64(_GOLDEN)
        buckets = (mixed >> np.uint64(64 - bits)).astype(np.int64)
        del mixed
        kind = np.uint32 if count < 1 << 32 else np.uint64
        entries = np.argsort(buckets, kind="stable").astype(kind)
        starts = np.zeros((1 << bits) + 1, kind)
        np.cumsum(np.bincount(buckets, minlength=1 << bits), out=starts[1:])
        return cls(starts, entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, self.arrays

    def places(self, hashed: int) -> memoryview:
        """Places of all keys that have this hash, and of few others."""
        starts, entries = self._views
        bucket = (hashed * _GOLDEN & MASK) >> self._shift
        return entries[starts[bucket] : starts[bucket + 1]]

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return sum(flat.nbytes for flat in self.arrays)
