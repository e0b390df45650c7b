"""``num_workers="auto"``, the default: how it looks, and what it must not change."""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import itertools
import json
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, MapDataPipe, SequentialSampler, get_worker_info

import stoker
from stoker.errors import WorkerDied
from stoker.feed import adaptive
from stoker.options import AutoWorkers
from stoker.tuning import account
from stoker.tuning.decision import Decision
from stoker.tuning.governor import Least
from tests.contract.alike import assert_same, copied
from tests.contract.datasets import collate_drawing
from tests.contract.methods import Tabled, answers, many_workers
from tests.contract.test_pinning import Accelerator, accelerator, pin_threads
from tests.contract.test_resizing import all_come_up
from tests.datasets import (
    Batched,
    Drawing,
    EndsOnArrival,
    Failing,
    Gated,
    OnlyInMain,
    Plain,
    Slow,
    Stream,
    Telling,
)
from tests.faults.scripts import are_gone

__all__ = ["accelerator"]
FORK = multiprocessing.get_context("fork")


class Still:
    """A governor that wants what there is; tests change the number themselves."""

    def __init__(self, least: Least, *args: Any) -> None:
        self.least = least.workers
        self.decisions: list[Decision] = args[-2]
        self.changed: Callable[[int], None] = lambda workers: None

    def next_window(self) -> tuple[int, float]:
        return 1, 0.0

    def review(self, window: Any, batches_left: int | None) -> None:
        return None

    def performed(self, workers: int) -> None:
        self.changed(workers)

    def came_up(self, workers: int, seconds: float) -> None:
        pass

    def refused(self, why: str, most: int = 0) -> None:
        self.decisions.append(Decision(0, most, why))


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "LoaderGovernor", Still)
    monkeypatch.setattr(adaptive, "_GROW_S", math.inf)  # all at once, however busy the machine


needs_still = pytest.mark.usefixtures("still")


def loader(dataset: Any, **options: Any) -> Any:
    """A loader that chooses its number; its workers are forked."""
    return stoker.DataLoader(dataset, multiprocessing_context="fork", **options)


def begun(made: Any, workers: int = 2) -> tuple[Any, Any]:
    """A new iterator with so many workers that have come up, and its first batch."""
    iterator = iter(made)
    first = copied(next(iterator))
    iterator.feed.resize(workers, first)
    all_come_up(iterator)
    return iterator, first


def epoch_with(made: Any, workers: int = 2) -> list[Any]:
    """The batches of an epoch that had so many workers from its second batch on."""
    iterator, first = begun(made, workers)
    return [first, *map(copied, iterator)]


def pids(iterator: Any) -> list[int]:
    return sorted(worker.pid for worker in iterator._workers)


def marks(batches: list[Any]) -> set[int]:
    return {int(mark) for batch in batches for mark in batch[1]}


def firsts(batches: list[Any]) -> list[int]:
    """The numbers of samples, of batches whose samples begin with their number."""
    return [int(index) for batch in batches for index in batch[0]]


def reasons(made: Any) -> list[str]:
    return [decision.reason for decision in made.statistics().decisions]


class TestTheNumber:
    def test_the_default_is_auto(self) -> None:
        made = stoker.DataLoader(Plain(3))
        assert isinstance(made.num_workers, int)
        assert made.num_workers == 0
        assert not made.num_workers
        assert len(list(made)) == 3
        assert made.statistics().automatic

    def test_it_prints_and_says_that_it_was_chosen(self) -> None:
        made = stoker.DataLoader(Plain(3))
        assert repr(made.num_workers) == "0 (auto)"
        assert f"{made.num_workers:d}, {made.num_workers:3}" == "0,   0"
        assert "%d" % made.num_workers == "0"  # noqa: UP031
        assert json.dumps({"num_workers": made.num_workers}) == '{"num_workers": 0}'

    @needs_still
    def test_it_reads_as_the_number_there_is(self) -> None:
        made = loader(Plain(30, (1,)))
        iterator = iter(made)
        for number, batch in enumerate(iterator):
            assert isinstance(made.num_workers, int)
            assert made.num_workers == len(iterator._workers) == (0 if number <= 3 else 2)
            if number == 3:
                iterator.feed.resize(2, batch)
        assert made.num_workers == 2
        assert list(range(made.num_workers)) == [0, 1]
        assert repr(made.num_workers) == "2 (auto)"

    @pytest.mark.parametrize("wrong", ["4", "Auto", "", "none"])
    def test_other_words_are_refused(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match=f"int or 'auto', but got num_workers={wrong!r}"):
            stoker.DataLoader(Plain(3), num_workers=wrong)
        made = stoker.DataLoader(Plain(3))
        with pytest.raises(TypeError, match="int or 'auto'"):
            made.num_workers = wrong
        assert len(list(made)) == 3

    def test_a_negative_number_is_refused_as_by_torch(self) -> None:
        with pytest.raises(ValueError, match="non-negative"):
            stoker.DataLoader(Plain(3), num_workers=-1)

    def test_a_number_that_was_chosen_goes_on_choosing(self) -> None:
        made = stoker.DataLoader(Plain(3), num_workers=AutoWorkers(3))
        assert len(list(made)) == 3
        assert made.statistics().automatic

    @many_workers
    def test_it_may_be_set_later(self) -> None:
        made = loader(Telling(12), batch_size=2)
        assert not any(batch[2].any() for batch in made)
        made.num_workers = 3
        iterator = iter(made)
        assert len(iterator._workers) == 3
        assert all(batch[2].all() for batch in iterator)
        assert not made.statistics().automatic
        made.num_workers = "auto"
        assert isinstance(made.num_workers, int)
        assert not next(iter(made))[2].any()
        assert made.statistics().automatic

    @needs_still
    @pytest.mark.parametrize("number", [0, 1])
    def test_setting_it_ends_the_workers_that_were_chosen(self, number: int) -> None:
        made = loader(Plain(12))
        iterator, _ = begun(made)
        chosen = pids(iterator)
        list(iterator)
        made.num_workers = number
        iterator = iter(made)
        assert are_gone(chosen, 2.0)
        assert len(list(iterator)) == 12

    def test_setting_auto_ends_the_persistent_workers_that_were_given(self) -> None:
        made = loader(Plain(12), num_workers=2, persistent_workers=True)
        given = pids(iter(made))
        assert len(list(made)) == 12
        made.num_workers = "auto"
        assert len(list(made)) == 12
        assert are_gone(given, 2.0)

    @needs_still
    def test_it_stays_automatic_where_that_was_set_later(self) -> None:
        """Workers stay across epochs: nobody has asked for anything else."""
        made = loader(Plain(12), num_workers=1)
        made.num_workers = "auto"
        iterator, _ = begun(made)
        before = pids(iterator)
        list(iterator)
        assert pids(iter(made)) == before


class TestBatches:
    def test_they_are_those_of_the_main_process(self) -> None:
        """With everything as it is by default, and samples slow enough for workers to pay."""
        dataset = Slow(160, 0.006, FORK.Semaphore(0))
        made = stoker.DataLoader(dataset, batch_size=4, shuffle=True, seed=5)
        batches = [[copied(batch) for batch in made] for _ in range(3)]
        assert dataset.by_workers.acquire(timeout=0), "no worker has read a sample"
        assert made.num_workers > 0
        plain = stoker.DataLoader(Drawing(160), batch_size=4, shuffle=True, seed=5, num_workers=0)
        assert_same(batches, [list(plain) for _ in range(3)])

    @needs_still
    def test_the_indices_are_torchs(self) -> None:
        torch.manual_seed(3)
        theirs = torch.utils.data.DataLoader(Telling(40), batch_size=3, shuffle=True)
        expected, state = [firsts(theirs) for _ in range(3)], torch.get_rng_state()
        torch.manual_seed(3)
        made = loader(Telling(40), batch_size=3, shuffle=True)
        assert [firsts(epoch_with(made, count)) for count in (2, 0, 1)] == expected
        assert torch.equal(torch.get_rng_state(), state)

    OPTIONS: ClassVar[dict[str, dict[str, Any]]] = {
        "plain": {"batch_size": 3},
        "drop_last": {"batch_size": 5, "drop_last": True},
        "prefetch 1": {"batch_size": 3, "prefetch_factor": 1},
        "prefetch 7": {"batch_size": 3, "prefetch_factor": 7},
        "not persistent": {"batch_size": 3, "persistent_workers": False},
        "no batches": {"batch_size": None},
        "sampler": {"batch_size": 3, "sampler": range(40, 8, -1)},
        "batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(44)), 4, False)},
        "plain list": {"batch_sampler": [[3, 1], [7], [7, 7, 7], [40, 2]] * 3},
        "collate": {"batch_size": 3, "collate_fn": collate_drawing},
        "iterator of batches": {"batch_size": 3, "shuffle": True},
    }

    @needs_still
    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
    @pytest.mark.parametrize("dataset", [Drawing(44), Batched(44)], ids=["draws", "getitems"])
    def test_they_are_those_of_the_main_process_with(
        self, options: dict[str, Any], dataset: Any
    ) -> None:
        """Workers come, go and come again in the middle of an epoch."""
        inline = {k: v for k, v in options.items() if not k.startswith(("prefetch", "persist"))}
        plain = stoker.DataLoader(dataset, num_workers=0, seed=2, **inline)
        made = loader(dataset, seed=2, **options)
        for _ in range(2):
            got, iterator = [], iter(made)
            for number, batch in enumerate(iterator):
                got.append(copied(batch))
                if number in (1, 4, 6):
                    iterator.feed.resize({1: 2, 4: 0, 6: 3}[number], batch)
                    all_come_up(iterator)
            assert_same(got, list(plain))
        assert made.statistics().total_bytes > 0, "no worker made a batch"

    @needs_still
    def test_out_of_order_each_comes_once(self) -> None:
        made = loader(Telling(60), batch_size=3, in_order=False)
        for _ in range(2):
            assert sorted(firsts(epoch_with(made))) == list(range(60))

    @needs_still
    def test_all_are_pinned(self, accelerator: Accelerator) -> None:
        made = loader(Plain(40, (100, 100)), batch_size=2, pin_memory=True)
        for _ in range(2):
            iterator = iter(made)
            for number, batch in enumerate(iterator):
                assert accelerator.has_pinned(batch)
                assert [float(row.mean()) for row in batch] == [2 * number, 2 * number + 1]
                if number in (3, 9):
                    iterator.feed.resize(2 if number == 3 else 1, batch)
                    all_come_up(iterator)
        assert accelerator.threads == {threading.main_thread().name, "stoker-pin"}
        del iterator, made
        gc.collect()
        assert not pin_threads()

    @needs_still
    def test_pin_memory_may_be_set_later(self, accelerator: Accelerator) -> None:
        made = loader(Plain(8), batch_size=2)
        assert len(list(made)) == 4
        made.pin_memory = True
        assert all(accelerator.has_pinned(batch) for batch in made)
        made.pin_memory = False
        assert not any(accelerator.has_pinned(batch) for batch in made)


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


@needs_still
class TestIterators:
    def test_each_is_a_new_object(self) -> None:
        made = loader(Plain(4))
        first, second = iter(made), iter(made)
        assert first is not second
        assert iter(first) is first
        assert len(first) == 4

    @pytest.mark.parametrize("workers", [0, 2])
    def test_two_at_once_are_complete(self, workers: int) -> None:
        made = loader(Telling(12), batch_size=2)
        epoch_with(made, workers)
        pairs = list(zip(made, made, strict=True))
        for side in (0, 1):
            assert firsts([pair[side] for pair in pairs]) == list(range(12))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_nested_ones_are_complete(self, workers: int) -> None:
        made = loader(Telling(8), batch_size=2)
        epoch_with(made, workers)
        outer = []
        for batch in made:
            outer.append(batch)
            assert firsts(list(made)) == list(range(8))
        assert firsts(outer) == list(range(8))

    def test_two_at_once_with_workers_each(self) -> None:
        made = loader(Telling(40), batch_size=2)
        (one, first), (other, second) = begun(made), begun(made)
        assert not set(pids(one)) & set(pids(other))
        rest = list(zip(one, other, strict=True))
        assert firsts([first, *(a for a, _ in rest)]) == list(range(40))
        assert firsts([second, *(b for _, b in rest)]) == list(range(40))
        assert firsts(list(made)) == list(range(40))

    def test_workers_are_not_kept_twice(self) -> None:
        made = loader(Telling(40), batch_size=2)
        (one, _), (other, _) = begun(made), begun(made)
        both = [*pids(one), *pids(other)]
        list(one), list(other)
        left = [pid for pid in both if not are_gone([pid], 0.5)]
        assert len(left) == 2
        assert pids(iter(made)) == left

    @pytest.mark.parametrize("workers", [0, 2])
    def test_one_that_is_at_its_end_stays_there(self, workers: int) -> None:
        made = loader(Telling(12), batch_size=2)
        old, _ = begun(made, workers)
        assert len(list(old)) == 5
        new = iter(made)
        got = []
        for _ in range(6):
            assert next(old, None) is None
            got.append(next(new))
        assert next(old, None) is None
        assert next(new, None) is None
        assert firsts(got) == list(range(12))

    def test_an_older_one_goes_on_after_a_newer(self) -> None:
        made = loader(Telling(40), batch_size=2)
        old, first = begun(made)
        assert firsts(list(made)) == list(range(40))
        assert firsts([first, *old]) == list(range(40))

    @pytest.mark.parametrize("taken", [0, 3])
    def test_the_loader_may_be_dropped_before_its_iterator(self, taken: int) -> None:
        made = loader(Telling(40), batch_size=2)
        iterator, first = begun(made)
        got = [first, *itertools.islice(iterator, taken)]
        del made
        assert firsts([*got, *iterator]) == list(range(40))
        chosen = pids(iterator)
        del iterator
        gc.collect()
        assert are_gone(chosen, 2.0)

    @pytest.mark.parametrize("rest", [False, True], ids=["in the middle", "after an epoch"])
    @pytest.mark.parametrize("pin", [False, True], ids=["plain", "pinned"])
    def test_dropping_both_ends_the_workers_at_once(
        self, rest: bool, pin: bool, accelerator: Accelerator
    ) -> None:
        """And not when garbage happens to be collected."""
        made = loader(Plain(40, (200, 200)), batch_size=2, pin_memory=pin)
        iterator, _ = begun(made)
        next(iterator)
        if rest:
            list(iterator)
        chosen = pids(iterator)
        gc.disable()
        try:
            del iterator, made
            assert are_gone(chosen, 2.0)
            assert not pin_threads()
        finally:
            gc.enable()

    @pytest.mark.parametrize("how", ["drops", "asks"])
    def test_a_forked_copy_takes_nothing_from_it(self, how: str) -> None:
        made = loader(Telling(200), batch_size=2)
        iterator, first = begun(made)
        got = [first, next(iterator)]
        child = os.fork()
        if not child:
            code = 1
            try:
                if how == "drops":
                    del iterator
                    gc.collect()
                    code = 0
                else:
                    next(iterator)
            except stoker.errors.IteratorStopped:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert firsts([*got, *iterator]) == list(range(200))

    def test_a_forked_copy_takes_no_news_of_workers_that_come_up(self) -> None:
        made = loader(Telling(200), batch_size=2)
        iterator = iter(made)
        got = [next(iterator)]
        iterator.feed.resize(1, got[0])
        assert iterator.feed.feed._pool._waiter.wait(20), "no worker has come up"
        child = os.fork()
        if not child:
            with contextlib.suppress(stoker.errors.IteratorStopped):
                next(iterator)
            os._exit(0)
        os.waitpid(child, 0)
        all_come_up(iterator)
        assert firsts([*got, *iterator]) == list(range(200))


@needs_still
class TestExceptions:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("at", [0, 1, 4, 5, 9])
    def test_each_is_raised_in_its_place(self, workers: int, at: int) -> None:
        """With its own type, and the epoch goes on after it."""
        made = loader(Failing(10, at, LookupError(f"sample {at} is broken")))
        for _ in range(2):
            iterator = iter(made)
            iterator.feed.resize(workers)
            seen = list(answers(iterator))
            error = seen.pop(at)
            assert isinstance(error, LookupError)
            assert f"sample {at} is broken" in str(error)
            assert [int(batch[0, 0]) for batch in seen] == [n for n in range(10) if n != at]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_worker_that_fails_at_first_is_no_reason_where_the_main_process_fails_too(
        self, workers: int
    ) -> None:
        made = loader(Failing(20, 1, LookupError("sample 1 is broken")))
        iterator, _ = begun(made, workers)
        seen = list(answers(iterator))
        assert sum(isinstance(each, LookupError) for each in seen) == 1
        assert len(seen) == 19
        assert reasons(made) == []
        assert made.num_workers == workers

    @pytest.mark.parametrize("workers", [0, 2])
    def test_those_of_the_collate_function(self, workers: int) -> None:
        def collate(samples: list[Any]) -> int:
            number = int(samples[0][0])
            if number == 6:
                raise ZeroDivisionError(f"batch {number}")
            return number

        made = loader(Plain(20), batch_size=2, collate_fn=collate)
        iterator = iter(made)
        iterator.feed.resize(workers)
        seen = list(answers(iterator))
        assert isinstance(seen.pop(3), ZeroDivisionError)
        assert seen == [0, 2, 4, 8, 10, 12, 14, 16, 18]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_those_of_the_sampler(self, workers: int) -> None:
        def indices() -> Iterator[int]:
            yield from range(8)
            raise ArithmeticError("no more")

        made = loader(Plain(20), batch_size=1, sampler=indices())
        iterator = iter(made)
        first = next(iterator)
        iterator.feed.resize(workers, first)
        all_come_up(iterator) if workers else None
        seen = [first, *answers(iterator)]
        assert isinstance(seen.pop(), ArithmeticError)
        assert [int(batch[0, 0]) for batch in seen] == list(range(8))

    def test_a_worker_that_dies_is_one_and_the_next_epoch_works(self) -> None:
        made = loader(Plain(40, (1,)))
        iterator, _ = begun(made)
        os.kill(pids(iterator)[0], signal.SIGKILL)
        with pytest.raises(WorkerDied):
            list(iterator)
        with pytest.raises(RuntimeError, match="stopped before the epoch was over"):
            next(iterator)
        del iterator
        iterator = iter(made)
        assert len(pids(iterator)) == 2
        assert [int(batch) for batch in iterator] == list(range(40))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_ctrl_c_in_the_training_step(self, workers: int) -> None:
        made = loader(Telling(40), batch_size=2)
        with pytest.raises(KeyboardInterrupt):
            self._interrupted(made, workers)
        assert firsts(list(made)) == list(range(40))

    def _interrupted(self, made: Any, workers: int) -> None:
        iterator, _ = begun(made, workers)
        for number, _ in enumerate(iterator):
            if number == 2:
                raise KeyboardInterrupt

    def test_ctrl_c_while_the_main_process_makes_a_batch(self) -> None:
        dataset = Failing(20, 3, KeyboardInterrupt())
        made = loader(dataset)
        with pytest.raises(KeyboardInterrupt):
            list(made)
        dataset.at = -1
        assert len(list(made)) == 20

    def test_ctrl_c_while_a_batch_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = loader(Gated(20, 5, FORK.Event()))
        iterator, _ = begun(made)
        chosen = pids(iterator)

        def interrupted(timeout_s: float | None) -> Any:
            raise KeyboardInterrupt

        feed = iterator.feed.feed
        for _ in range(4):
            next(iterator)
        monkeypatch.setattr(feed._pool, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert are_gone(chosen, 2.0)
        del iterator
        made.dataset.at = -1  # Setting the gate would wait for those who were stopped at it.
        iterator = iter(made)
        assert len(pids(iterator)) == 2
        assert [int(batch[0, 0]) for batch in iterator] == list(range(20))


def refused(made: Any, workers: int = 2) -> tuple[list[Any], list[str]]:
    """The batches of an epoch that wanted workers, and why there can be none."""
    iterator = iter(made)
    first = next(iterator)
    iterator.feed.resize(workers, first)
    got = [first, *iterator]
    assert made.num_workers == 0
    assert not iterator._workers
    return got, [decision.reason for decision in made.statistics().decisions]


class WithLambda(Plain):
    def __getitem__(self, index: int) -> Any:
        return index, lambda: index


class OnMeta(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.empty(3, device="meta")


class TestWhatRulesWorkersOut:
    """With the loader's own governor; a reason is kept, and training goes on."""

    def test_a_data_set_that_does_not_pickle(self) -> None:
        class Local(Plain):
            pass

        made = stoker.DataLoader(Local(20), multiprocessing_context="spawn")
        got, why = refused(made)
        assert [int(batch[0, 0]) for batch in got] == list(range(20))
        [reason] = [reason for reason in why if "could not be started" in reason]
        assert "Local" in reason

    def test_a_worker_that_dies_while_it_starts(self) -> None:
        made = stoker.DataLoader(EndsOnArrival(20), multiprocessing_context="spawn")
        iterator = iter(made)
        first = next(iterator)
        iterator.feed.resize(1, first)
        [process] = iterator._workers
        process.join(30)
        assert process.exitcode == 3
        got = [first, *iterator]
        assert [int(batch[0, 0]) for batch in got] == list(range(20))
        found = [reason for reason in reasons(made) if "exit code 3" in reason]
        assert len(found) == 1
        assert "a worker ended while it was starting" in found[0]
        assert made.num_workers == 0
        assert [int(batch[0, 0]) for batch in made] == list(range(20))

    def test_batches_that_do_not_pickle(self) -> None:
        made = loader(WithLambda(20), batch_size=None)
        got, why = refused(made)
        assert [(index, function()) for index, function in got] == [(n, n) for n in range(20)]
        assert len([reason for reason in why if reason.startswith("no workers:")]) == 1

    def test_tensors_that_are_not_in_the_cpus_memory(self) -> None:
        made = loader(OnMeta(20))
        got, why = refused(made)
        assert all(batch.is_meta for batch in got)
        [reason] = [reason for reason in why if reason.startswith("no workers:")]
        assert "the data set makes tensors on meta, not on the CPU" in reason

    @pytest.mark.parametrize("workers", [1, 3])
    def test_a_worker_that_fails_where_the_main_process_does_not(self, workers: int) -> None:
        made = loader(OnlyInMain(30))
        iterator, first = begun(made, workers)
        chosen = pids(iterator)
        got = [first, *iterator]
        assert [int(batch[0, 0]) for batch in got] == list(range(30))
        assert made.num_workers == made.statistics().num_workers == 0
        assert are_gone(chosen, 2.0)
        found = [reason for reason in reasons(made) if "raise ConnectionError" in reason]
        assert len(found) == 1
        assert "no workers: workers raise" in found[0]
        assert [int(batch[0, 0]) for batch in made] == list(range(30))

    def test_nothing_is_tried_again(self) -> None:
        """Samples so slow that workers would pay: the governor is told once for all."""
        made = loader(Tabled(60, _slow_lambda), batch_size=None)
        assert [function() for function in made] == list(range(60))
        assert [function() for function in made] == list(range(60))
        why = reasons(made)
        assert len([reason for reason in why if reason.startswith("no workers:")]) == 1
        assert len(why) <= 4


def _slow_lambda(index: int) -> Any:
    threading.Event().wait(0.005)
    return lambda: index


def _initialise(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.mark = 7 + worker


class TestWhatNeedsAWorker:
    def test_worker_init_fn(self) -> None:
        """It has to have run before any sample is read."""
        made = loader(Telling(40), batch_size=4, worker_init_fn=_initialise)
        for _ in range(2):
            iterator = iter(made)
            assert made.num_workers >= 1
            assert len(iterator._workers) >= 1
            batches = list(iterator)
            assert marks(batches) <= {7, 8, 9}
            assert all(batch[2].all() for batch in batches)
            assert firsts(batches) == list(range(40))
        assert "worker_init_fn runs in workers only" in reasons(made)[0]

    def test_worker_init_fn_that_is_set_later(self) -> None:
        made = loader(Telling(40), batch_size=4)
        assert marks(list(made)) == {0}
        made.worker_init_fn = _initialise
        batches = list(made)
        assert all(batch[2].all() for batch in batches)
        assert marks(batches) <= {7, 8, 9}
        made.worker_init_fn = None
        assert marks(list(made)) == {0}

    def test_an_error_of_worker_init_fn(self) -> None:
        def fail(worker: int) -> None:
            raise OSError("no disk")

        made = loader(Telling(40), batch_size=4, worker_init_fn=fail)
        with pytest.raises(OSError, match="no disk"):
            list(made)

    def test_a_time_out(self) -> None:
        made = loader(Gated(40, 3, FORK.Event()), timeout=0.3)
        iterator = iter(made)
        assert made.num_workers >= 1
        with pytest.raises(TimeoutError, match=r"timed out after 0\.3 seconds"):
            list(iterator)
        assert "timeout= can only be kept by workers" in reasons(made)[0]
        del iterator
        made.dataset.at = -1
        made.timeout = 60
        assert [int(batch[0, 0]) for batch in made] == list(range(40))

    def test_a_time_out_that_is_set_later(self) -> None:
        made = loader(Gated(40, -1, FORK.Event()))
        assert len(list(made)) == 40
        made.timeout = 0.3
        made.dataset.at = 3
        with pytest.raises(TimeoutError, match=r"timed out after 0\.3 seconds"):
            list(made)

    def test_a_worker_that_cannot_start_is_an_error_here(self) -> None:
        class Local(Plain):
            pass

        made = stoker.DataLoader(Local(4), multiprocessing_context="spawn", timeout=20)
        with (
            pytest.warns(UserWarning, match="Got pickle error"),
            pytest.raises(Exception, match="Local"),
        ):
            list(made)


class MapPipe(MapDataPipe[Any]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        return index, 0, get_worker_info() is not None


class StreamTelling(Stream):
    def __iter__(self) -> Iterator[Any]:
        for index in super().__iter__():
            yield index, 0, get_worker_info() is not None


def _nothing(worker: int) -> None:
    pass


@pytest.mark.parametrize("dataset", [StreamTelling(9), MapPipe()], ids=["iterable", "pipe"])
class TestIterables:
    """Where the number of workers would change the batches, it is left as it is."""

    def test_the_main_process_makes_the_batches(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2)
        for _ in range(2):
            batches = list(made)
            assert firsts(batches) == list(range(9))
            assert not any(batch[2].any() for batch in batches)
        assert made.num_workers == 0
        [reason] = reasons(made)
        assert "its batches depend on how many there are" in reason

    @pytest.mark.parametrize("options", [{"worker_init_fn": _nothing}, {"timeout": 60}], ids=str)
    def test_one_worker_does_where_something_needs_it(
        self, dataset: Any, options: dict[str, Any]
    ) -> None:
        made = loader(dataset, batch_size=2, **options)
        for _ in range(2):
            iterator = iter(made)
            assert len(iterator._workers) == made.num_workers == 1
            batches = list(iterator)
            assert firsts(batches) == list(range(9))
            assert all(batch[2].all() for batch in batches)

    def test_persistent_workers_persist(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2, worker_init_fn=_nothing, persistent_workers=True)
        seen = set()
        for _ in range(3):
            iterator = iter(made)
            seen |= set(pids(iterator))
            assert firsts(list(iterator)) == list(range(9))
        assert len(seen) == 1

    def test_what_is_for_workers_is_taken(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2, prefetch_factor=3, persistent_workers=True)
        assert firsts(list(made)) == list(range(9))


def test_a_data_set_without_a_length_does_as_in_torch() -> None:
    """torch never asks a data set for its length where a sampler is given."""

    class Endless(Plain):
        def __len__(self) -> int:
            raise RuntimeError("nobody knows")

    made = stoker.DataLoader(Endless(9), sampler=range(9))
    assert len(list(made)) == 9
    assert made.statistics().length == 9


def test_a_sampler_whose_length_fails_does_as_in_torch() -> None:
    class Unsized:
        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 1], [2]])

        def __len__(self) -> int:
            raise AttributeError("not loaded yet")

    made = stoker.DataLoader(Plain(9), batch_sampler=Unsized())
    assert sum(1 for _ in made) == 2  # list() would ask for the length
    assert made.statistics().length is None
