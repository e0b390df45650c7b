"""Which random numbers a sample gets: seeds from (epoch key, position) and nothing else.

Pure arithmetic on 64-bit words. The words are mixed by splitmix64's finalizer
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

torch's CPU generator keeps only the low 32 bits of a seed, so these are a keyed
permutation of the position: no two samples of an epoch, and no two batches, share them.
"""

from __future__ import annotations

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_SAMPLE, _BATCH, _SHARD, _SAMPLER, _EPOCH = (0x53, 0x42, 0x49, 0x4F, 0x45)


def mix(word: int) -> int:
    """Returns 64 well-mixed bits of a 64-bit word."""
    word = (word + 0x9E3779B97F4A7C15) & _M64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _M64
    return word ^ (word >> 31)


def _permute(position: int, key: int) -> int:
    """A permutation of the 32-bit words, chosen by ``key`` (murmur3's finalizer, twice)."""
    word = (position ^ key) & _M32
    for salt in (key >> 32, key >> 16):
        word = ((word ^ (word >> 16)) * 0x85EBCA6B) & _M32
        word = ((word ^ (word >> 13)) * 0xC2B2AE35) & _M32
        word = ((word ^ (word >> 16)) + salt) & _M32
    return word


class EpochKey:
    """Everything random in one epoch follows from this.

    Args:
        base_seed: The base seed of the iterator (64 bits), drawn as torch draws it.
        epoch: How many epochs the same iterator has begun before (persistent workers).
    """

    __slots__ = ("_batches", "_sampler", "_samples", "_shards", "base_seed", "epoch")

    def __init__(self, base_seed: int, epoch: int = 0) -> None:
        self.base_seed = base_seed
        self.epoch = epoch
        root = mix(mix(base_seed & _M64) ^ mix((_EPOCH << 56) ^ epoch))
        self._samples = mix(root ^ _SAMPLE)
        self._batches = mix(root ^ _BATCH)
        self._shards = mix(root ^ _SHARD)
        self._sampler = mix(root ^ _SAMPLER)

    def sample(self, position: int) -> int:
        """The 64-bit seed of the sample at ``position`` (0-based) in the epoch."""
        high = mix(self._samples ^ position)
        return (high & ~_M32) | _permute(position, self._samples)

    def batch(self, number: int) -> int:
        """The 64-bit seed under which batch ``number`` (0-based) is collated."""
        high = mix(self._batches ^ number)
        return (high & ~_M32) | _permute(number, self._batches)

    def shard(self, shard: int, step: int) -> int:
        """The 64-bit seed of step ``step`` of the iterator that worker ``shard`` holds."""
        return mix(mix(self._shards ^ shard) ^ step)

    def sampler(self) -> int:
        """The 64-bit seed of a sampler that has no generator of its own."""
        return self._sampler
