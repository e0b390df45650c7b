"""A controller that begins with a kept answer, against simulated machines."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from stoker.tuning.belief import BELIEVED_S
from stoker.tuning.controller import Controller
from stoker.tuning.known import Known
from tests.unit.tuning import simulated
from tests.unit.tuning.simulated import Life, World, live, random_world

WHEN = "2026-12-01"
HOURS_S = 3 * 3600.0
WORLDS = range(16)
FEW_MORE = 11
"""Changes that are allowed: the eight of a search, there, back, and one."""


def known(world: World, workers: int, rate_per_s: float | None = None) -> Known:
    """An answer with that number; the rate is the best of the world unless it is given."""
    return Known(workers, WHEN, rate_per_s or world.best()[1], world.away_s)


def right(world: World) -> Known:
    """The fewest within 2 % of the best, and its rate."""
    counts = range(world.least, world.most + 1)
    workers = next(n for n in counts if world.rate_per_s(n) >= 0.98 * world.best()[1])
    return known(world, workers, world.rate_per_s(workers))


def much_too_high(world: World) -> Known:
    return known(world, min(world.most, 4 * world.best()[0] + 4))


def much_too_low(world: World) -> Known:
    return known(world, world.best()[0] // 4)


def none(world: World) -> Known:
    return known(world, 0)


def begun(
    world: World, answer: Known | None, seed: int = 0, left: int | None = None
) -> tuple[Life, Controller]:
    """A loader at its first batch."""
    controller, life = Controller(known=answer), Life(world.least)
    controller.changed(world.least)
    decision = controller.begin(world.bounds(left))
    if decision is not None:
        simulated._perform(life, decision, world, controller)
    return life, controller


def lived(
    world: World, answer: Known | None, seed: int = 0, seconds: float = HOURS_S
) -> tuple[Life, Controller]:
    """A loader that began with an answer, until it has settled."""
    life, controller = begun(world, answer, seed)
    return live(world, seconds, seed, until_settled=True, life=life, controller=controller)


@pytest.mark.parametrize("answer", [right, much_too_high, much_too_low, none])
def test_whatever_was_kept_the_search_ends_near_the_best(answer: object) -> None:
    shares = []
    for seed in WORLDS:
        world = random_world(seed)
        life, controller = lived(world, answer(world), seed)  # type: ignore[operator]
        assert controller.settled, seed
        assert len(life.changes) <= FEW_MORE, seed
        shares.append(world.rate_per_s(life.workers) / world.best()[1])
    assert min(shares) > 0.95


def test_a_right_answer_saves_changes_and_time() -> None:
    changes: dict[bool, list[int]] = {True: [], False: []}
    times_s: dict[bool, list[float]] = {True: [], False: []}
    for seed in WORLDS:
        world = random_world(seed)
        for helped in (True, False):
            life, _ = lived(world, right(world) if helped else None, seed)
            changes[helped].append(len(life.changes))
            times_s[helped].append(life.now_s)
    assert sum(changes[True]) < 0.7 * sum(changes[False])
    assert statistics.median(times_s[True]) < 0.6 * statistics.median(times_s[False])


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(cpus=24, service_s=0.03, bending=1 / 14**2), id="14 of 24"),
        pytest.param(World(cpus=64, service_s=0.05, cpu=0.3, ceiling_per_s=200), id="ceiling"),
        pytest.param(World(cpus=256, service_s=0.5), id="256 CPUs"),
        pytest.param(World(cpus=4, service_s=0.01, least=1, most=9), id="at least one"),
    ],
)
def test_the_first_minute_makes_more_batches(world: World) -> None:
    """With a right answer the number is there from the first batch on, and stays."""
    made = []
    for answer in (right(world), None):
        life, controller = begun(world, answer)
        before_s, total = life.now_s, 0.0
        while life.now_s < 60:
            before_s, workers = life.now_s, life.workers
            live(world, 1e-9, int(1e3 * before_s), life=life, controller=controller)
            total += world.rate_per_s(workers) * (life.now_s - before_s)
        made.append(total)
        if answer is not None:
            assert [decision.workers for _, decision in life.changes] == [answer.workers]
    assert made[0] > made[1]


def test_the_reasons_name_the_command_and_the_day() -> None:
    world = World(cpus=16, service_s=0.05)
    life, controller = begun(world, known(world, 16))
    assert life.changes[0][1].reason == (
        "16 workers to begin with: `stoker tune` found that best for this data set on this "
        "machine on 2026-12-01"
    )
    assert dict(life.changes[0][1].evidence)["workers_known"] == 16
    told = []
    while not controller.settled:
        window = world.window(16, *controller.wanted, simulated.random.Random(len(told)))
        told.append(controller.observe(window, world.bounds()))
    assert told[-1] is not None
    assert told[-1].workers == told[-1].before == 16
    assert "batches/s, and `stoker tune` found 3" in told[-1].reason


def test_an_answer_that_is_contradicted_is_left_with_the_numbers() -> None:
    world = World(cpus=16, service_s=0.05, noise=0.0)
    life, _ = begun(world, known(world, 16, 3 * world.best()[1]))
    life, _ = lived(world, known(world, 16, 3 * world.best()[1]))
    first, second, *_ = [decision for _, decision in life.changes]
    assert (first.workers, second.workers) == (16, 0)
    assert second.reason.startswith("16 workers gave 3")
    assert "not the 95" in second.reason
    assert life.workers == 16


@pytest.mark.parametrize(("most", "count"), [(5, 5), (0, 0)])
def test_bounds_are_kept_from_the_beginning(most: int, count: int) -> None:
    world = World(cpus=16, service_s=0.05, most=most)
    life, _ = begun(world, Known(16, WHEN, 300.0))
    assert life.workers == count
    if count:
        assert "found 16 best" in life.changes[0][1].reason
        assert life.changes[0][1].reason.endswith("and memory allows no more")


def test_what_needs_a_worker_has_one_though_none_was_best() -> None:
    world = World(cpus=8, service_s=5e-5, least=1)
    life, _ = lived(world, Known(0, WHEN, 20_000.0))
    assert life.workers == 1


def test_fresh_interpreters_are_started_where_that_pays() -> None:
    """At once where the epoch is long; else when a batch's time is known, and by the usual rule."""
    world = World(cpus=8, service_s=0.05, start_s=2.0)
    answer = right(world)
    assert begun(world, answer, left=100)[0].workers == 0
    assert begun(world, answer)[0].workers == 0
    assert begun(world, answer, left=100_000)[0].workers == 9
    life, controller = begun(world, answer, left=20)
    live(world, 0.8, life=life, controller=controller, batches_left=20)
    assert life.workers == 0, "an epoch of a second is over before they would come up"
    live(world, 0.5, life=life, controller=controller, batches_left=2000)
    assert life.workers == 9
    assert "`stoker tune` found that best" in life.changes[0][1].reason


def test_a_fork_needs_no_long_epoch() -> None:
    world = World(cpus=8, service_s=0.05, start_s=0.03)
    assert begun(world, right(world), left=3)[0].workers == 9


def test_none_known_stays_in_the_main_process_and_goes_on_watching() -> None:
    """The closed form would start workers here, and measuring would end them again."""
    world = World(
        measured_per_s=(379, 176, 328, 163),
        most=32,
        service_s=0.0055,
        alone_s=0.0026,
        handling_s=0.0003,
    )
    life, controller = lived(world, Known(0, WHEN, 379.0, 0.0))
    live(world, 20, life=life, controller=controller)
    assert life.changes == []
    dear = dataclasses.replace(world, measured_per_s=(), alone_s=None, service_s=0.05)
    live(dear, 20, life=life, controller=controller)
    assert life.workers == 2


def test_a_main_process_that_was_best_is_looked_at_again_after_a_while() -> None:
    world = World(cpus=2, service_s=0.01)
    life, controller = lived(world, known(world, 0, world.rate_per_s(0)))
    assert life.workers == 0
    live(world, 2 * BELIEVED_S, life=life, controller=controller)
    assert life.workers == 2


@pytest.mark.parametrize("change", [{"service_s": 0.3}, {"service_s": 0.003}, {"away_s": 0.05}])
def test_work_that_changes_later_is_followed_as_ever(change: dict[str, float]) -> None:
    world = World(cpus=8, service_s=0.03, away_s=0.001)
    life, controller = lived(world, right(world))
    assert len(life.changes) == 1
    after = dataclasses.replace(world, **change)
    live(after, 30, life=life, controller=controller)
    assert after.rate_per_s(life.workers) >= 0.95 * after.best()[1]


def test_another_step_than_then_is_another_answer() -> None:
    """Found with a consumer that drops batches; this one trains."""
    tuned = World(cpus=8, service_s=0.03)
    answer, trained = right(tuned), dataclasses.replace(tuned, away_s=0.02)
    life, _ = lived(trained, answer)
    assert life.workers <= 3
    assert trained.rate_per_s(life.workers) >= 0.95 * trained.best()[1]
