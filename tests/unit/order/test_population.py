"""Which indices may take the place of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from stoker.order.keys import EpochKey, mix
from stoker.order.population import Population, population_of
from stoker.workers.likeness import likeness
from tests.datasets import Plain, Stream

DATA = Plain(9)


class Mine(SequentialSampler):
    """May leave samples out."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield 0


SAMPLERS: dict[str, tuple[Any, list[Any] | None]] = {
    "sequential": (SequentialSampler(DATA), list(range(9))),
    "random": (RandomSampler(DATA), list(range(9))),
    "random of fewer": (RandomSampler(range(4)), list(range(4))),
    "subset": (SubsetRandomSampler([5, 3, 8]), [5, 3, 8]),
    "weighted": (WeightedRandomSampler([0, 1, 0, 2], 7), [1, 3]),
    "a rank's": (DistributedSampler(DATA, num_replicas=2, rank=1), list(range(9))),
    "list": ([7, 7, 2], [7, 2]),
    "range": (range(3, 6), [3, 4, 5]),
    "keys": (("a", "b"), ["a", "b"]),
    "the user's": (Endless(), None),
    "a subclass": (Mine(DATA), None),
    "nothing": ([], None),
    "without a length": (SequentialSampler(Stream(3)), None),
    "batches": (BatchSampler(SequentialSampler(DATA), 3, False), None),
}


def drawn(population: Population, count: int = 2000) -> Counter[Any]:
    return Counter(population.draw(mix(n)) for n in range(count))


@pytest.mark.parametrize(("sampler", "indices"), SAMPLERS.values(), ids=SAMPLERS)
def test_what_a_sampler_draws_from(sampler: Any, indices: list[Any] | None) -> None:
    found = population_of(sampler, batched=False)
    if indices is None:
        assert found is None
        return
    assert found is not None
    assert set(drawn(found)) == set(indices)


def test_batches_are_looked_into() -> None:
    found = population_of(BatchSampler(SubsetRandomSampler([5, 3]), 2, False), batched=True)
    assert found is not None
    assert set(drawn(found)) == {3, 5}
    assert population_of([[1, 2]], batched=True) is None
    assert population_of(BatchSampler(Endless(), 2, False), batched=True) is None


@pytest.mark.parametrize("name", [name for name, case in SAMPLERS.items() if case[1]])
def test_what_it_is_made_from_is_the_same_the_next_time(name: str) -> None:
    """Workers are started anew when it is another."""
    one, other = (population_of(SAMPLERS[name][0], batched=False) for _ in range(2))
    assert one is not None
    assert other is not None
    assert likeness(*one.parts) == likeness(*other.parts)
    assert likeness(*one.parts) != likeness(*Population(range(77)).parts)


def test_weights_are_kept() -> None:
    found = population_of(WeightedRandomSampler([1.0, 3.0], 5), batched=False)
    assert found is not None
    assert drawn(found, 4000)[1] / 4000 == pytest.approx(0.75, abs=0.03)


def test_all_are_as_likely() -> None:
    counts = drawn(Population(range(10)), 10_000)
    assert min(counts.values()) > 800


@given(
    st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1]), st.integers(1, 50), st.booleans()
)
def test_any_bits_choose_one(bits: int, count: int, weighted: bool) -> None:
    weights = torch.arange(count, 0, -1) if weighted else None
    assert 0 <= Population(range(count), weights).draw(bits) < count


def test_what_is_drawn_follows_from_epoch_position_and_attempt() -> None:
    key = EpochKey(3)
    seen = {key.replacement(p, a) for p in range(50) for a in range(10)}
    assert len(seen) == 500
    assert EpochKey(3).replacement(7, 2) == key.replacement(7, 2)
    assert EpochKey(3, 1).replacement(7, 2) != key.replacement(7, 2)
