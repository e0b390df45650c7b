"""Further public cases."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch

import stoker
from stoker.feed import iteration
from stoker.tuning import account
from tests.contract.automatic import FORK, begun, epoch_with, needs_still, still
from tests.contract.automatic import loader as automatic
from tests.contract.methods import loader, many_workers
from tests.datasets import Plain

__all__ = ["still"]
IMAGE = (300, 300)


def held(made: Any) -> tuple[int, int]:
    """Batches, and bytes of slots, that a loader keeps now."""
    told = made.statistics()
    return told.in_flight, told.slot_bytes


def right(batches: list[Any], first: int = 0) -> bool:
    return [int(batch[0, 0, 0]) for batch in batches] == list(range(first, first + len(batches)))


@pytest.mark.parametrize("epochs", [1, 3])
def test_c176_an_idle_validation_loader_holds_no_batches(epochs: int) -> None:
    """Persistent workers, as given: they stay, and keep nothing but themselves."""
    val = loader(Plain(24, IMAGE), "fork", batch_size=1, prefetch_factor=4, persistent_workers=True)
    for _ in range(epochs):
        places = []
        for batch in val:
            places.append(batch.data_ptr())
            del batch
        assert len(places) == 24
        assert held(val) == (0, 0)
        assert val.statistics().num_workers == 2
    assert val.statistics().peak_slot_bytes > 0
    del val


@needs_still
@pytest.mark.parametrize("persistent", [True, False])
def test_c176_nor_one_that_chooses_its_number(persistent: bool) -> None:
    val = automatic(
        Plain(24, IMAGE), batch_size=1, prefetch_factor=4, persistent_workers=persistent
    )
    for _ in range(2):
        assert right(epoch_with(val))
        assert held(val) == (0, 0)
        assert val.statistics().num_workers == (2 if persistent else 0)
    assert val.statistics().peak_slot_bytes > 0


def everything_is_made(feed: Any) -> None:
    """Waits until the workers of a feed have made all that they were sent."""
    while any(feed._pool.busy(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))


@many_workers
@pytest.mark.parametrize("chosen", [False, True], ids=["given", "chosen"])
def test_c176_one_that_waits_in_its_middle_gives_its_batches_back(
    chosen: bool, monkeypatch: pytest.MonkeyPatch, still: None
) -> None:
    """While another loader is trained with; then it goes on where it was."""
    monkeypatch.setattr(account, "IDLE_S", 0.0)
    monkeypatch.setattr(account, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(iteration, "_FIRST_TELL_S", 0.0)
    if chosen:
        val = automatic(Plain(40, IMAGE), batch_size=1, prefetch_factor=4)
        iterator, first = begun(val)
    else:
        val = loader(Plain(40, IMAGE), "fork", batch_size=1, prefetch_factor=4)
        iterator = iter(val)
        first = next(iterator).clone()
    got = [first, next(iterator).clone()]
    everything_is_made(iterator.feed.feed if chosen else iterator.feed)
    assert held(val)[0] > 0
    train = stoker.DataLoader(Plain(6), num_workers=0)
    assert len(list(train)) == 6
    assert held(val) == (0, 0)
    got += [batch.clone() for batch in iterator]
    assert len(got) == 40
    assert right(got)


class _Together(Plain):
    """Samples of one round, one for each worker, begin together and take as long."""

    def __init__(self, length: int, workers: int) -> None:
        super().__init__(length, (1,))
        self.workers = workers
        rounds = range(length // workers)
        self.arrived = [FORK.Semaphore(0) for _ in rounds]
        self.may_go = [FORK.Semaphore(0) for _ in rounds]

    def __getitem__(self, index: int) -> torch.Tensor:
        number = index // self.workers
        self.arrived[number].release()
        if self.arrived[number].get_value() == self.workers:
            for _ in range(self.workers):
                self.may_go[number].release()
        assert self.may_go[number].acquire(timeout=20)
        time.sleep(0.03)
        return super().__getitem__(index)


@many_workers
def test_c184_slow_every_nth_batch_is_named() -> None:
    """With N workers that finish together; the pattern, what it means, and the histogram."""
    made = loader(_Together(60, 4), "fork", 4, batch_size=1, prefetch_factor=1)
    iterator = iter(made)
    assert [int(batch) for batch in itertools.islice(iterator, 59)] == list(range(59))
    told = made.statistics()
    [remark] = [remark for remark in told.remarks if "slow every" in remark]
    assert remark.startswith("slow every 4th batch with 4 workers: ")
    assert "since the workers finish together" in remark
    assert "Loading is the bottleneck" in remark
    assert remark in str(told)
    assert sum(count for _, count in told.waits) == 59
    list(iterator)


@many_workers
def test_c184_it_is_not_named_where_the_step_is_the_bottleneck() -> None:
    made = loader(Plain(120, (1,)), "fork", 4, batch_size=1)
    iterator = iter(made)
    for batch in itertools.islice(iterator, 119):
        time.sleep(0.002)  # the step
        del batch
    assert not [remark for remark in made.statistics().remarks if "slow every" in remark]
    list(iterator)


@many_workers
@pytest.mark.parametrize("persistent", [False, True])
def test_c177_tiny_work_with_many_workers_does_not_freeze(persistent: bool) -> None:
    """Samples of 64 KiB that take no time, one a batch, with eight workers."""
    made = loader(Plain(1000, (16384, 1)), "fork", 8, batch_size=1, persistent_workers=persistent)
    for _ in range(1 + persistent):
        numbers = []
        for batch in made:
            assert batch.shape == (1, 16384, 1)
            numbers.append(int(batch[0, -1, 0]))
        assert numbers == list(range(1000))
    del made
