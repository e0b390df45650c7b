"""The same seed gives the same indices in the same batches as torch, epoch after epoch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import stoker
from tests.contract.methods import many_workers

STOCK = torch.utils.data.DataLoader
LENGTH = 22


class Indices(Dataset[int]):
    """Sample i is i; nothing is drawn."""

    def __init__(self, length: int = LENGTH) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return int(index)


class Own(Sampler[int]):
    """A sampler that draws from torch's global generator as it goes."""

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(LENGTH, ())) for _ in range(LENGTH))

    def __len__(self) -> int:
        return LENGTH


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(77)


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": lambda: {"batch_size": 4},
    "one by one": dict,
    "shuffle": lambda: {"batch_size": 4, "shuffle": True},
    "shuffle, drop_last": lambda: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": generator()},
    "generator, in order": lambda: {"batch_size": 4, "generator": generator()},
    "no batches": lambda: {"batch_size": None, "shuffle": True},
    "no batches, generator": lambda: {
        "batch_size": None,
        "shuffle": True,
        "generator": generator(),
    },
    "random": lambda: {"batch_size": 5, "sampler": RandomSampler(Indices())},
    "random, generator": lambda: {
        "batch_size": 5,
        "sampler": RandomSampler(Indices(), generator=generator()),
    },
    "two generators": lambda: {
        "sampler": RandomSampler(Indices(), generator=generator()),
        "generator": generator(),
    },
    "replacement": lambda: {
        "batch_size": 5,
        "sampler": RandomSampler(Indices(), replacement=True, num_samples=70),
    },
    "more than there are": lambda: {
        "batch_size": 5,
        "sampler": RandomSampler(Indices(), num_samples=50),
    },
    "subset": lambda: {"batch_size": 3, "sampler": SubsetRandomSampler(range(3, 17))},
    "weighted": lambda: {
        "batch_size": 4,
        "sampler": WeightedRandomSampler(range(1, LENGTH + 1), 30),
    },
    "weighted, generator": lambda: {
        "batch_size": 4,
        "sampler": WeightedRandomSampler([1.0] * LENGTH, 30, generator=generator()),
    },
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(Indices()), 4, drop_last=True)
    },
    "list of batches": lambda: {"batch_sampler": [[1], [2, 3], [3, 3, 4]]},
    "list of indices": lambda: {"sampler": [4, 2, 2, 9], "batch_size": 3},
    "sequential": lambda: {"sampler": SequentialSampler(Indices()), "batch_size": 6},
    "drawing as it goes": lambda: {"sampler": Own(), "batch_size": 4},
    "lists": lambda: {"batch_size": 4, "collate_fn": list, "shuffle": True},
}

every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def run(kind: Any, options: dict[str, Any], epochs: int = 3, leave: bool = False) -> Any:
    """Indices of each epoch, and torch's random state after it."""
    torch.manual_seed(2024)
    random.seed(1)
    made = kind(Indices(), **options)
    seen = []
    for _ in range(epochs):
        indices = []
        for number, batch in enumerate(made):
            indices.append(torch.as_tensor(batch).tolist())
            if leave and number == 1:
                break
        seen.append((indices, torch.get_rng_state().tolist(), random.getstate()))
    return seen


def with_workers(options: dict[str, Any], number: int, **more: Any) -> dict[str, Any]:
    if number:
        options = {**options, "num_workers": number, "multiprocessing_context": "fork", **more}
    return options


@many_workers
@every_option
@pytest.mark.parametrize(
    ("num_workers", "persistent"), [(0, False), (1, False), (3, False), (2, True)]
)
def test_indices_and_random_state_are_those_of_torchs_loader_with_workers(
    options: Callable[[], dict[str, Any]], num_workers: int, persistent: bool
) -> None:
    stock = with_workers(options(), max(1, num_workers), persistent_workers=persistent)
    ours = with_workers(options(), num_workers, persistent_workers=persistent)
    assert run(stoker.DataLoader, ours) == run(STOCK, stock)


@every_option
def test_indices_are_those_of_torchs_loader_in_process(
    options: Callable[[], dict[str, Any]],
) -> None:
    ours, stock = (run(kind, options()) for kind in (stoker.DataLoader, STOCK))
    assert [indices for indices, *_ in ours] == [indices for indices, *_ in stock]
    assert [states for _, *states in ours] == [states for _, *states in stock]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", ["shuffle", "generator", "no batches", "random", "in order"])
def test_epochs_that_are_left_early_are_those_of_torch(name: str, persistent: bool) -> None:
    stock = with_workers(OPTIONS[name](), 2, persistent_workers=persistent)
    ours = with_workers(OPTIONS[name](), 2, persistent_workers=persistent)
    assert run(stoker.DataLoader, ours, leave=True) == run(STOCK, stock, leave=True)


@many_workers
@settings(max_examples=25)
@given(
    length=st.integers(1, 40),
    batch_size=st.one_of(st.none(), st.integers(1, 9)),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    num_workers=st.integers(0, 3),
    own_generator=st.booleans(),
    persistent=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)
def test_indices_are_torchs_for_any_settings(
    length: int,
    batch_size: int | None,
    shuffle: bool,
    drop_last: bool,
    num_workers: int,
    own_generator: bool,
    persistent: bool,
    seed: int,
) -> None:
    seen = []
    for kind in (STOCK, stoker.DataLoader):
        torch.manual_seed(seed)
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "drop_last": drop_last and batch_size is not None,
            "generator": torch.Generator().manual_seed(seed) if own_generator else None,
        }
        # torch's order does not depend on its workers, which take their time to start
        if kind is stoker.DataLoader and num_workers:
            options = with_workers(options, num_workers, persistent_workers=persistent)
        made = kind(Indices(length), **options)
        first = [torch.as_tensor(batch).tolist() for batch in made]
        state = torch.get_rng_state().tolist()
        second = [torch.as_tensor(batch).tolist() for batch in made]
        drawn_between = persistent and num_workers > 0
        seen.append((first, state, None if drawn_between and shuffle else second, len(made)))
        del made
    if seen[1][2] is None:  # persistent workers draw no new base seed, as in torch
        seen = [(*x[:2], None, x[3]) for x in seen]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loaders_that_take_turns_draw_in_torchs_sequence(num_workers: int) -> None:
    """A training and a validation loader, begun one inside the other."""
    seen = []
    for kind in (STOCK, stoker.DataLoader):
        torch.manual_seed(5)
        options = with_workers({"batch_size": 4, "shuffle": True}, num_workers)
        training, validation = kind(Indices(), **options), kind(Indices(9), **options)
        indices = []
        for number, batch in enumerate(training):
            indices.append(batch.tolist())
            if number == 2:
                indices += [inner.tolist() for inner in validation]
        seen.append((indices, torch.get_rng_state().tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "drawing as it goes"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_the_caller_draws_after_iter_is_what_it_draws_with_torchs_workers(
    name: str, num_workers: int
) -> None:
    """The order is drawn by iter() itself, for any number of workers."""
    seen = []
    for kind, number in ((STOCK, 2), (stoker.DataLoader, num_workers)):
        torch.manual_seed(9)
        iterator = iter(kind(Indices(), **with_workers(OPTIONS[name](), number)))
        drawn = float(torch.rand(()))
        seen.append((drawn, [torch.as_tensor(batch).tolist() for batch in iterator]))
        del iterator
    assert seen[0] == seen[1]


def test_base_seeds_are_torchs() -> None:
    seeds = []
    for kind in (STOCK, stoker.DataLoader):
        torch.manual_seed(5)
        made = kind(Indices(4), num_workers=1, multiprocessing_context="fork")
        seeds.append([iter(made)._base_seed for _ in range(3)])
    assert seeds[0] == seeds[1]
