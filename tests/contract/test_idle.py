"""What loaders that nobody asks for batches hold, and what becomes of what they had ready."""

from __future__ import annotations

import collections
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from stoker.errors import WorkerDied
from stoker.tuning import account
from tests.contract.alike import assert_same, copied
from tests.contract.test_pinning import Accelerator, accelerator  # noqa: F401
from tests.contract.test_resizing import Augmented, all_come_up
from tests.datasets import Plain

FORK = multiprocessing.get_context("fork")
LARGE = 20_000  # random numbers of a sample: its batch lies in a slot
BATCHES = 12
BATCH_SIZE = 2

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
each_way = pytest.mark.parametrize("num_workers", [2, "auto"])


def loader(num_workers: Any, drawn: int = LARGE, **options: Any) -> Any:
    if num_workers:
        options = {"multiprocessing_context": "fork", "persistent_workers": True} | options
    return stoker.DataLoader(
        Augmented(BATCHES * BATCH_SIZE, drawn),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        seed=11,
        **options,
    )


def expected(drawn: int = LARGE, epochs: int = 1) -> list[Any]:
    made = loader(0, drawn)
    return [batch for _ in range(epochs) for batch in made]


def begun(made: Any, workers: int = 2) -> tuple[Any, Any]:
    """An iterator whose workers serve, and its first batch."""
    iterator = iter(made)
    first = next(iterator)
    if made._automatic:
        iterator.feed.resize(workers, first)
        all_come_up(iterator)
    return iterator, first


def feed_of(iterator: Any) -> Any:
    feed = iterator.feed
    return feed.feed if hasattr(feed, "feed") else feed


def let_all_be_made(iterator: Any) -> None:
    """Until the workers have answered all that they were asked for."""
    feed = feed_of(iterator)
    while any(feed._dispatcher.running(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))
    while feed._dispatcher._pinning:
        feed._handle(feed._pool.wait(10))


def slots_seen_by(pid: int) -> int:
    """How many pieces of slots' memory a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:stoker")


def drop_all(iterator: Any) -> None:
    """Asks for every batch and keeps none, not even the last."""
    collections.deque(iterator, maxlen=0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Batches as large as these would be made by torch's threads, beside busy workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets every other loader be idle; what is called then is told on the next batch."""

    def all_are_idle() -> None:
        monkeypatch.setattr(account, "IDLE_S", -1.0)

    monkeypatch.setattr(account, "_ACCOUNTS", {})
    return all_are_idle


def tell(made: Any) -> None:
    """What a loader does every half a second while it is asked for batches."""
    made._account.tell()


@each_way
def test_after_an_epoch_workers_stay_and_hold_no_slots(num_workers: Any) -> None:
    made = loader(num_workers)
    iterator, first = begun(made)
    got = [copied(first)]
    del first
    got += map(copied, iterator)
    told = made.statistics()
    assert told.num_workers == 2
    assert told.peak_slot_bytes > 0
    assert (told.slot_bytes, told.in_flight) == (0, 0)
    assert_same(got, expected())


@each_way
def test_what_the_consumer_kept_stays_valid_into_the_next_epoch(num_workers: Any) -> None:
    made = loader(num_workers)
    iterator, first = begun(made)
    kept = [first, *iterator]
    assert made.statistics().slot_bytes <= BATCHES * (made.statistics().batch_bytes + 65536)
    again = list(made)
    wanted = expected(epochs=2)
    assert_same(kept, wanted[:BATCHES])
    assert_same(again, wanted[BATCHES:])
    del first, kept, again
    drop_all(iter(made))
    assert made.statistics().slot_bytes == 0


@pytest.mark.parametrize(
    "num_workers",
    [
        2,
        "auto",
    ],
)
def test_the_next_epoch_has_the_same_workers(num_workers: Any) -> None:
    made = loader(num_workers)
    iterator, first = begun(made)
    drop_all(iterator)
    before = {worker.pid for worker in made.statistics().workers}
    del iterator, first
    drop_all(iter(made))
    after = {worker.pid for worker in made.statistics().workers}
    del made
    assert after == before


def mapped_in_the_end(pids: list[int]) -> list[int]:
    """Slots that workers have mapped once they have read what they were sent, at best none."""
    deadline = time.monotonic() + 1
    while any(map(slots_seen_by, pids)) and time.monotonic() < deadline:
        time.sleep(0.001)
    return list(map(slots_seen_by, pids))


@linux
@each_way
def test_after_an_epoch_workers_have_no_slot_mapped(num_workers: Any) -> None:
    made = loader(num_workers)
    iterator, first = begun(made)
    pids = [process.pid for process in feed_of(iterator).processes]
    del first
    drop_all(iterator)
    assert made.statistics().slot_bytes == 0
    assert mapped_in_the_end(pids) == [0, 0]


@linux
@each_way
def test_the_last_batch_of_a_loop_keeps_no_worker_from_giving_back(num_workers: Any) -> None:
    made = loader(num_workers)
    iterator, batch = begun(made)
    pids = [process.pid for process in feed_of(iterator).processes]
    for batch in iterator:  # noqa: B007
        pass
    mapped, slot_bytes = mapped_in_the_end(pids), made.statistics().slot_bytes
    right = torch.equal(batch[1], expected()[-1][1])
    del iterator, made, batch
    assert right
    assert (mapped, slot_bytes) == ([0] * len(pids), 0)


class Gated(Plain):
    def __init__(self, length: int, at: int, gate: Any) -> None:
        super().__init__(length)
        self.at = at
        self.gate = gate

    def __getitem__(self, index: int) -> Any:
        if index == self.at and not self.gate.wait(30):
            raise TimeoutError("nobody opened the gate")
        return super().__getitem__(index)


class Reports(Plain):
    """The sample with index `at` is how many pieces of slots its worker has mapped."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + slots_seen_by(os.getpid()) * 1000.0


def mean_of(batch: torch.Tensor) -> int:
    return int(batch[0, 0, 0])


@linux
def test_a_worker_gives_its_slots_back_before_its_next_batch() -> None:
    shape = (2, 20_000)
    made = stoker.DataLoader(
        Reports(6, shape), num_workers=1, multiprocessing_context="fork", persistent_workers=True
    )
    for _ in range(2):
        counts = [value // 1000 for value in map(mean_of, made)]
        assert counts[0] == 0
        assert max(counts) > 0
    assert made.statistics().slot_bytes == 0


@each_way
@pytest.mark.parametrize("drawn", [1, LARGE])
def test_an_idle_loader_gives_back_what_it_had_ready_and_makes_it_again(
    clock: Callable[[], None], num_workers: Any, drawn: int
) -> None:
    made, other = loader(num_workers, drawn), loader(0)
    iterator, first = begun(made)
    got = [first, next(iterator)]
    kept = copied(got)
    let_all_be_made(iterator)
    assert made.statistics().in_flight > 0
    running = iter(other)
    next(running)
    tell(other)
    assert made.statistics().in_flight > 0, "it was asked for a batch a moment ago"
    clock()
    tell(other)
    told = made.statistics()
    assert told.in_flight == 0
    # What the consumer kept is all that is left.
    assert told.slot_bytes <= 2 * told.batch_bytes + 2 * 65536
    assert_same(got, kept)
    got += list(iterator)
    assert_same(got, expected(drawn))
    assert made.statistics().num_workers == 2
    del iterator, running


@each_way
def test_it_may_be_told_at_any_batch_and_any_time(
    clock: Callable[[], None], num_workers: Any
) -> None:
    made, other = loader(num_workers, prefetch_factor=3), loader(0)
    clock()
    wanted = expected(epochs=2)
    for epoch in range(2):
        iterator, first = begun(made)
        got = [first]
        for number in range(1, BATCHES):
            if number % 3 == 1:
                let_all_be_made(iterator)
            tell(other)
            if number % 4 == 2:
                tell(other)
            got.append(next(iterator))
        with pytest.raises(StopIteration):
            next(iterator)
        assert_same(got, wanted[epoch * BATCHES :][:BATCHES])
        del iterator


@pytest.mark.parametrize("in_order", [True, False])
def test_out_of_order_every_batch_comes_once(clock: Callable[[], None], in_order: bool) -> None:
    made, other = loader(2, in_order=in_order), loader(0)
    clock()
    iterator, first = begun(made)
    got = [first]
    for batch in iterator:
        got.append(batch)
        let_all_be_made(iterator)
        tell(other)
    keys = sorted(float(batch[1][0, 0]) for batch in got)
    assert keys == sorted(float(batch[1][0, 0]) for batch in expected())


def test_an_error_that_was_ready_comes_in_its_place(clock: Callable[[], None]) -> None:
    from tests.datasets import Failing

    made = stoker.DataLoader(
        Failing(8, 3), num_workers=2, multiprocessing_context="fork", prefetch_factor=4
    )
    clock()
    iterator = iter(made)
    got = [int(next(iterator)[0, 0])]
    let_all_be_made(iterator)
    tell(loader(0))
    got += [int(next(iterator)[0, 0]) for _ in range(2)]
    with pytest.raises(ValueError, match="sample 3 is broken"):
        next(iterator)
    assert got + [int(batch[0, 0]) for batch in iterator] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "num_workers",
    [2, "auto"],
)
def test_pinned_batches_are_given_back_too(
    accelerator: Accelerator,  # noqa: F811
    clock: Callable[[], None],
    num_workers: Any,
) -> None:
    made, other = loader(num_workers, pin_memory=True), loader(0)
    clock()
    iterator, first = begun(made)
    got = [first]
    for number in range(1, BATCHES):
        if number in (2, 5, 6):
            let_all_be_made(iterator)
            tell(other)
            assert made.statistics().in_flight == 0
        got.append(next(iterator))
    assert_same(got, expected())
    assert all(accelerator.has_pinned(batch[1]) for batch in got)
    assert list(iterator) == []
    if num_workers == "auto":
        feed_of(iterator).close()
    del iterator, made


def test_a_batch_that_waits_to_be_pinned_is_not_given_back(
    accelerator: Accelerator,  # noqa: F811
    clock: Callable[[], None],
) -> None:
    """The thread stands still at one batch, so that those behind it are in their slots still."""
    going, at_work = threading.Event(), threading.Event()
    large: list[int] = []

    def stand_still(tensor: torch.Tensor) -> None:
        large.append(tensor.numel()) if tensor.numel() == BATCH_SIZE * LARGE else None
        if len(large) == 3:
            at_work.set()
            going.wait(5)

    made, other = loader(1, pin_memory=True, prefetch_factor=4), loader(0)
    clock()
    accelerator.before = stand_still
    iterator, first = begun(made)
    got, error = [first, next(iterator)], None
    feed = feed_of(iterator)
    while any(feed._dispatcher.running(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))
    assert at_work.wait(5)
    tell(other)
    going.set()
    try:
        got += list(iterator)
    except Exception as raised:
        error = repr(raised)
    del iterator, made, feed
    assert error is None
    assert_same(got, expected())


class Numbers(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.full((20_000,), float(number)) for number in range(8)])


def test_what_an_iterable_data_set_yielded_is_kept(clock: Callable[[], None]) -> None:
    made = stoker.DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork")
    clock()
    iterator = iter(made)
    got = [next(iterator)]
    let_all_be_made(iterator)
    before = made.statistics().in_flight
    tell(loader(0))
    assert made.statistics().in_flight == before > 0
    got += list(iterator)
    assert [int(batch[0, 0]) for batch in got] == list(range(8))


def test_another_threads_loader_is_left_alone(clock: Callable[[], None]) -> None:
    made, other = loader(2), loader(0)
    clock()
    iterator, first = begun(made)
    let_all_be_made(iterator)
    before = made.statistics().in_flight
    thread = threading.Thread(target=tell, args=(other,))
    thread.start()
    thread.join()
    assert made.statistics().in_flight == before > 0
    assert_same([first, *iterator], expected())


@pytest.mark.parametrize("max_restarts", [3, 0])
def test_a_worker_that_died_is_the_affair_of_its_own_loader(
    clock: Callable[[], None], max_restarts: int
) -> None:
    """Another loader, that has it give its batches back, is never troubled."""
    made, other = loader(2, max_restarts=max_restarts), loader(0)
    clock()
    iterator, first = begun(made)
    let_all_be_made(iterator)
    process = feed_of(iterator).processes[0]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    tell(other)
    error = None
    try:
        batches = [first, *iterator]
    except WorkerDied as raised:
        error, batches = str(raised), []
    feed_of(iterator).close()
    del iterator, made, first
    if max_restarts:
        assert error is None
        assert_same(batches, expected())
    else:
        assert error is not None


def test_workers_that_left_do_not_leave_what_was_put_back_undone(
    clock: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workers leave: one with a batch ready, the other at one. The first is put back."""
    gate = FORK.Event()
    made = stoker.DataLoader(
        Gated(12, 4, gate),
        num_workers="auto",
        multiprocessing_context="fork",
        prefetch_factor=1,
    )
    clock()
    iterator = iter(made)
    got = [next(iterator)]
    iterator.feed.resize(2, got[0])
    all_come_up(iterator)
    got += [next(iterator), next(iterator)]
    feed = feed_of(iterator)
    while 3 not in feed._answers:
        feed._handle(feed._pool.wait(10))
    iterator.feed.resize(0)
    tell(loader(0))
    gate.set()
    feed._timeout_s = 1.0  # in place of a hang
    error = None
    try:
        got += list(iterator)
    except RuntimeError as raised:
        error = str(raised)
    del iterator, made, feed
    assert error is None
    assert [int(batch[0, 0]) for batch in got] == list(range(12))
