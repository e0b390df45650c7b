"""Batches that do not pickle, or can't be built again: told by field, type and sample, at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from stoker.errors import NotPicklable, TransportError
from tests.contract import automatic
from tests.contract.automatic import still as still  # a fixture
from tests.contract.methods import Tabled, answers, loader
from tests.datasets import Plain


@dataclass
class Meta:
    lock: Any


class NoState:
    """Pickles, and can't be built again."""

    def __reduce__(self) -> Any:
        return _raise, ("gone",)


class StopsBuilding:
    def __reduce__(self) -> Any:
        return next, (iter(()),)


class RaisesInReduce:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


class Exits:
    def __reduce__(self) -> Any:
        raise SystemExit(4)


def _raise(text: str) -> None:
    raise ValueError(text)


def as_it_is(batch: Any) -> Any:
    return batch


def by_field(batch: Any) -> Any:
    return {key: [sample[key] for sample in batch] for key in batch[0]}


def failing_at(at: int, thing: Any) -> Any:
    return lambda index: {"x": index, "meta": Meta(thing() if index == at else None)}


@pytest.mark.parametrize(
    ("collate", "path"), [(as_it_is, "batch[1]['meta'].lock"), (by_field, "batch['meta'][1].lock")]
)
def test_a_field_that_does_not_pickle_is_named(collate: Any, path: str) -> None:
    dataset = Tabled(12, failing_at(5, threading.Lock))
    iterator = iter(loader(dataset, "fork", batch_size=4, collate_fn=collate))
    next(iterator)
    with pytest.raises(NotPicklable) as caught:
        next(iterator)
    text = str(caught.value)
    assert f"{path} is a _thread.lock (TypeError: cannot pickle '_thread.lock' object)" in text
    assert "in DataLoader worker process" in text
    assert "sending batch 1, at sample index 5" in text
    next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_it_is_what_pickle_would_raise() -> None:
    """A program that catches one of pickle's own types catches it."""
    with pytest.raises(TypeError, match="does not pickle"):
        list(loader(Tabled(2, failing_at(0, threading.Lock)), "fork", batch_size=None))


@pytest.mark.parametrize("thing", [RaisesInReduce, lambda: lambda: 0, lambda: iter_of(3)])
def test_whatever_does_not_pickle_is_told(thing: Any) -> None:
    made = loader(Tabled(9, failing_at(4, thing)), "fork", batch_size=3, collate_fn=as_it_is)
    seen = list(answers(iter(made)))
    assert [type(answer) for answer in seen] == [list, NotPicklable, list]
    assert "batch[1]['meta'].lock is a " in str(seen[1])
    assert "at sample index 4" in str(seen[1])


def iter_of(count: int) -> Any:
    yield from range(count)


def test_a_large_batch_beside_it_leaves_its_slot_usable() -> None:
    def sample(index: int) -> Any:
        return torch.full((50_000,), float(index)), Meta(iter_of(1) if index % 2 else None)

    made = loader(Tabled(12, sample), "fork", batch_size=None, collate_fn=as_it_is)
    seen = list(answers(iter(made)))
    for index, answer in enumerate(seen):
        if index % 2:
            assert "batch[1].lock is a generator" in str(answer)
        else:
            assert bool((answer[0] == index).all())
    del made, seen, answer


@pytest.mark.parametrize(("thing", "name"), [(NoState, "_raise"), (StopsBuilding, "next")])
@pytest.mark.parametrize("persistent", [False, True])
def test_what_can_not_be_built_again_is_told_and_the_epoch_goes_on(
    thing: Any, name: str, persistent: bool
) -> None:
    dataset = Tabled(9, failing_at(4, thing))
    made = loader(dataset, "fork", batch_size=3, collate_fn=as_it_is, persistent_workers=persistent)
    for _ in range(1 + persistent):
        iterator = iter(made)
        next(iterator)
        with pytest.raises(TransportError) as caught:
            next(iterator)
        text = str(caught.value)
        assert "batch[1]['meta'].lock, a " in text
        assert name in text
        assert "opening batch 1, at sample index 4" in text
        next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)
    del made, iterator


def test_a_slot_whose_batch_can_not_be_built_is_used_again() -> None:
    def sample(index: int) -> Any:
        return torch.full((20_000,), float(index)), NoState() if index % 2 else None

    made = loader(Tabled(240, sample), "fork", 1, batch_size=None, collate_fn=as_it_is)
    iterator = iter(made)
    for index, answer in enumerate(answers(iterator)):
        assert isinstance(answer, TransportError) == bool(index % 2)
        slots = iterator.feed._pool.slot_count if iterator.feed._pool._members else 0
        assert slots <= 70  # However far ahead the worker runs.
    assert index == 239
    del made, iterator, answer


@automatic.needs_still
@pytest.mark.parametrize("thing", [threading.Lock, NoState, RaisesInReduce])
def test_automatic_workers_leave_such_batches_to_the_main_process(thing: Any) -> None:
    """Where it has none, they need not cross; so it is no error with workers either."""
    dataset = Tabled(40, failing_at(25, thing))
    made = automatic.loader(dataset, batch_size=4, collate_fn=as_it_is)
    iterator, first = automatic.begun(made, 2)
    seen = [first, *iterator]
    assert [sample["x"] for batch in seen for sample in batch] == list(range(40))
    assert iterator.feed.workers == 0
    del made, iterator, seen


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit], ids=lambda kind: kind.__name__
)
def test_what_ends_a_process_does_not_end_a_worker(kind: Any) -> None:
    def sample(index: int) -> int:
        if index == 1:
            raise kind(3)
        return index

    iterator = iter(loader(Tabled(4, sample), "fork"))
    assert int(next(iterator)) == 0
    pids = {worker.pid for worker in iterator._workers}
    with pytest.raises(kind, match="at sample index 1 of batch 1"):
        next(iterator)
    assert [int(batch) for batch in iterator] == [2, 3]
    assert {worker.pid for worker in iterator._workers} <= pids
    del iterator


def test_an_exit_while_packing_is_its_own() -> None:
    iterator = iter(loader(Tabled(3, failing_at(1, Exits)), "fork", collate_fn=as_it_is))
    next(iterator)
    with pytest.raises(SystemExit, match="on packing the result of batch 1"):
        next(iterator)
    next(iterator)
    del iterator


def test_a_stop_iteration_of_iter_is_an_error() -> None:
    class Stops(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            raise StopIteration("nothing")

    for method in ("inline", "fork"):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(loader(Stops(), method, 1))


def test_one_bad_index_fails_its_own_batch_only() -> None:
    """Several batches are sent in one message."""
    batches: list[Any] = [[0], [1], [iter_of(2)], [3], [4], [5]]
    made = loader(Plain(6), "fork", 1, batch_sampler=batches, prefetch_factor=6)
    seen = list(answers(iter(made)))
    assert [type(answer) for answer in seen].count(NotPicklable) == 1
    assert "index[0] is a generator" in str(seen[2])
    assert "sending batch 2" in str(seen[2])
    assert [int(answer[0, 0]) for answer in seen if isinstance(answer, torch.Tensor)] == [
        0, 1, 3, 4, 5,
    ]  # fmt: skip
