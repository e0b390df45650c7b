"""Seeds: the same for ever, and different where they must be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order.keys import EpochKey

GOLDEN_SAMPLES = ["0x3c2577fc5358816b", "0x3c2577fcd7642910", "0x3c2577fcd358816b"]
GOLDEN_BATCHES = ["0x5b643055b42f2aca", "0x5b6430558631f105", "0x5b643055342f2aca"]
GOLDEN_SHARDS = ["0xa81cfa5c83db957", "0x56608b55829698ab", "0x720de4b9ba14bb8d"]
GOLDEN_SAMPLER = "0x7ab007e598e36e9e"
GOLDEN_ZERO = "0x21fe67a3b0039657"

words = st.integers(0, 2**64 - 1)


def test_the_seeds_are_what_they_were_in_every_release() -> None:
    key = EpochKey(0x0123456789ABCDEF, epoch=3)
    assert [hex(key.sample(p)) for p in (0, 1, 2**31)] == GOLDEN_SAMPLES
    assert [hex(key.batch(n)) for n in (0, 1, 2**31)] == GOLDEN_BATCHES
    assert [hex(key.shard(s, t)) for s, t in ((0, 0), (0, 1), (1, 0))] == GOLDEN_SHARDS
    assert hex(key.sampler()) == GOLDEN_SAMPLER
    assert hex(EpochKey(0).sample(0)) == GOLDEN_ZERO


@given(base=words, epoch=st.integers(0, 2**31), position=st.integers(0, 2**32 - 1))
def test_seeds_follow_from_key_and_position_alone(base: int, epoch: int, position: int) -> None:
    one, other = EpochKey(base, epoch), EpochKey(base, epoch)
    one.sample(position + 1)
    for kind in ("sample", "batch"):
        seed = getattr(one, kind)(position)
        assert seed == getattr(other, kind)(position)
        assert 0 <= seed < 2**63


@settings(max_examples=10)
@given(base=words, epoch=st.integers(0, 1000), start=st.integers(0, 2**32 - 20_000))
def test_no_two_positions_share_what_a_generator_keeps_of_a_seed(
    base: int, epoch: int, start: int
) -> None:
    key = EpochKey(base, epoch)
    for seed_of in (key.sample, key.batch):
        kept = {seed_of(position) & 0xFFFFFFFF for position in range(start, start + 20_000)}
        assert len(kept) == 20_000


@given(one=st.tuples(words, st.integers(0, 100)), other=st.tuples(words, st.integers(0, 100)))
def test_epochs_and_base_seeds_differ(one: tuple[int, int], other: tuple[int, int]) -> None:
    def first(key: EpochKey) -> tuple[int, ...]:
        return (*map(key.sample, range(8)), key.batch(0), key.shard(0, 0), key.sampler())

    different = set(first(EpochKey(*one))).isdisjoint(first(EpochKey(*other)))
    assert different == (one != other)


def test_neighbouring_epochs_do_not_share_seeds() -> None:
    keys = [EpochKey(base, epoch) for base in range(5) for epoch in range(5)]
    seeds = [key.sample(position) & 0xFFFFFFFF for key in keys for position in range(200)]
    # 5,000 words of 32 bits: 3 expected to meet in 1,000 such tests
    assert len(set(seeds)) >= len(seeds) - 2


@pytest.mark.parametrize("epoch", [0, 7])
def test_samples_batches_shards_and_sampler_do_not_share_seeds(epoch: int) -> None:
    key = EpochKey(11, epoch)
    seeds = [key.sampler()]
    for n in range(100):
        seeds += [key.sample(n), key.batch(n), key.shard(n, 0), key.shard(0, n + 1)]
    assert len(set(seeds)) == len(seeds)
