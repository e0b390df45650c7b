"""The user's loader with another number of workers, in this process."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

import stoker
from stoker.tuning.rebuild import with_workers

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

DATA = TensorDataset(torch.arange(10))
KINDS: list[type[DataLoader[Any]]] = [DataLoader, stoker.DataLoader]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Renamed(DataLoader[Any]):
    """Its constructor can't be read from attributes, and it keeps what it was given."""

    def __init__(self, path: str, **more: Any) -> None:
        super().__init__(DATA, **more)
        self.secret = path


class Extended(DataLoader[Any]):
    def __init__(self, *args: Any, scale: float = 1.0, **more: Any) -> None:
        super().__init__(*args, **more)
        self.scale = scale


class PassesOn(DataLoader[Any]):
    def __init__(self, dataset: Any, scale: float = 1.0, **more: Any) -> None:
        super().__init__(dataset, **more)
        self.scale = scale


def batches(loader: DataLoader[Any]) -> list[Any]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return [torch.as_tensor(b[0] if isinstance(b, list) else b).tolist() for b in loader]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"shuffle": True, "batch_size": 2},
        {"sampler": [3, 1, 2]},
        {"batch_sampler": BatchSampler(SequentialSampler(DATA), 4, False)},
        {"batch_size": 2, "collate_fn": len},
    ],
    ids=lambda arguments: "-".join(arguments) or "plain",
)
def test_the_batches_are_the_same(kind: type[DataLoader[Any]], arguments: dict[str, Any]) -> None:
    loader = kind(DATA, **arguments)
    rebuilt = with_workers(loader, 0)
    assert type(rebuilt) is kind
    assert batches(rebuilt) == batches(loader)
    assert with_workers(loader, 3).num_workers == 3
    assert len(with_workers(loader, 3)) == len(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterable_data_set(kind: type[DataLoader[Any]]) -> None:
    loader = kind(Stream(), batch_size=2)
    assert batches(with_workers(loader, 0)) == batches(loader)
    assert with_workers(loader, 2).num_workers == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_needs_workers_is_left_out_without_them(kind: type[DataLoader[Any]]) -> None:
    loader = kind(
        DATA,
        num_workers=2,
        prefetch_factor=5,
        persistent_workers=True,
        multiprocessing_context="spawn",
        timeout=7,
    )
    none = with_workers(loader, 0)
    assert (none.num_workers, none.persistent_workers, none.timeout) == (0, False, 0)
    assert none.prefetch_factor is None
    assert batches(none) == [[number] for number in range(10)]
    four = with_workers(loader, 4)
    assert (four.num_workers, four.persistent_workers, four.timeout) == (4, True, 7)
    assert four.prefetch_factor == 5
    assert four.multiprocessing_context.get_start_method() == "spawn"


def test_a_loader_without_workers_gets_torchs_prefetching_with_them() -> None:
    assert with_workers(DataLoader(DATA), 2).prefetch_factor == 2


def test_a_subclass_that_shows_its_arguments_is_built_anew() -> None:
    loader = PassesOn(DATA, scale=3.0, batch_size=5)
    rebuilt = with_workers(loader, 2)
    assert isinstance(rebuilt, PassesOn)
    assert rebuilt is not loader
    assert (rebuilt.scale, rebuilt.batch_size, rebuilt.num_workers) == (3.0, 5, 2)


@pytest.mark.parametrize("loader", [Renamed("x", batch_size=5), Extended(DATA, batch_size=5)])
def test_any_other_subclass_is_changed_in_place(loader: DataLoader[Any]) -> None:
    changed = with_workers(loader, 2)
    assert changed is loader
    assert (changed.num_workers, changed.prefetch_factor, changed.batch_size) == (2, 2, 5)
    back = with_workers(loader, 0)
    assert (back.num_workers, back.prefetch_factor, back.persistent_workers) == (0, None, False)
    assert len(list(back)) == 2


def test_in_place_what_needs_workers_goes_too() -> None:
    loader = Renamed(
        "x", num_workers=2, persistent_workers=True, timeout=7, multiprocessing_context="spawn"
    )
    none = with_workers(loader, 0)
    assert none.multiprocessing_context is None
    assert len(list(none)) == 10
