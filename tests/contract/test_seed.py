"""``seed=``: a generator of the loader's own, and the global ones untouched."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import stoker
from tests.contract.alike import assert_same
from tests.contract.methods import many_workers
from tests.contract.test_random_state import pending_gaussians, states
from tests.datasets import Drawing, DrawingStream, Plain, draw_all

LENGTH = 24


class Shuffled(Sampler[int]):
    """Draws its order from a global generator, all at once or as it goes."""

    def __init__(self, draw: Any, lazily: bool) -> None:
        self.draw = draw
        self.lazily = lazily

    def __iter__(self) -> Iterator[int]:
        if self.lazily:
            return (int(self.draw() * LENGTH) for _ in range(LENGTH))
        return iter(sorted(range(LENGTH), key=lambda _: float(self.draw())))

    def __len__(self) -> int:
        return LENGTH


class Mixed(Sampler[int]):
    """Draws from all three global generators, normal numbers too."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(LENGTH):
            total = float(torch.randn(())) + random.gauss(0, 1) + np.random.randn()
            yield int(abs(total) * 1000) % LENGTH

    def __len__(self) -> int:
        return LENGTH


def torch_rand() -> float:
    return float(torch.rand(()))


def numpy_rand() -> float:
    return float(np.random.rand())


SAMPLERS = {
    "none": dict,
    "shuffle": lambda: {"shuffle": True},
    "random": lambda: {"sampler": RandomSampler(range(LENGTH))},
    "replacement": lambda: {"sampler": RandomSampler(range(LENGTH), replacement=True)},
    "more than there are": lambda: {"sampler": RandomSampler(range(LENGTH), num_samples=31)},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(5, LENGTH))},
    "weighted": lambda: {"sampler": WeightedRandomSampler(range(1, LENGTH + 1), LENGTH)},
    "torch": lambda: {"sampler": Shuffled(torch_rand, lazily=False)},
    "python": lambda: {"sampler": Shuffled(random.random, lazily=False)},
    "numpy": lambda: {"sampler": Shuffled(numpy_rand, lazily=False)},
    "torch, lazily": lambda: {"sampler": Shuffled(torch_rand, lazily=True)},
    "python, lazily": lambda: {"sampler": Shuffled(random.random, lazily=True)},
    "numpy, lazily": lambda: {"sampler": Shuffled(numpy_rand, lazily=True)},
    "mixed": lambda: {"sampler": Mixed()},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(Mixed(), 4, False)},
    "batch generator": lambda: {"batch_sampler": _RandomBatches()},
    "single": lambda: {"sampler": Mixed(), "batch_size": None},
}


class _RandomBatches(Sampler[list[int]]):
    """Batches of random sizes."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([random.randrange(LENGTH)] * int(np.random.randint(1, 5)) for _ in range(6))


every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())


def make(sampler: Any, num_workers: int = 0, persistent: bool = False, **options: Any) -> Any:
    given = {"batch_size": 4, **sampler(), **options}
    if "batch_sampler" in given:
        del given["batch_size"]
    if num_workers:
        given["multiprocessing_context"] = "fork"
    return stoker.DataLoader(
        Drawing(LENGTH), num_workers=num_workers, persistent_workers=persistent, **given
    )


def drawing_beside(samples: Any) -> Any:
    """A collate function that draws too."""
    return samples, draw_all()


@every_sampler
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_global_generators_are_untouched(sampler: Any, num_workers: int) -> None:
    pending_gaussians()
    before = states()
    made = make(sampler, num_workers, seed=5, collate_fn=drawing_beside)
    assert states() == before
    for _ in range(2):
        iterator = iter(made)
        assert states() == before
        for _ in iterator:
            assert states() == before
    assert states() == before


@every_sampler
@many_workers
def test_batches_follow_from_the_seed_alone(sampler: Any) -> None:
    """For any number of workers, persistent or not, whatever the global generators are."""
    runs = []
    for num_workers, persistent in [(0, False), (1, False), (3, False), (2, True)]:
        torch.seed()
        random.seed()
        np.random.seed()
        made = make(sampler, num_workers, persistent, seed=7, collate_fn=drawing_beside)
        runs.append([list(made) for _ in range(3)])
        del made
    for run in runs[1:]:
        assert_same(run, runs[0])


@every_sampler
def test_epochs_and_seeds_differ(sampler: Any) -> None:
    epochs = [list(made) for seed in (1, 2) for made in [make(sampler, seed=seed)] * 2]
    for i, one in enumerate(epochs):
        for other in epochs[:i]:
            assert not drawn(one) & drawn(other)


def drawn(epoch: list[Any]) -> set[float]:
    """The numbers that the samples of an epoch drew from numpy."""
    return {x for batch in epoch for x in torch.as_tensor(batch[4]).flatten().tolist()}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_seed_is_a_generator_with_that_seed(num_workers: int) -> None:
    seeded = make(SAMPLERS["shuffle"], num_workers, seed=13)
    generator = torch.Generator().manual_seed(13)
    given = make(SAMPLERS["shuffle"], num_workers, generator=generator)
    for _ in range(3):
        assert_same(list(seeded), list(given))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_seed_gives_torchs_order_for_that_generator(num_workers: int) -> None:
    seeded = make(SAMPLERS["shuffle"], num_workers, seed=13)
    options: dict[str, Any] = {"multiprocessing_context": "fork"} if num_workers else {}
    stock = torch.utils.data.DataLoader(
        Plain(LENGTH, (1,)),
        batch_size=4,
        shuffle=True,
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(13),
        **options,
    )
    for _ in range(3):
        order = torch.cat([batch[0] for batch in seeded])
        assert torch.equal(order, torch.cat([batch[:, 0] for batch in stock]).long())


def test_an_iterable_with_a_seed_leaves_the_global_generators() -> None:
    before = states()
    make_one = functools.partial(
        stoker.DataLoader,
        DrawingStream(12),
        batch_size=4,
        seed=3,
        num_workers=2,
        multiprocessing_context="fork",
    )
    first, again = list(make_one()), list(make_one())
    assert states() == before
    assert_same(first, again)


def test_a_sampler_is_not_begun_before_it_is_wanted() -> None:
    """With a seed, also what ``__iter__`` itself draws comes from the loader's own state."""
    before = states()
    iter(make(SAMPLERS["python"], seed=1))
    assert states() == before


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="seed"):
        stoker.DataLoader(Plain(3), seed=seed)


@pytest.mark.parametrize("seed", [0, 2**64 - 1, np.int64(5)])
def test_every_seed_in_range_serves(seed: Any) -> None:
    made = stoker.DataLoader(Drawing(6), shuffle=True, seed=seed)
    assert made.seed == seed
    assert type(made.seed) is int
    assert_same(list(made), list(stoker.DataLoader(Drawing(6), shuffle=True, seed=seed)))


def test_a_seed_and_another_generator_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="seed option is mutually exclusive with generator"):
        stoker.DataLoader(Plain(3), seed=1, generator=torch.Generator().manual_seed(2))
    stoker.DataLoader(Plain(3), seed=1, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("given", ["seed", "generator"])
@pytest.mark.parametrize("left_after", [1, 5, 9, 10])
@pytest.mark.parametrize("num_workers", [1, 2, "auto"])
def test_an_epoch_that_was_left_draws_no_more_for_being_run_ahead(
    given: str, left_after: int, num_workers: Any
) -> None:
    """A random sampler draws once more at its end, which workers may reach before the consumer."""

    def epochs(num_workers: Any) -> list[list[int]]:
        source: Any = 7 if given == "seed" else torch.Generator().manual_seed(7)
        made = stoker.DataLoader(
            Plain(20, (1,)), 2, shuffle=True, num_workers=num_workers, **{given: source}
        )
        seen = []
        for _ in range(3):
            iterator = iter(made)
            seen.append([int(x) for _ in range(left_after) for x in next(iterator)])
            if num_workers == "auto":
                iterator.feed.resize(2, next(iterator, torch.zeros(1)) if left_after < 9 else None)
            elif num_workers:
                feed = iterator.feed
                while any(feed._dispatcher.running(worker) for worker in range(num_workers)):
                    feed._handle(feed._pool.wait(10))
                feed._assign()
            del iterator
        return seen

    assert epochs(num_workers) == epochs(0)
