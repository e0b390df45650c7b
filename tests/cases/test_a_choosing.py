"""Public cases of group A: how many workers, and why.

The number is asked of the pure controller, against a simulated machine of which the right one
is known; and once of a real loader, where only what cannot depend on the machine is asserted.
"""

from __future__ import annotations

import logging
import os
import random
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import stoker
from stoker.feed.window import Window
from stoker.tuning.controller import Controller
from stoker.tuning.pattern import remarks
from tests.contract.automatic import FORK, begun, needs_still, still
from tests.datasets import Plain, Sleeping, Slow
from tests.faults.scripts import run
from tests.unit.tuning.invented_statistics import WINDOW, invent
from tests.unit.tuning.simulated import Life, World, live

__all__ = ["still"]


def settled(world: World, *, batches_left: int | None = None, seconds: float = 600) -> Life:
    """What became of a loader in a simulated world."""
    life, controller = live(world, seconds, until_settled=True, batches_left=batches_left)
    assert controller.settled
    return life


def why(life: Life) -> str:
    return life.changes[-1][1].reason


def told_in(world: World, seconds: float = 60) -> tuple[int, list[str]]:
    """The number in the end, and all reasons, those for staying too."""
    controller, workers, reasons, spent_s = Controller(), world.least, [], 0.0
    draw = random.Random(0)
    while spent_s < seconds and not controller.settled:
        window = world.window(workers, *controller.wanted, draw)
        spent_s += window.seconds
        decision = controller.observe(window, world.bounds())
        if decision is not None:
            workers = decision.workers
            controller.changed(workers)
            reasons.append(decision.reason)
    return workers, reasons


# As reported: 32 samples that wait 5 ms each and decode for a fraction of that.
BATCH_OF_32 = {"service_s": 0.176, "cpu": 0.09}


@pytest.mark.parametrize(
    ("step_s", "fewest", "most"), [(0.18, 1, 2), (0.06, 3, 4), (0.02, 9, 10)], ids=str
)
def test_c001_the_smallest_number_that_removes_the_wait(
    step_s: float, fewest: int, most: int
) -> None:
    world = World(cpus=8, away_s=step_s, **BATCH_OF_32)
    life = settled(world)
    assert fewest <= life.workers <= most
    assert world.rate_per_s(life.workers) >= 0.95 * world.best()[1]
    assert "workers" in why(life) or "worker" in why(life)


def test_c001_it_prints_why() -> None:
    """A real loader whose samples wait, and a training step."""
    made = stoker.DataLoader(Sleeping(320, 0.005), batch_size=8)
    for _ in made:
        time.sleep(0.01)  # the step
    told = made.statistics()
    assert told.num_workers == made.num_workers
    assert told.num_workers > 0
    first = told.decisions[0]
    assert (first.before, first.workers > 0) == (0, True)
    assert "to make and the step" in first.reason
    text = str(told)
    assert "decisions:" in text
    assert first.reason in text


def test_c002_the_number_follows_the_users_step() -> None:
    """The same data set with two consumers: one takes 0 ms a batch, one takes 50 ms."""
    numbers = {}
    for step_s in (0.0, 0.05):
        world = World(cpus=8, away_s=step_s, **BATCH_OF_32)
        numbers[step_s] = settled(world).workers
        assert world.rate_per_s(numbers[step_s]) >= 0.95 * world.best()[1]
    assert 4 <= numbers[0.05] <= 5
    assert numbers[0.0] > 3 * numbers[0.05]


def test_c002_it_says_when_more_workers_change_nothing() -> None:
    """A slow step: workers could only wait with it."""
    workers, reasons = told_in(World(cpus=8, service_s=0.001, away_s=0.05))
    assert workers == 0
    assert len(reasons) == 1
    assert "to make and the step " in reasons[-1]
    assert "would raise the rate by" in reasons[-1] or "could not raise" in reasons[-1]


def test_c002_a_real_loader_measures_the_step() -> None:
    first = {}
    for step_s in (0.0, 0.05):
        made = stoker.DataLoader(Sleeping(200, 0.005), batch_size=8)
        for _ in made:
            time.sleep(step_s)
        first[step_s] = made.statistics().decisions[0]
    assert first[0.05].workers < first[0.0].workers
    assert dict(first[0.05].evidence)["away_s"] >= 0.05


def test_c004_the_cpus_are_those_the_process_may_use(tmp_path: Path) -> None:
    """As with taskset, on a machine with more; here after the import, which is told (C149)."""
    source = """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loader = stoker.DataLoader(Numbers(200), batch_size=4)
    for _ in loader:
        deadline = time.thread_time() + 0.002
        while time.thread_time() < deadline:
            pass
    told = loader.statistics()
    say(f"{told.cpus:g} by {told.cpus_source}")
    say(f"at most {max([each.workers for each in told.decisions], default=0)}")
    """
    code, lines, error = run(tmp_path, source)
    count = len(os.sched_getaffinity(0))
    assert code == 0
    assert error.count("a library has probably changed the affinity") == min(1, count - 1)
    assert len(error.splitlines()) == min(1, count - 1)
    assert lines[0].startswith("1 by affinity")
    assert lines[1] in ("at most 0", "at most 1")


def test_c004_the_decision_names_the_cpus() -> None:
    """80 workers were suggested there; computing samples get as many as there are CPUs."""
    life = settled(World(cpus=4, service_s=0.05))
    assert 3 <= life.workers <= 5
    assert "4 CPUs (the simulated machine)" in life.changes[0][1].reason


# Measured: TensorDataset of 20,000 x 20 floats, batch 256, with a step of a small model.
IN_MEMORY = {"service_s": 0.0009, "handling_s": 0.0004, "spread": 0.1}


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (
            World(cpus=2, away_s=0.02, **IN_MEMORY),
            "ms, and workers would raise the rate by",
        ),
        (World(cpus=2, service_s=5e-5, spread=0.1), "a worker could not bring it sooner"),
    ],
    ids=["beside a step", "nothing else to do"],
)
def test_c006_the_answer_may_be_none(world: World, reason: str) -> None:
    workers, reasons = told_in(world)
    assert workers == 0
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_c006_a_real_loader_of_what_is_in_memory() -> None:
    """Batches so small that handing them on would take longer than making them."""
    made = stoker.DataLoader(TensorDataset(torch.rand(20_000, 20)), batch_size=4)
    for _ in range(2):
        assert sum(len(batch) for [batch] in made) == 20_000
    told = made.statistics()
    assert (told.num_workers, told.peak_workers) == (0, 0)
    [decision] = told.decisions
    assert decision.workers == 0
    assert decision.reason.startswith("0 workers: a batch ")


def test_c007_loaders_and_ranks_are_counted_with_a_measured_reason() -> None:
    """Two loaders, each at the limit, on two ranks: what they wait for a CPU is the reason."""
    told = invent(num_workers=4, cpus=4.0, service_s=0.1, starved_s=0.03, made=400)
    [remark] = remarks(told, live_loaders=2, all_workers=8, ranks=2)
    assert remark == (
        "8 workers of 2 loaders, on 2 ranks, share 4 CPUs: "
        "they stood 30 % of their time without one"
    )


@pytest.mark.parametrize("starved_s", [None, 0.0, 0.005])
def test_c007_it_is_quiet_where_nothing_is_starved(starved_s: float | None) -> None:
    """However many there are."""
    told = invent(num_workers=40, length=None, cpus=4.0, service_s=0.1, starved_s=starved_s)
    assert remarks(told, live_loaders=3, all_workers=120, ranks=8) == ()


def test_c007_workers_that_wait_for_something_else_are_no_remark(
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two live loaders with more workers than CPUs, whose samples sleep on an idle machine."""
    monkeypatch.setattr("stoker.workers.job.cpu_wait_s", lambda: 0.0)
    caplog.set_level(logging.INFO, "stoker")
    made = [stoker.DataLoader(Slow(48, 0.01, FORK.Semaphore(0)), batch_size=1) for _ in "ab"]
    iterators = [begun(each, 3)[0] for each in made]
    for _ in zip(*iterators, strict=True):
        pass
    for each in made:
        assert not [remark for remark in each.statistics().remarks if "without one" in remark]
    assert not recwarn.list


@needs_still
def test_c007_what_others_use_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number for a validation loader knows of the training loader beside it."""
    train, val = stoker.DataLoader(Plain(40)), stoker.DataLoader(Plain(40))
    iterator, _ = begun(train)
    next(iterator)
    busy = Window(**{**vars(WINDOW), "cpu_s": 7.5, "seconds": 5.0})
    train._account.meter.recent = busy
    used, others = val._account._others_cpus()
    assert (used, others) == (1.5, 1)
    list(iterator)


@pytest.mark.parametrize(("left", "some"), [(3, False), (12, False), (4000, True)])
def test_c009_short_epochs_get_no_workers_that_could_not_pay(left: int, some: bool) -> None:
    """Fresh interpreters take 2 s each to come up; a batch takes 50 ms."""
    world = World(cpus=8, service_s=0.05, cpu=0.1, start_s=2.0)
    controller = Controller()
    life, _ = live(world, 0.05 * 12, controller=controller, batches_left=left)
    assert (life.workers > 0) == some


def test_c009_start_up_is_told_apart_from_the_steady_state() -> None:
    made = stoker.DataLoader(Plain(40), num_workers=2)
    list(made)
    told = made.statistics()
    assert told.start_s > 0
    assert "starting workers" in str(told)
    assert told.seconds == pytest.approx(
        told.waited_s + told.away_s + told.handling_s + told.loading_s
    )


def test_c009_a_real_epoch_that_is_over_at_once_starts_none() -> None:
    made = stoker.DataLoader(Sleeping(6, 0.005), batch_size=2, multiprocessing_context="spawn")
    assert len(list(made)) == 3
    assert made.statistics().peak_workers == 0
