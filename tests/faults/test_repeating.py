"""Workers of an iterable data set are replaced where it repeats itself, else the error says why."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper

from stoker.errors import WaitTimeout, WorkerDied
from tests.contract.alike import assert_same, copied
from tests.contract.methods import loader, many_workers
from tests.datasets import draw_all
from tests.faults.killing import FORK, Once, kill_self
from tests.faults.scripts import are_gone


class Shards(IterableDataset[Any]):
    """Worker w yields `lengths[w]` samples with random numbers; one dies at `at` of `whom`."""

    def __init__(
        self,
        lengths: list[int],
        whom: int = -1,
        at: int = 0,
        end: Callable[[], Any] = kill_self,
        wide: int = 1,
        times: int = 1,
    ) -> None:
        self.lengths = lengths
        self.whom = whom
        self.at = at
        self.end = end
        self.wide = wide
        self.once = Once(times)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = info.id if info is not None else 0
        for number in range(self.lengths[worker]):
            if worker == self.whom and number == self.at:
                self.once(self.end)
            yield torch.full((self.wide,), 100.0 * worker + number), *draw_all()


def epoch(dataset: Any, **options: Any) -> tuple[list[Any], Any]:
    """The batches of one epoch, and the loader."""
    made = loader(dataset, "fork", **options)
    torch.manual_seed(3)
    return [copied(batch) for batch in made], made


@many_workers
@pytest.mark.parametrize("at", [0, 1, 7, 20, 21])
@pytest.mark.parametrize("whom", [0, 2])
@pytest.mark.parametrize("wide", [1, 20_000], ids=["small", "slots"])
def test_its_shard_goes_on_where_it_was(at: int, whom: int, wide: int) -> None:
    lengths = [22, 9, 22]
    options = {"num_workers": 3, "batch_size": 2, "prefetch_factor": 2}
    whole, _ = epoch(Shards(lengths, wide=wide), **options)
    batches, made = epoch(Shards(lengths, whom, at, wide=wide), **options)
    assert_same(batches, whole)
    assert made.statistics().replaced == 1


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_however_samples_are_batched(batch_size: int | None, drop_last: bool) -> None:
    if batch_size is None and drop_last:
        pytest.skip("torch refuses it")
    options = {"num_workers": 2, "batch_size": batch_size, "drop_last": drop_last}
    whole, _ = epoch(Shards([14, 11]), **options)
    batches, made = epoch(Shards([14, 11], 1, 6), **options)
    assert_same(batches, whole)
    assert made.statistics().replaced == 1


def test_twice_in_one_shard() -> None:
    options = {"num_workers": 2, "batch_size": 2}
    whole, _ = epoch(Shards([30, 30]), **options)

    class Twice(Shards):
        def __iter__(self) -> Iterator[Any]:
            for sample in super().__iter__():
                if int(sample[0]) in (107, 121):
                    onces[int(sample[0])](kill_self)
                yield sample

    onces = {107: Once(), 121: Once()}
    batches, made = epoch(Twice([30, 30]), **options)
    assert_same(batches, whole)
    assert made.statistics().replaced == 2


@pytest.mark.parametrize("whom", [[0], [0, 1]], ids=str)
def test_a_death_while_idle(whom: list[int]) -> None:
    options = {"num_workers": 2, "batch_size": 2, "prefetch_factor": 3}
    whole, _ = epoch(Shards([20, 20]), **options)
    made = loader(Shards([20, 20]), "fork", **options)
    torch.manual_seed(3)
    iterator = iter(made)
    batches = [copied(next(iterator)) for _ in range(3)]
    feed = iterator.feed
    while any(feed._pool.busy(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))
    killed = [iterator._workers[at].pid for at in whom]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert are_gone(killed, 5)
    batches += [copied(batch) for batch in iterator]
    assert_same(batches, whole)
    assert made.statistics().replaced == len(whom)
    del iterator, feed


def test_a_worker_whose_shard_is_over_is_not_missed() -> None:
    options = {"num_workers": 2, "batch_size": 2, "prefetch_factor": 4}
    made = loader(Shards([20, 2]), "fork", **options)
    torch.manual_seed(3)
    iterator = iter(made)
    batches = [copied(next(iterator)) for _ in range(6)]
    pid = iterator._workers[1].pid
    os.kill(pid, signal.SIGKILL)
    assert are_gone([pid], 5)
    batches += [copied(batch) for batch in iterator]
    assert_same(batches, epoch(Shards([20, 2]), **options)[0])
    assert made.statistics().replaced == 0


def test_errors_are_repeated_too() -> None:
    """An exception is what a batch of it was; the generator has ended then."""

    class Failing(Shards):
        def __iter__(self) -> Iterator[Any]:
            for number, sample in enumerate(super().__iter__()):
                if number == 5 and int(sample[0]) >= 100:
                    raise ValueError("broken")
                yield sample

    options = {"num_workers": 2, "batch_size": 1}
    made = loader(Failing([12, 12], 0, 9), "fork", **options)
    torch.manual_seed(3)
    iterator, seen = iter(made), []
    while True:
        try:
            seen.append(int(next(iterator)[0]))
        except StopIteration:
            break
        except ValueError:
            seen.append(-1)
    assert [x for x in seen if x >= 100 or x == -1] == [100, 101, 102, 103, 104, -1]
    assert [x for x in seen if 0 <= x < 100] == list(range(12))
    assert made.statistics().replaced == 1


class NeverTheSame(Shards):
    """Draws from a generator that no seed reaches."""

    def __iter__(self) -> Iterator[Any]:
        own = random.Random(os.urandom(8))
        for sample in super().__iter__():
            yield sample, own.random()


class Shorter(Shards):
    """A queue, say: what was taken from it is gone."""

    def __iter__(self) -> Iterator[Any]:
        length = self.lengths[0] if first.acquire(block=False) else 2
        for number in range(length):
            if number == self.at:
                self.once(self.end)
            yield number


first = FORK.Semaphore(1)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (lambda: NeverTheSame([20], 0, 9), "its first 9 batches are not what they were before"),
        (lambda: Shorter([20], 0, 9), "it ended after 2 batches, and had yielded 9 before"),
    ],
    ids=["another", "shorter"],
)
def test_one_that_does_not_repeat_itself_is_an_error(dataset: Any, why: str) -> None:
    seen: list[Any] = []
    with pytest.raises(WorkerDied, match="does not repeat itself") as caught:
        seen.extend(loader(dataset(), "fork", 1, batch_size=1))
    text = str(caught.value)
    assert why in text
    assert "SIGKILL" in text
    assert caught.value.exitcode == -signal.SIGKILL
    assert len(seen) <= 9


def test_what_differs_in_one_value_of_one_batch_is_seen() -> None:
    runs = FORK.Semaphore(1)

    class Counts(Shards):
        def __iter__(self) -> Iterator[Any]:
            is_first = runs.acquire(block=False)
            for number, sample in enumerate(super().__iter__()):
                if number == 3:
                    sample[0][-1] += is_first
                yield sample

    with pytest.raises(WorkerDied, match="does not repeat itself"):
        list(loader(Counts([20], 0, 9, wide=50_000), "fork", 1, batch_size=1))


@pytest.mark.parametrize("keeps", [False, True], ids=["stateless", "counts its epochs"])
def test_at_the_start_of_a_later_epoch(keeps: bool) -> None:
    """Nothing was delivered to compare with; a data set that keeps something can't be known."""

    class Epochs(Shards):
        count = 0

        def __iter__(self) -> Iterator[Any]:
            if keeps:
                self.count += 1
            for sample in super().__iter__():
                yield *sample, self.count

    options = {"num_workers": 1, "batch_size": 2, "persistent_workers": True}
    made = loader(Epochs([8]), "fork", **options)
    torch.manual_seed(3)
    first = [copied(batch) for batch in made]
    pid = made._iterator._workers[0].pid
    os.kill(pid, signal.SIGKILL)
    assert are_gone([pid], 5)
    if keeps:
        with pytest.raises(WorkerDied, match="may have kept something of the epoch before"):
            list(made)
    else:
        second = [copied(batch) for batch in made]
        reference = loader(Epochs([8]), "fork", **options)
        torch.manual_seed(3)
        expect = [[copied(batch) for batch in reference] for _ in range(2)]
        assert_same([first, second], expect)
        del reference
    del made


def test_after_an_epoch_that_was_left_nothing_is_known_of_its_data_set() -> None:
    made = loader(Shards([8]), "fork", num_workers=1, batch_size=2, persistent_workers=True)
    iterator = iter(made)
    next(iterator)
    pid = iterator._workers[0].pid
    os.kill(pid, signal.SIGKILL)
    assert are_gone([pid], 5)
    with pytest.raises(WorkerDied, match="may have kept something of the epoch before"):
        list(made)
    del iterator, made


def test_repeating_is_not_counted_as_a_time_out() -> None:
    """Every sample takes its time, and all of them together longer than the time-out."""

    class Slow(Shards):
        def __iter__(self) -> Iterator[Any]:
            for sample in super().__iter__():
                time.sleep(0.1)
                yield sample

    options = {"num_workers": 1, "batch_size": 1, "timeout": 1}
    batches, made = epoch(Slow([17], 0, 15), **options)
    assert len(batches) == 17
    assert made.statistics().replaced == 1


def test_a_repeat_that_hangs_is_a_time_out() -> None:
    class Hangs(Shards):
        def __iter__(self) -> Iterator[Any]:
            again = not self.once.happened
            for number, sample in enumerate(super().__iter__()):
                if number == 3 and not again:
                    time.sleep(600)
                yield sample

    with pytest.raises(WaitTimeout):
        list(loader(Hangs([18], 0, 9), "fork", 1, batch_size=1, timeout=1))


def test_data_pipes_are_iterated_again_under_their_seed() -> None:
    options = {"num_workers": 2, "batch_size": 3}
    torch.manual_seed(5)
    batches = [copied(batch) for batch in loader(pipe(once_at_37), "fork", **options)]
    torch.manual_seed(5)
    assert_same(batches, [copied(batch) for batch in loader(pipe(int), "fork", **options)])
    assert sorted(int(x) for batch in batches for x in batch) == list(range(60))


def pipe(function: Any) -> Any:
    return IterableWrapper(range(60)).shuffle().sharding_filter().map(function)


def once_at_37(number: int) -> int:
    if number == 37:
        once(kill_self)
    return number


once = Once()
