"""What a loader may use, from planted facts, and what it writes down of its decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stoker.feed.meter import Meter
from stoker.feed.room import Room
from stoker.feed.window import Window
from stoker.host.facts import Fact
from stoker.host.limits import LimitFacts
from stoker.host.memory import MemoryFacts
from stoker.host.ranks import CpuShare
from stoker.tuning import governor
from stoker.tuning.decision import Decision
from stoker.tuning.governor import Least, LoaderGovernor
from stoker.tuning.known import Known

GIB = 1 << 30


@dataclass
class Machine:
    """What the facts say, and a clock."""

    memory_bytes: int = 64 * GIB
    descriptors: int | None = 1_000_000
    used: int | None = 100
    cpus: float = 8.0
    ranks: int = 1
    now: float = 100.0
    looks: int = 0

    def memory_facts(self) -> MemoryFacts:
        self.looks += 1
        fact = Fact(self.memory_bytes, "planted memory")
        return MemoryFacts(fact, fact, Fact(None, "none"))

    def limit_facts(self) -> LimitFacts:
        return LimitFacts(
            Fact(self.descriptors, "planted"),
            Fact(self.used, "planted"),
            Fact(None, "planted"),
            Fact(("fork",), "planted"),
            Fact("fork", "planted"),
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    planted = Machine()
    monkeypatch.setattr(governor, "memory_facts", planted.memory_facts)
    monkeypatch.setattr(governor, "limit_facts", planted.limit_facts)
    monkeypatch.setattr(governor.time, "perf_counter", lambda: planted.now)
    return planted


def governed(
    machine: Machine,
    *,
    least: Least = Least(0, ""),  # noqa: B008
    others: Callable[[], tuple[float, int]] = lambda: (0.0, 0),
    room: Room | None = None,
    method: str = "fork",
    known: Known | None = None,
) -> LoaderGovernor:
    share = CpuShare(Fact(machine.ranks, "planted"), Fact(machine.cpus, "planted CPUs"))
    room = room or Room(GIB, "memory_limit", strict=True)
    return LoaderGovernor(least, share, others, room, Meter(), [], method, known)


def test_the_loaders_own_limit_where_nothing_else_is_short(machine: Machine) -> None:
    bounds = governed(machine)._bounds(7)
    assert bounds.workers == 32
    assert bounds.workers_source == "the loader's own limit for 8 CPUs"
    assert (bounds.cpus, bounds.cpus_source) == (8.0, "planted CPUs")
    assert (bounds.least, bounds.batches_left) == (0, 7)


@pytest.mark.parametrize(("cpus", "workers"), [(0.5, 32), (12.0, 48), (200.0, 256)])
def test_the_own_limit_goes_with_the_cpus(machine: Machine, cpus: float, workers: int) -> None:
    machine.cpus = cpus
    bounds = governed(machine)._bounds(None)
    assert bounds.workers == workers
    assert f"{cpus:g} CPUs" in bounds.workers_source


def test_memory_that_is_left_bounds_the_workers(machine: Machine) -> None:
    machine.memory_bytes = GIB
    bounds = governed(machine)._bounds(None)
    assert bounds.workers == 8  # half of it, 64 MiB each
    assert bounds.workers_source.startswith("memory: 1.1 GB are left")
    assert "planted memory" in bounds.workers_source


def test_ranks_share_the_memory(machine: Machine) -> None:
    machine.memory_bytes, machine.ranks = GIB, 4
    assert governed(machine)._bounds(None).workers == 2


def test_workers_there_are_have_their_memory_already(machine: Machine) -> None:
    made = governed(machine)
    made.performed(6)
    machine.memory_bytes = GIB // 4
    assert made._bounds(None).workers == 6 + 2


def test_descriptors_bound_the_workers(machine: Machine) -> None:
    machine.descriptors, machine.used = 256, 180
    bounds = governed(machine)._bounds(None)
    assert bounds.workers == 6  # two each, and 64 are left alone
    assert bounds.workers_source == "the limit of open files: 76 are left"
    machine.used = 250
    assert governed(machine)._bounds(None).workers == 0


@pytest.mark.parametrize("unknown", ["descriptors", "used"])
def test_descriptors_that_nobody_counts_bound_nothing(machine: Machine, unknown: str) -> None:
    setattr(machine, unknown, None)
    assert governed(machine)._bounds(None).workers == 32


def test_memory_for_batches_bounds_the_workers(machine: Machine) -> None:
    room = Room(GIB, "memory_limit", strict=True)
    made = governed(machine, room=room)
    assert made._bounds(None).workers == 32
    room.learn(GIB // 5)
    bounds = made._bounds(None)
    assert bounds.workers == 4
    assert bounds.workers_source == "the memory for batches (memory_limit): 5 fit"
    room.learn(2 * GIB)
    assert made._bounds(None).workers == 0


def test_what_needs_a_worker_has_one_whatever_is_short(machine: Machine) -> None:
    machine.memory_bytes = 0
    made = governed(machine, least=Least(1, "timeout= can only be kept by workers"))
    bounds = made._bounds(None)
    assert (bounds.workers, bounds.least, made.least) == (1, 1, 1)
    assert [decision.workers for decision in made._decisions] == [1]
    assert "timeout=" in made._decisions[0].reason


def test_facts_are_read_again_after_a_while(machine: Machine) -> None:
    made = governed(machine)
    for _ in range(5):
        made._bounds(None)
    assert machine.looks == 1
    machine.now += 1.9
    machine.memory_bytes = GIB
    assert made._bounds(None).workers == 32
    machine.now += 0.2
    assert made._bounds(None).workers == 8
    assert machine.looks == 2


def test_other_loaders_leave_what_they_do_not_use(machine: Machine) -> None:
    used = [0.0, 0]
    made = governed(machine, others=lambda: (used[0], int(used[1])))
    assert made._cpus() == (8.0, "planted CPUs")
    used[:] = [3.0, 2]
    assert made._cpus() == (5.0, "planted CPUs; 2 other live loaders use 3.0 of them")
    used[:] = [30.0, 3]
    assert made._cpus()[0] == 2.0


def test_a_start_costs_what_it_was_measured_to(machine: Machine) -> None:
    assert governed(machine, method="fork")._bounds(None).start_s < 0.1
    made = governed(machine, method="spawn")
    assert made._bounds(None).start_s > 1
    made.came_up(4, 2.0)
    assert made._bounds(None).start_s == 0.5
    made.came_up(0, 0.0)
    assert made._bounds(None).start_s > 0


def window(**changes: Any) -> Window:
    usual: dict[str, Any] = {
        "workers": 0,
        "batches": 8,
        "seconds": 1.0,
        "waited_s": 0.0,
        "away_s": 0.5,
        "handling_s": 0.0,
        "made": 8,
        "busy_s": 0.5,
        "cpu_s": 0.5,
        "starved_s": None,
        "order_s": 0.0,
        "batch_bytes": 1000,
    }
    return Window(**usual | changes)


def decided(made: LoaderGovernor, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """From now on the controller answers so."""
    left = list(answers)
    monkeypatch.setattr(made._controller, "observe", lambda *_: left.pop(0))


def test_decisions_are_kept_with_time_and_batch_and_logged(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = governed(machine)
    more = Decision(0, 3, "the step waits", (("away_s", 0.5),))
    decided(made, monkeypatch, None, more, Decision(3, 3, "that is enough"))
    caplog.set_level(logging.INFO, logger="stoker")
    assert made.review(window(), 10) is None
    assert made._decisions == []
    machine.now += 2.5
    made._meter.totals.batches = 17
    assert made.review(window(), 9) == 3
    made.performed(3)
    machine.now += 1.0
    made._meter.totals.batches = 40
    assert made.review(window(workers=3), 8) is None, "to stay is no change"
    first, second = made._decisions
    assert (first.before, first.workers, first.reason) == (0, 3, "the step waits")
    assert first.evidence == (("away_s", 0.5),)
    assert (first.at_s, first.batch) == (2.5, 17)
    assert (second.at_s, second.batch) == (3.5, 40)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "num_workers 0 -> 3 at batch 17: the step waits",
        "num_workers 3 -> 3 at batch 40: that is enough",
    ]


def test_it_begins_with_what_is_known(machine: Machine) -> None:
    made = governed(machine, known=Known(4, "2026-12-01", 900.0))
    assert made.begin(100) == 4
    assert made._decisions[0].reason.startswith("4 workers to begin with: `stoker tune` found")
    assert made.begin(99) is None
    assert governed(machine).begin(100) is None


def test_what_is_short_bounds_what_is_known(machine: Machine) -> None:
    machine.memory_bytes = GIB // 4
    assert governed(machine, known=Known(4, "2026-12-01", 900.0)).begin(100) == 2
    machine.memory_bytes = 0
    assert governed(machine, known=Known(4, "2026-12-01", 900.0)).begin(100) is None


def test_a_change_is_told_on(machine: Machine) -> None:
    made, told = governed(machine), []
    made.changed = told.append
    made.performed(2)
    made.performed(0)
    assert told == [2, 0]


def test_what_was_refused_is_not_asked_for_again(machine: Machine) -> None:
    made = governed(machine)
    made.performed(2)
    made.refused("a batch does not pickle")
    last = made._decisions[-1]
    assert (last.before, last.workers) == (2, 0)
    assert last.reason == "no workers: a batch does not pickle"
    made.performed(0)
    made.refused("the system gives no more", most=3)
    assert (made._decisions[-1].workers, made._decisions[-1].reason) == (
        3,
        "3 workers: the system gives no more",
    )
    for _ in range(50):
        assert not made.review(window(busy_s=0.95, away_s=0.05, cpu_s=0.1), 10_000)


def test_without_a_refusal_such_work_gets_workers(machine: Machine) -> None:
    made = governed(machine)
    asked = [made.review(window(busy_s=0.95, away_s=0.05, cpu_s=0.1), 10_000) for _ in range(50)]
    assert any(asked)


def test_next_window_is_the_controllers(machine: Machine) -> None:
    made = governed(machine)
    assert made.next_window() == made._controller.wanted
