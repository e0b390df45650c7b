"""Workers and loaders that leave, or have just begun; loaders that live side by side."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

import stoker
from stoker.host.facts import Fact
from stoker.host.ranks import CpuShare
from stoker.tuning import account
from tests.contract.alike import assert_same
from tests.contract.test_idle import (
    BATCHES,
    FORK,
    Gated,
    _one_thread,
    begun,
    clock,
    drop_all,
    feed_of,
    let_all_be_made,
    loader,
    tell,
)
from tests.contract.test_pinning import Accelerator, accelerator  # noqa: F401

__all__ = ["_one_thread", "clock"]


def test_workers_that_leave_are_gone_once_their_batches_are_handed_out() -> None:
    made = loader("auto", 1)
    iterator, _ = begun(made)
    next(iterator)
    let_all_be_made(iterator)
    iterator.feed.resize(0)
    for _ in range(BATCHES - 3):
        next(iterator)
    states = [worker.state for worker in made.statistics().workers]
    unsettled = feed_of(iterator).crew.unsettled
    del iterator, made
    assert (states, unsettled) == ([], False)


def test_a_worker_leaves_only_when_it_has_answered_for_an_earlier_epoch() -> None:
    """Its number would be another's before its last answer has come."""
    gate = FORK.Event()
    made = stoker.DataLoader(Gated(24, 8, gate), 2, multiprocessing_context="fork", seed=1)
    iterator, _ = begun(made, 1)
    for _ in range(2):
        next(iterator)  # the worker is at the batch of sample 8 now, or about to be
    iterator.feed.resize(0)
    del iterator
    again = iter(made)
    crew = feed_of(again).crew
    assert [man.leaving for man in crew.men.values()] == [True]
    gate.set()
    assert [int(batch[0, 0]) for batch in again] == list(range(0, 24, 2))
    let_all_be_made(again)
    crew.dismiss()
    assert not crew.men


def test_workers_go_with_their_loader_and_the_pinning_thread(
    accelerator: Accelerator,  # noqa: F811
) -> None:
    """An automatic loader that is dropped after an epoch."""
    made = loader("auto", pin_memory=True)
    iterator, first = begun(made)
    drop_all(iterator)
    closed = feed_of(iterator)
    processes = list(closed.processes)
    stays = weakref.ref(closed)
    del iterator, made, first, closed
    gc.collect()
    alive = [process.is_alive() for process in processes]
    left = [thread for thread in threading.enumerate() if thread.name == "stoker-pin"]
    if left:  # Ends them, so that the next test is spared.
        left[0]._target.__self__._pool.close()  # type: ignore[attr-defined]
        left[0]._target.__self__.close()  # type: ignore[attr-defined]
    assert (alive, left, stays()) == ([False, False], [], None)


def test_a_loader_that_has_just_begun_is_not_idle() -> None:
    made, other = loader(2), loader(0)
    iterator = iter(made)
    let_all_be_made(iterator)
    before = made.statistics().in_flight
    tell(other)
    after = made.statistics().in_flight
    del iterator
    assert after == before > 0


def test_an_automatic_loader_that_was_left_goes_on_with_its_workers(
    clock: Callable[[], None],
) -> None:
    made, other = loader("auto"), loader(0)
    clock()
    iterator, _ = begun(made)
    next(iterator)
    del iterator
    workers = {worker.pid for worker in made.statistics().workers}
    tell(other)
    again = list(made)
    alike = loader(0)
    left = iter(alike)
    next(left), next(left)
    del left
    assert_same(again, list(alike))
    now = {worker.pid for worker in made.statistics().workers}
    del made, again
    assert now == workers


def test_an_automatic_loader_that_was_left_holds_no_slots() -> None:
    made = loader("auto")
    iterator, _ = begun(made)
    next(iterator)
    let_all_be_made(iterator)
    del iterator
    slot_bytes = made.statistics().slot_bytes
    del made
    assert slot_bytes == 0


def plant_cpus(monkeypatch: pytest.MonkeyPatch, cpus: float) -> None:
    share = CpuShare(Fact(1, "planted"), Fact(cpus, "the planted CPUs"))
    monkeypatch.setattr(account, "cpu_share", lambda: share)


def test_live_loaders_share_the_cpus(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[], None]
) -> None:
    plant_cpus(monkeypatch, 8.0)
    one, two = loader("auto"), loader("auto")
    first, second = iter(one), iter(two)
    next(first)
    next(second)
    governor = one._account.governor
    two._account.meter.recent = None
    assert governor._cpus() == (8.0, "the planted CPUs")
    two._account.meter.open_window()
    two._account.meter.totals.away_s += 2.0
    two._account.meter.totals.cpu_s += 5.0
    two._account.meter.close_window(workers=3)
    cpus, source = governor._cpus()
    assert cpus == pytest.approx(5.5)
    assert "1 other live loader" in source
    two._account.meter.recent = None
    two._account.meter.open_window()
    two._account.meter.totals.away_s += 1.0
    two._account.meter.totals.cpu_s += 50.0
    two._account.meter.close_window(workers=3)
    assert governor._cpus()[0] == pytest.approx(4.0), "no less than an equal share"
    monkeypatch.setattr(account, "ACTIVE_S", -1.0)
    assert governor._cpus() == (8.0, "the planted CPUs")
    del first, second
