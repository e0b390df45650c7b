"""Deaths where the loader chooses the number: the main process makes none that killed a worker."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

from stoker.errors import WorkerDied
from stoker.workers import job
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import begun, loader, pids, reasons, still
from tests.datasets import Drawing
from tests.faults.killing import DyingOnce, Gate, Once, expected, kill_self
from tests.faults.scripts import are_gone

__all__ = ["still"]
pytestmark = pytest.mark.usefixtures("still")
LENGTH = 60


def rest_of(iterator: Any, first: Any) -> list[Any]:
    return [first, *map(copied, iterator)]


def test_every_batch_is_the_same() -> None:
    dataset = DyingOnce(LENGTH, 22)
    made = loader(dataset, batch_size=4)
    torch.manual_seed(3)
    batches = rest_of(*begun(made))
    assert_same(batches, expected(dataset, batch_size=4))
    assert made.statistics().replaced == 1


def test_all_workers_at_once() -> None:
    dataset = DyingOnce(LENGTH, -1)
    made = loader(dataset, batch_size=4)
    torch.manual_seed(3)
    iterator, first = begun(made)
    killed = pids(iterator)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert are_gone(killed, 5)
    assert_same(rest_of(iterator, first), expected(dataset, batch_size=4))


class Deadly(Drawing):
    """Index `at` ends the process that reads it, whichever that is."""

    def __init__(self, length: int, at: int, main_read: list[int]) -> None:
        super().__init__(length)
        self.at = at
        self.main_read = main_read

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is None:
            self.main_read.append(index)
        elif index == self.at:
            kill_self()
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_ends_workers_is_never_made_in_the_main_process(
    workers: int, in_order: bool
) -> None:
    main_read: list[int] = []
    made = loader(Deadly(LENGTH, 29, main_read), batch_size=4, in_order=in_order)
    iterator, _ = begun(made, workers)
    with pytest.raises(WorkerDied, match="this batch has ended two workers") as caught:
        list(iterator)
    assert (caught.value.batch, caught.value.sample) == (7, 29)
    assert 29 not in main_read
    del iterator


def test_a_worker_is_started_for_it_where_all_have_left() -> None:
    """The number goes to none just then; afterwards the main process makes the rest."""
    gate, main_read = Gate(), []

    class Held(DyingOnce):
        def __getitem__(self, index: int) -> Any:
            if get_worker_info() is None:
                main_read.append(index)
            elif index == 13:
                gate.wait(30)
            return super().__getitem__(index)

    dataset = Held(LENGTH, 13)
    made = loader(dataset, batch_size=4)
    torch.manual_seed(3)
    iterator, first = begun(made, 1)
    batches = [first, copied(next(iterator)), copied(next(iterator))]
    iterator.feed.resize(0)
    gate.set()
    batches += [copied(batch) for batch in iterator]
    assert_same(batches, expected(DyingOnce(LENGTH, -1), batch_size=4))
    assert 13 not in main_read
    assert made.statistics().replaced == 1
    assert made.statistics().num_workers == 0


def test_a_start_that_is_killed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once, affinity = Once(2), job._affinity

    def deadly() -> Any:
        once(kill_self)
        return affinity()

    monkeypatch.setattr(job, "_affinity", deadly)
    dataset = DyingOnce(LENGTH, -1)
    made = loader(dataset, batch_size=4)
    torch.manual_seed(3)
    batches = rest_of(*begun(made))
    assert_same(batches, expected(dataset, batch_size=4))
    told = made.statistics()
    assert (told.replaced, told.num_workers) == (2, 2)
    assert not reasons(made)


def test_starts_that_are_always_killed_leave_the_work_to_the_main_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "_affinity", kill_self)
    dataset = DyingOnce(LENGTH, -1)
    made = loader(dataset, batch_size=4)
    torch.manual_seed(3)
    iterator, first = begun(made)
    assert_same(rest_of(iterator, first), expected(dataset, batch_size=4))
    assert made.statistics().num_workers == 0
    assert "a worker ended while it was starting" in reasons(made)[0]
    del iterator


def test_workers_that_were_replaced_stay_for_the_next_epoch() -> None:
    dataset = DyingOnce(LENGTH, 22)
    made = loader(dataset, batch_size=4)
    iterator, first = begun(made)
    rest_of(iterator, first)
    before = pids(iterator)
    del iterator
    iterator = iter(made)
    assert pids(iterator) == before
    assert len(list(iterator)) == LENGTH // 4
