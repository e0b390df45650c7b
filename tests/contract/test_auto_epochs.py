"""Under ``num_workers="auto"`` workers stay from epoch to epoch, while the data set is the same."""

from __future__ import annotations

import argparse
import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stoker.errors import WorkerDied
from tests.contract.automatic import (
    begun,
    epoch_with,
    firsts,
    loader,
    marks,
    needs_still,
    pids,
    still,
)
from tests.contract.methods import Tabled
from tests.contract.test_pinning import accelerator
from tests.datasets import (
    Plain,
    Telling,
)
from tests.faults.scripts import are_gone

__all__ = ["accelerator", "still"]


class Slotted:
    """Keeps what it has without a ``__dict__``."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class Times:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, value: int) -> int:
        return value * self.factor


def times(value: int, factor: int) -> int:
    return value * factor


def closure(value: int) -> Callable[[], int]:
    return lambda: value


class Read(Telling):
    """Its mark is read from `what` by `how`, sample by sample."""

    def __init__(self, length: int, what: Any, how: Callable[[Any], Any]) -> None:
        self.what = what
        self.how = how
        super().__init__(length)

    @property
    def mark(self) -> int:  # type: ignore[override]
        return int(self.how(self.what))

    @mark.setter
    def mark(self, value: int) -> None:
        pass


def set_item(key: Any) -> Callable[[Any], None]:
    def change(dataset: Any) -> None:
        dataset.what[key] = 5

    return change


def replace(make: Callable[[], Any]) -> Callable[[Any], None]:
    def change(dataset: Any) -> None:
        dataset.what = make()

    return change


def set_attribute(name: str) -> Callable[[Any], None]:
    return lambda dataset: setattr(dataset.what, name, 5)


def first(what: Any) -> Any:
    return what[0]


CHANGES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], None]]] = {
    "a number": (1, int, replace(lambda: 5)),
    "an attribute of an attribute": (Times(1), lambda x: x(1), set_attribute("factor")),
    "another transform": (Times(1), lambda x: x(1), replace(lambda: Times(5))),
    "another partial": (
        functools.partial(times, factor=1),
        lambda x: x(1),
        replace(lambda: functools.partial(times, factor=5)),
    ),
    "another closure": (closure(1), lambda x: x(), replace(lambda: closure(5))),
    "a tensor in place": (torch.ones(9), first, set_item(0)),
    "the last of a large tensor in place": (torch.ones(9000), lambda x: x[-1], set_item(-1)),
    "another tensor": (torch.ones(9), first, replace(lambda: torch.full((9,), 5.0))),
    "an array in place": (np.ones(9), first, set_item(0)),
    "another list": ([1] * 9, first, replace(lambda: [5] * 9)),
    "a list in place": ([1] * 9, first, set_item(0)),
    "a longer list": ([1] * 99, lambda x: 1 if len(x) == 99 else 5, lambda d: d.what.append(1)),
    "a dict in place": ({"a": 1}, lambda x: x["a"], set_item("a")),
    "a set": ({1, 2}, lambda x: 1 if len(x) == 2 else 5, lambda d: d.what.add(3)),
    "a slot": (Slotted(1), lambda x: x.value, set_attribute("value")),
    "a bytearray": (bytearray([1, 1]), first, set_item(0)),
    "one of many options": (
        argparse.Namespace(level=1, **{f"option_{n}": n for n in range(40)}),
        lambda x: x.level,
        set_attribute("level"),
    ),
    "a buffer of a module": (
        torch.nn.BatchNorm1d(1),
        lambda x: 1 if x.running_mean[0] == 0 else 5,
        lambda d: d.what.running_mean.fill_(5),
    ),
}


@needs_still
class TestFromEpochToEpoch:
    def test_the_workers_stay(self) -> None:
        made = loader(Telling(20), batch_size=2)
        iterator, _ = begun(made)
        before = pids(iterator)
        assert len(list(iterator)) == 9
        for _ in range(3):
            iterator = iter(made)
            assert pids(iterator) == before
            batches = list(iterator)
            assert all(batch[2].all() for batch in batches)
            assert firsts(batches) == list(range(20))
        assert made.statistics().num_workers == 2

    def test_they_end_where_that_is_wanted(self) -> None:
        """And as many are there at once in the next epoch."""
        made = loader(Telling(20), batch_size=2, persistent_workers=False)
        iterator, _ = begun(made)
        before = pids(iterator)
        assert len(list(iterator)) == 9
        assert are_gone(before, 2.0)
        assert made.statistics().num_workers == 0
        for _ in range(2):
            iterator = iter(made)
            assert len(pids(iterator)) == made.num_workers == 2
            assert not set(pids(iterator)) & set(before)
            assert firsts(list(iterator)) == list(range(20))

    @pytest.mark.parametrize("name", CHANGES)
    def test_a_data_set_that_was_changed_is_read_changed(self, name: str) -> None:
        what, how, change = CHANGES[name]
        dataset = Read(20, what, how)
        made = loader(dataset, batch_size=2)
        iterator, _ = begun(made)
        before = pids(iterator)
        assert marks(list(iterator)) == {1}
        change(dataset)
        iterator = iter(made)
        assert marks(list(iterator)) == {5}
        assert not set(pids(iterator)) & set(before)

    @pytest.mark.parametrize("name", CHANGES)
    def test_one_that_was_not_is_read_by_the_same_workers(self, name: str) -> None:
        what, how, _ = CHANGES[name]
        made = loader(Read(20, what, how), batch_size=2)
        iterator, _ = begun(made)
        before = pids(iterator)
        list(iterator)
        iterator = iter(made)
        assert pids(iterator) == before
        assert len(marks(list(iterator))) == 1

    def test_methods_and_properties_of_a_data_set_are_no_change(self) -> None:
        """Their names say nothing; looking at a method gives a new object each time."""

        class Named(Plain):
            def func(self) -> None:
                pass

            @property
            def args(self) -> Any:
                raise AssertionError("asked for by nobody")

        made = loader(Named(20))
        iterator, _ = begun(made)
        before = pids(iterator)
        list(iterator)
        assert pids(iter(made)) == before

    def test_data_sets_of_any_depth_are_looked_at(self) -> None:
        head: Any = None
        for _ in range(3000):
            head = Times(head)
        dataset = Telling(20)
        dataset.head = head  # type: ignore[attr-defined]
        made = loader(dataset)
        iterator, _ = begun(made)
        before = pids(iterator)
        list(iterator)
        assert pids(iter(made)) == before
        while head is not None:  # else it is freed by as many nested calls
            head.factor, head = None, head.factor

    def test_a_change_within_an_epoch_is_read_in_the_next(self) -> None:
        """As with torch's loader, whose workers are started for each epoch."""
        dataset = Telling(20)
        made = loader(dataset, batch_size=2)
        iterator, _ = begun(made)
        next(iterator)
        dataset.mark = 5
        list(iterator)
        assert marks(list(made)) == {5}

    def test_a_change_before_an_iterator_is_dropped_is_read_in_the_next_epoch(self) -> None:
        dataset = Telling(20)
        made = loader(dataset, batch_size=2)
        iterator, _ = begun(made)
        next(iterator)
        dataset.mark = 5
        del iterator
        assert marks(list(made)) == {5}

    def test_what_reading_changes_does_not_end_workers_for_ever(self) -> None:
        """A data set that counts, or opens its file, when it is read in the main process."""

        class Counts(Telling):
            reads = 0

            def __getitem__(self, index: int) -> Any:
                self.reads += 1
                return super().__getitem__(index)

        made = loader(Counts(20), batch_size=2)
        iterator, _ = begun(made)
        list(iterator)
        seen = []
        for _ in range(4):
            iterator = iter(made)
            seen.append(pids(iterator))
            list(iterator)
        assert seen[-1] == seen[-2] == seen[-3]

    def test_another_collate_function_is_used(self) -> None:
        made = loader(Plain(20), batch_size=2)
        epoch_with(made)
        made.collate_fn = len
        assert list(made) == [2] * 10

    @pytest.mark.parametrize("taken", [0, 1, 5])
    def test_an_epoch_that_was_left_is_followed_by_a_whole_one(self, taken: int) -> None:
        made = loader(Telling(40), batch_size=2)
        before = None
        for _ in range(3):
            iterator, _ = begun(made)
            before = before or pids(iterator)
            assert pids(iterator) == before
            for _ in range(taken):
                next(iterator)
            del iterator
            assert firsts(list(made)) == list(range(40))

    def test_an_epoch_that_was_left_keeps_no_batches(self) -> None:
        dataset = Tabled(40, _large)
        made = loader(dataset, batch_size=1)
        iterator, batch = begun(made)
        batch = next(iterator)
        _until_all_are_made(iterator)
        assert made.statistics().slot_bytes > 0
        del batch, iterator
        told = made.statistics()
        assert told.num_workers == 2
        assert told.in_flight == 0
        assert told.slot_bytes == 0
        assert [int(batch[0, 0, 0]) for batch in made] == list(range(40))

    def test_an_epoch_that_is_over_keeps_no_batches(self) -> None:
        made = loader(Tabled(20, _large), batch_size=1)
        assert len(epoch_with(made)) == 20
        told = made.statistics()
        assert (told.num_workers, told.in_flight, told.slot_bytes) == (2, 0, 0)

    @pytest.mark.parametrize("how", ["left", "over"])
    def test_a_worker_that_died_beside_an_epoch_is_told_of(self, how: str) -> None:
        """Never in the finalizer of an iterator, where nobody could catch it."""
        made = loader(Plain(40, (100, 100)), batch_size=2)
        iterator, _ = begun(made)
        next(iterator)
        killed = pids(iterator)[0]
        if how == "over":
            list(iterator)
        os.kill(killed, signal.SIGKILL)
        assert are_gone([killed], 5.0)
        del iterator
        try:
            assert len(list(made)) == 20
        except WorkerDied as error:
            assert error.pid == killed  # noqa: PT017
        assert [int(batch[0, 0, 0]) for batch in made] == list(range(0, 40, 2))


def _large(index: int) -> torch.Tensor:
    return torch.full((200, 200), float(index))


def _until_all_are_made(iterator: Any) -> None:
    """Until the workers have made all that they were sent."""
    feed = iterator.feed.feed
    while any(feed._pool.busy(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))
