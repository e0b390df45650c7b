"""Which random numbers a sample gets: seeds from (epoch key, position) and nothing else.

Pure arithmetic on 64-bit words. A seed's high half belongs to the epoch, its low half is a
permutation of the position that the epoch chooses. torch's CPU generator and numpy's keep
only 32 bits of a seed: as these are a permutation, no two samples of an epoch, and no two
batches, share them.
"""

from __future__ import annotations

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_M63 = _M64 >> 1  # so that torch.initial_seed() fits a tensor of int64
_EPOCH = 0x45 << 56
_SAMPLE, _BATCH, _SHARD, _SAMPLER, _REPLACEMENT = (0x53, 0x42, 0x49, 0x4F, 0x52)


def mix(word: int) -> int:
    """Returns 64 well-mixed bits of a 64-bit word.

    splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    word = (word + 0x9E3779B97F4A7C15) & _M64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _M64
    return word ^ (word >> 31)


class _Seeds:
    """One seed (63 bits) for each of 2**32 positions, all different in their low 32 bits."""

    __slots__ = ("_first", "_high", "_step")

    def __init__(self, key: int) -> None:
        self._high = mix(key) & _M63 & ~_M32
        self._first = mix(key ^ 1) & _M32
        self._step = mix(key ^ 2) & _M32 | 1  # odd, so that its multiples are a permutation

    def __getitem__(self, position: int) -> int:
        return self._high | ((self._first + self._step * position) & _M32)


class EpochKey:
    """Everything random in one epoch follows from this.

    Args:
        base_seed: The base seed of the iterator (64 bits), drawn as torch draws it.
        epoch: How many epochs the same iterator has begun before (persistent workers).
    """

    def __init__(self, base_seed: int, epoch: int = 0) -> None:
        self.base_seed = base_seed
        self.epoch = epoch
        root = mix(mix(base_seed & _M64) ^ mix(_EPOCH ^ epoch))
        self._samples = _Seeds(mix(root ^ _SAMPLE))
        self._batches = _Seeds(mix(root ^ _BATCH))
        self._shards = mix(root ^ _SHARD)
        self._sampler = mix(root ^ _SAMPLER) & _M63
        self._replacements = mix(root ^ _REPLACEMENT)

    def sample(self, position: int) -> int:
        """The 63-bit seed of the sample at ``position`` (0-based) in the epoch."""
        return self._samples[position]

    def batch(self, number: int) -> int:
        """The 63-bit seed under which batch ``number`` (0-based) is collated."""
        return self._batches[number]

    def shard(self, shard: int, step: int) -> int:
        """The 63-bit seed of step ``step`` of the iterator that worker ``shard`` holds."""
        return mix(mix(self._shards ^ shard) ^ step) & _M63

    def replacement(self, position: int, attempt: int) -> int:
        """64 bits that choose what takes the place of a sample that can't be read."""
        return mix(mix(self._replacements ^ position) ^ attempt)

    def sampler(self) -> int:
        """The 63-bit seed of a sampler that has no generator of its own."""
        return self._sampler
