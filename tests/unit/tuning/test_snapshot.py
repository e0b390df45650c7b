"""From sums to what a user is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.feed.meter import WAIT_BOUNDS_S, Meter
from stoker.feed.room import Room
from stoker.tuning.decision import Decision
from stoker.tuning.snapshot import Identity, Now, snapshot
from stoker.tuning.statistics import Statistics, WorkerState

NOW = Now(
    workers=(),
    in_flight=0,
    slot_bytes=0,
    automatic=False,
    peak_workers=0,
    cpus=4.0,
    cpus_source="planted",
    ranks=1,
    live_loaders=1,
    all_workers=0,
    decisions=(),
    findings=(),
)
ROOM = Room(1000, "memory_limit", strict=True)


def told(meter: Meter, now: Now = NOW) -> Statistics:
    return snapshot(meter, ROOM, Identity("Planted", 4, 25), now)


def busy_meter() -> Meter:
    """Two workers' batches: one waited for at the opening, one later; and one of the main's."""
    meter = Meter()
    meter.begin_epoch()
    meter.entered(0.0)
    meter.delivered(0.0, 2.5, 2.0)
    meter.entered(3.5)
    meter.delivered(3.5, 4.0, 0.25)
    meter.entered(5.0)
    meter.clocked(1.0, 0.5)
    meter.loaded(5.0, 6.0)
    meter.made(3.0, 1.0, 0.5, 100)
    meter.made(2.0, 1.5, 0.25, 300)
    meter.note_peaks(5, 700)
    return meter


def test_a_loader_that_has_done_nothing() -> None:
    nothing = told(Meter())
    assert (nothing.batches, nothing.made, nothing.seconds) == (0, 0, 0)
    assert nothing.service_s is nothing.cpu_s is nothing.starved_s is None
    assert nothing.waiting == nothing.rate_per_s == 0
    assert (nothing.memory_limit, nothing.memory_limit_source) == (1000, "memory_limit")
    assert str(nothing)


def test_time_holds_the_opening_too() -> None:
    seen = told(busy_meter())
    assert seen.waited_s == pytest.approx(2.25)
    assert seen.away_s == pytest.approx(2.0)
    assert seen.handling_s == pytest.approx(0.75)
    assert seen.loading_s == pytest.approx(1.0)
    parts_s = seen.waited_s + seen.away_s + seen.handling_s + seen.loading_s
    assert seen.seconds == pytest.approx(parts_s)
    assert seen.seconds == pytest.approx(6.0)


def test_batches_of_workers_and_of_the_main_process_count_together() -> None:
    seen = told(busy_meter())
    assert (seen.epochs, seen.batches, seen.made) == (1, 3, 3)
    assert seen.service_s == pytest.approx((3.0 + 2.0 + 1.0) / 3)
    assert seen.cpu_s == pytest.approx((1.0 + 1.5 + 0.5) / 3)
    assert seen.starved_s == pytest.approx(0.75 / 2)
    assert (seen.batch_bytes, seen.total_bytes) == (300, 400)
    assert (seen.peak_in_flight, seen.peak_slot_bytes) == (5, 700)
    assert (seen.batch_size, seen.length) == (4, 25)


def test_waits_are_pairs_of_a_bound_and_a_count() -> None:
    seen = told(busy_meter())
    assert tuple(bound for bound, _ in seen.waits) == WAIT_BOUNDS_S
    assert {bound: count for bound, count in seen.waits if count} == {3.0: 1, 0.3: 1}


def test_a_worker_that_leaves_does_not_serve() -> None:
    workers = (
        WorkerState(0, 11, "working", 3, 0.1),
        WorkerState(1, 12, "leaving", 3, 0.1),
        WorkerState(2, 13, "starting"),
    )
    seen = told(Meter(), replace(NOW, workers=workers, automatic=True, peak_workers=3))
    assert (seen.num_workers, seen.peak_workers, seen.automatic) == (2, 3, True)
    assert seen.workers == workers


def test_decisions_and_findings_are_told() -> None:
    decision = Decision(0, 2, "the step waits", at_s=1.5, batch=9)
    seen = told(Meter(), replace(NOW, decisions=[decision], findings=["the CPUs are odd"]))
    assert seen.decisions == (decision,)
    assert "the CPUs are odd" in seen.remarks
    assert "the step waits" in str(seen)


def test_a_snapshot_does_not_change() -> None:
    meter = busy_meter()
    decisions = [Decision(0, 1, "one")]
    seen = told(meter, replace(NOW, decisions=decisions))
    before = str(seen)
    decisions.append(Decision(1, 2, "two"))
    meter.entered(9.0)
    meter.delivered(9.0, 10.0, 0.5)
    meter.made(1.0, 1.0, 1.0, 9999)
    assert str(seen) == before
    assert seen.waits != told(meter).waits
