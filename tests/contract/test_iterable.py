"""Iterable data sets mean what they mean in torch: an iterator a worker, in turn."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from tests.contract.alike import assert_same
from tests.contract.datasets import EndsOnce, Parts
from tests.contract.methods import loader, many_workers, seeded_epochs
from tests.datasets import DrawingStream, Stream

FORK = multiprocessing.get_context("fork")


def epochs_of(kind: Any, dataset: Any, count: int = 2, **options: Any) -> list[Any]:
    if options.get("num_workers"):
        options["multiprocessing_context"] = "fork"
    made = kind(dataset, **options)
    return [list(made) for _ in range(count)]


@many_workers
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize(
    "lengths",
    [
        (4,),
        (4, 4),
        (1, 7),
        (7, 1),
        (0, 5),
        (5, 0, 2),
        (0, 0),
        (3, 1, 6),
        (2, 9, 2, 5),
    ],
    ids=str,
)
def test_batches_come_from_the_workers_in_turn(
    lengths: tuple[int, ...], batch_size: int | None, persistent: bool
) -> None:
    options = {
        "num_workers": len(lengths),
        "batch_size": batch_size,
        "collate_fn": _as_it_is,
        "persistent_workers": persistent,
    }
    shards = [_chunks([(w, i) for i in range(n)], batch_size) for w, n in enumerate(lengths)]
    rounds = itertools.zip_longest(*shards)
    expected = [batch for turn in rounds for batch in turn if batch is not None]
    assert epochs_of(stoker.DataLoader, Parts(list(lengths)), **options) == [expected] * 2


def _as_it_is(samples: Any) -> Any:
    return samples


def _chunks(items: list[Any], size: int | None) -> list[Any]:
    if size is None:
        return items
    return [items[i : i + size] for i in range(0, len(items), size)]


@many_workers
@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    batch_size=st.integers(1, 5),
    drop_last=st.booleans(),
    prefetch=st.integers(1, 4),
)
def test_batches_are_torchs(
    lengths: list[int], batch_size: int, drop_last: bool, prefetch: int
) -> None:
    options = {
        "num_workers": len(lengths),
        "batch_size": batch_size,
        "drop_last": drop_last,
        "prefetch_factor": prefetch,
    }
    expected = epochs_of(torch.utils.data.DataLoader, Parts(lengths), 1, **options)
    assert_same(epochs_of(stoker.DataLoader, Parts(lengths), 1, **options), expected)


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_sharding_by_worker_info_is_torchs(num_workers: int, drop_last: bool) -> None:
    options = {"num_workers": num_workers, "batch_size": 3, "drop_last": drop_last}
    expected = epochs_of(torch.utils.data.DataLoader, Stream(25), **options)
    assert_same(epochs_of(stoker.DataLoader, Stream(25), **options), expected)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 100])
def test_an_iterator_is_not_asked_again_after_its_end(
    num_workers: int, batch_size: int | None
) -> None:
    options = {"num_workers": num_workers, "batch_size": batch_size}
    for epoch in epochs_of(stoker.DataLoader, EndsOnce(7), **options):
        samples = [x for batch in epoch for x in (batch if batch_size else [batch])]
        assert len(samples) == 7 * max(1, num_workers)


def test_large_batches_of_an_iterable_go_through_slots() -> None:
    made = loader(_Images(24), "fork", batch_size=2)
    turns = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11]]
    expected = [[i + k for i in pair] for k in (0, 12) for pair in turns]
    for _ in range(2):
        kept = list(made)
        assert [[float(row.mean()) for row in batch] for batch in kept] == expected


class _Images(Stream):
    def __iter__(self) -> Iterator[Any]:
        return (torch.full((100, 100), float(i)) for i in super().__iter__())


@pytest.mark.parametrize("at_once", [1, 3000, 6000])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_left_in_its_middle_takes_nothing_from_the_next(
    at_once: int, persistent: bool
) -> None:
    """Also where batches are so large that their requests wait in line."""
    options = {
        "num_workers": 1,
        "batch_size": at_once,
        "persistent_workers": persistent,
        "prefetch_factor": 4,
    }
    made = stoker.DataLoader(Stream(20 * at_once), multiprocessing_context="fork", **options)
    for _ in range(3):
        next(iter(made))
    numbers = torch.cat(list(made))
    assert torch.equal(numbers, torch.arange(20 * at_once))
    del made


@many_workers
def test_random_numbers_of_an_iterable_repeat_for_as_many_workers() -> None:
    make = functools.partial(loader, DrawingStream(20), "fork", 3, batch_size=2)
    assert_same(seeded_epochs(make, 2), seeded_epochs(make, 2))


class _Blocked(IterableDataset[int]):
    """Worker 0 waits for the gate before its first item."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        if info.id == 0:
            assert self.gate.wait(30)
        yield from range(10 * info.id, 10 * info.id + 6)


def test_out_of_order_a_blocked_shard_holds_nobody_back() -> None:
    gate = FORK.Event()
    options = {"batch_size": 2, "in_order": False, "timeout": 15}
    iterator = iter(loader(_Blocked(gate), "fork", 2, **options))
    assert [next(iterator).tolist() for _ in range(3)] == [[10, 11], [12, 13], [14, 15]]
    gate.set()
    assert [batch.tolist() for batch in iterator] == [[0, 1], [2, 3], [4, 5]]


class _Raising(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1
        raise LookupError("a damaged shard")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_an_iterable_arrives_as_itself(num_workers: int) -> None:
    options = {"multiprocessing_context": "fork"} if num_workers else {}
    made = stoker.DataLoader(_Raising(), num_workers=num_workers, **options)
    iterator = iter(made)
    for _ in range(max(1, num_workers)):
        assert next(iterator).tolist() == [1]
    with pytest.raises(LookupError, match="a damaged shard"):
        next(iterator)
    del iterator


def test_an_iterable_that_is_its_own_iterator_goes_on_in_the_next_epoch() -> None:
    class Once(IterableDataset[int]):
        def __init__(self) -> None:
            self.numbers = iter(range(6))

        def __iter__(self) -> Iterator[int]:
            return self.numbers

    made = stoker.DataLoader(Once(), batch_size=2)
    assert [batch.tolist() for batch in itertools.islice(made, 1)] == [[0, 1]]
    assert [batch.tolist() for batch in made] == [[2, 3], [4, 5]]
