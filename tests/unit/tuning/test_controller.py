"""The controller against simulated machines, of which the best number is known."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.feed.window import Window
from stoker.tuning.controller import Controller
from stoker.tuning.decision import Bounds, Decision
from tests.unit.tuning.simulated import Life, World, live, random_world

CHANGES = 8
SLOWEST = 0.95
HOURS_S = 3 * 3600.0

# Batches as they are on a real machine with two CPUs.
LARGE = {"service_s": 0.012, "spread": 0.05, "handling_s": 0.0003}
SMALL = {"service_s": 50e-6, "spread": 0.1}
FIELDS = {"service_s": 350e-6, "spread": 0.1, "handling_s": 0.0012}
UNEVEN = {"service_s": 0.032, "cpu": 0.02, "spread": 0.9}
JPEG = {"service_s": 0.16, "spread": 0.1}
WAITING = {"service_s": 0.32, "cpu": 0.01, "spread": 0.02}
MNIST = {"service_s": 0.004, "spread": 0.1}
WORKS = {
    "large": LARGE,
    "small": SMALL,
    "fields": FIELDS,
    "uneven": UNEVEN,
    "jpeg": JPEG,
    "waiting": WAITING,
    "mnist": MNIST,
}
CONSUMERS = {
    "none": {},
    "5 ms": {"away_s": 0.005},
    "20 ms": {"away_s": 0.02},
    "5 ms computing": {"away_s": 0.005, "computing": True},
}


def rate_share(world: World, life: Life) -> float:
    """The noise-free rate of the number that was chosen, over the best there is."""
    return world.rate_per_s(life.workers) / world.best()[1]


def allowed(world: World) -> int:
    """The most workers that still count as few: a tenth or one more than 97.5 % need."""
    counts = range(world.least, world.most + 1)
    enough = 0.975 * world.best()[1]
    fewest = min(n for n in counts if world.rate_per_s(n) >= enough)
    return fewest + max(1, round(0.1 * fewest))


def quiet(world: World, life: Life, controller: Controller, seed: int) -> int:
    """Changes in half a minute of the same work."""
    start_s = life.now_s
    live(world, 30, seed, life=life, controller=controller)
    return life.changes_after(start_s)


def test_every_random_world_ends_near_its_best_in_few_changes_and_stays_there() -> None:
    too_many = []
    for seed in range(200):
        world = random_world(seed)
        life, controller = live(world, HOURS_S, seed, until_settled=True)
        assert controller.settled, seed
        assert len(life.changes) <= CHANGES, seed
        assert rate_share(world, life) >= SLOWEST, seed
        if life.workers > allowed(world):
            too_many.append(seed)
        assert quiet(world, life, controller, seed + 1) <= 2, seed
        assert rate_share(world, life) >= SLOWEST, seed
    assert len(too_many) <= 10, too_many


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("work", WORKS)
def test_works_of_a_real_machine(work: str, consumer: str) -> None:
    world = World(cpus=2, noise=0.03, most=64, **WORKS[work], **CONSUMERS[consumer])
    fewest, _ = world.best()
    limit_s = 18 if world.service_s >= 0.16 or (work, consumer) == ("uneven", "none") else 5
    for seed in range(3):
        life, controller = live(world, 60, seed, until_settled=True)
        assert controller.settled
        assert life.now_s <= limit_s
        assert rate_share(world, life) >= SLOWEST
        assert life.workers <= fewest + max(1, round(0.1 * fewest))
        assert quiet(world, life, controller, seed + 1) <= 2


@pytest.mark.parametrize(
    ("world", "fewest", "most"),
    [
        pytest.param(World(cpus=24, service_s=0.03, bending=1 / 14**2), 9, 15, id="14 of 24"),
        pytest.param(
            World(cpus=64, service_s=0.05, cpu=0.3, ceiling_per_s=200), 9, 14, id="ceiling"
        ),
        pytest.param(World(cpus=64, service_s=0.05, most=7), 7, 7, id="memory"),
        pytest.param(World(cpus=128 / 8, service_s=0.05), 15, 17, id="8 ranks"),
        pytest.param(World(cpus=256, service_s=0.5), 240, 256, id="256 CPUs"),
        pytest.param(World(cpus=8, service_s=1e-4), 0, 0, id="nothing to gain"),
        pytest.param(World(cpus=8, service_s=0.004, away_s=0.02), 1, 1, id="slow consumer"),
        pytest.param(World(cpus=8, service_s=48e-6, away_s=0.02), 0, 0, id="ready at once"),
        pytest.param(World(cpus=2, away_s=0.02, **WAITING), 16, 17, id="waiting for others"),
        pytest.param(World(cpus=1, service_s=0.01), 0, 0, id="one CPU"),
        pytest.param(World(cpus=4, service_s=0.01, least=1, most=9), 4, 5, id="at least one"),
        pytest.param(World(cpus=8, service_s=5e-5, least=1), 1, 1, id="one though none is best"),
    ],
)
def test_named_worlds(world: World, fewest: int, most: int) -> None:
    for seed in range(3):
        life, controller = live(world, 600, seed, until_settled=True)
        assert controller.settled
        assert len(life.changes) <= CHANGES
        assert fewest <= life.workers <= most


# Rates of real loaders with 0, 1, ... workers on two CPUs: samples of 38 MB that are ready, with
# a consumer that takes them at once and one that computes for 5 ms; a table; many fields.
READY = {"service_s": 0.0055, "alone_s": 0.0026, "handling_s": 0.0003}
MEMORY = World(measured_per_s=(379, 176, 328, 163), most=32, **READY)
STEP = {"away_s": 0.005, "computing": True, "measured_per_s": (121.7, 178.7, 163.7, 162.7)}
TRAINED = World(most=32, **READY, **STEP)
TABLE = World(service_s=0.0012, alone_s=64e-5, measured_per_s=(1460, 800, 1175, 1006), most=32)
RECORDS = World(service_s=0.001, alone_s=94e-5, measured_per_s=(1044, 727, 1216, 1143), most=32)


@pytest.mark.parametrize(
    ("world", "best"),
    [
        pytest.param(MEMORY, 0, id="memory-bound"),
        pytest.param(TRAINED, 1, id="memory-bound, trained on"),
        pytest.param(dataclasses.replace(TRAINED, stretching=0.5), 1, id="both wait"),
        pytest.param(dataclasses.replace(TRAINED, stretching=1.0), 1, id="workers slow the step"),
        pytest.param(TABLE, 0, id="table"),
        pytest.param(RECORDS, 2, id="fields"),
    ],
)
def test_rates_of_a_real_machine(world: World, best: int) -> None:
    for seed in range(3):
        life, controller = live(world, 8, seed)
        assert controller.settled
        assert life.workers == best
        assert len(life.changes) <= 4
        assert quiet(world, life, controller, seed + 1) == 0


@pytest.mark.parametrize("cold_s", [0.3, 1.2, 2.4, 4.0])
@pytest.mark.parametrize("cpu", [0.2, 0.4, 1.0])
@pytest.mark.parametrize("world", [MEMORY, TRAINED], ids=["used at once", "trained on"])
def test_first_batches_that_are_slow_do_not_decide(world: World, cpu: float, cold_s: float) -> None:
    """Memory that is touched for the first time: 0.4 s a batch, then 2.6 ms."""
    slow = dataclasses.replace(
        world, cpu=cpu, measured_per_s=(1 / (0.401 + world.away_s), *world.measured_per_s[1:])
    )
    slow = dataclasses.replace(slow, alone_s=0.401)
    for seed in range(2):
        life, controller = live(lambda now_s: slow if now_s < cold_s else world, 20, seed)
        assert controller.settled
        assert rate_share(world, life) >= SLOWEST
        assert len(life.changes) <= CHANGES


def test_slow_first_batches_do_not_keep_workers_from_work_that_needs_them() -> None:
    world = World(cpus=8, service_s=0.02, away_s=0.002)
    slow = dataclasses.replace(world, alone_s=0.4)
    life, _ = live(lambda now_s: slow if now_s < 2 else world, 10)
    assert life.workers == 8
    assert len(life.changes) == 1


@pytest.mark.parametrize("away_s", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("service_s", [0.001, 0.004])
def test_work_that_becomes_ten_times_dearer(service_s: float, away_s: float) -> None:
    world = World(cpus=8, service_s=service_s, away_s=away_s)
    settled_again(world, dataclasses.replace(world, service_s=10 * service_s))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_work_that_turns_dearer_within_a_window_soon_after_settling(share: float) -> None:
    """The window in which it turns is like neither, and must not be taken for the usual."""
    cheap = World(cpus=2, service_s=0.0003, away_s=0.005)
    dear = dataclasses.replace(cheap, service_s=0.003)
    mixed = dataclasses.replace(cheap, service_s=share * 0.0003 + (1 - share) * 0.003)
    worlds = [cheap] * 5 + [mixed] + [dear] * 8
    for seed in range(3):
        life, controller = live(cheap, 5, seed, until_settled=True)
        assert life.workers == 0
        for world in worlds:
            if life.workers == 0:
                live(world, 0.4, seed, life=life, controller=controller)
        assert life.workers == 1


@pytest.mark.parametrize("away_s", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("service_s", [0.01, 0.04])
def test_work_that_becomes_ten_times_cheaper(service_s: float, away_s: float) -> None:
    world = World(cpus=8, service_s=service_s, away_s=away_s)
    settled_again(world, dataclasses.replace(world, service_s=service_s / 10))


@pytest.mark.parametrize(("before_s", "after_s"), [(0.005, 0.03), (0.03, 0.005)])
def test_consumer_that_changes_its_pace(before_s: float, after_s: float) -> None:
    world = World(cpus=8, service_s=0.03, away_s=before_s)
    settled_again(world, dataclasses.replace(world, away_s=after_s))


def settled_again(before: World, after: World) -> None:
    """Five seconds after the change the number is right, and it stays."""
    for seed in range(3):
        life, controller = live(before, 20, seed)
        live(after, 5, seed + 1, life=life, controller=controller)
        assert rate_share(after, life) >= SLOWEST
        assert life.workers <= allowed(after)
        assert quiet(after, life, controller, seed + 2) <= 2


def test_fewer_cpus_end_in_fewer_workers() -> None:
    world = World(cpus=16, service_s=0.05)
    life, controller = live(world, 20)
    live(dataclasses.replace(world, cpus=4), 5, life=life, controller=controller)
    assert 4 <= life.workers <= 5


def test_fewer_workers_allowed_are_obeyed_at_once() -> None:
    world = World(cpus=16, service_s=0.05)
    life, controller = live(world, 20)
    window = world.window(life.workers, 8, 0.2, random.Random(1))
    decision = controller.observe(window, dataclasses.replace(world.bounds(), workers=3))
    assert decision is not None
    assert decision.workers == 3
    assert decision.reason == "3 workers is the most that memory allows now"


def test_workers_that_could_not_be_started_are_not_asked_for_again() -> None:
    world = World(cpus=16, service_s=0.05)
    controller = Controller()
    controller.cannot_exceed(5, "the limit of open files")
    life, _ = live(world, 30, controller=controller)
    assert life.workers == 5
    assert max(decision.workers for _, decision in life.changes) == 5


def test_a_number_that_was_not_reached_is_taken_as_it_is() -> None:
    world = World(cpus=16, service_s=0.05)
    controller = Controller()
    life, _ = live(world, 2, controller=controller)
    life.workers = 3
    controller.changed(3)
    live(world, 30, life=life, controller=controller)
    assert life.workers >= 15


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.08])
def test_noise_alone_changes_nothing(noise: float) -> None:
    world = World(cpus=8, service_s=0.02, away_s=0.006, noise=noise, outliers=0.03)
    life, controller = live(world, 120, 5, until_settled=True)
    start_s = life.now_s
    live(world, 600, 6, life=life, controller=controller)
    assert life.changes_after(start_s) <= 3
    assert rate_share(world, life) >= SLOWEST


def test_an_epoch_that_is_nearly_over_starts_no_workers() -> None:
    world = World(cpus=8, service_s=0.05, start_s=1.0)
    life, _ = live(world, 1.0, batches_left=20)
    assert life.changes == []
    life, _ = live(world, 1.0, batches_left=2000)
    assert life.workers == 8


def test_an_epoch_of_unknown_length_is_taken_to_last_as_long_as_it_did() -> None:
    life, _ = live(World(cpus=4, service_s=0.05, start_s=0.5), 60)
    at_s, first = life.changes[0]
    assert first.workers == 4 or at_s < 2.5
    assert life.workers == 4


@pytest.mark.parametrize(
    ("world", "told"),
    [
        (World(cpus=8, service_s=5e-5), "0 workers: a batch is ready in 0.05 ms"),
        (World(cpus=8, service_s=5e-4, away_s=0.02), "and workers would raise the rate by 2 %"),
        (World(cpus=8, service_s=0.004, away_s=0.02), "1 worker: the consumer waits 0"),
        (World(cpus=8, service_s=0.02), "CPUs are in use"),
        (World(cpus=64, service_s=0.02, most=5), "and memory allows no more"),
        (
            World(cpus=64, service_s=0.05, cpu=0.3, ceiling_per_s=200, noise=0.01),
            "something the workers share (disk, memory or network) is the limit",
        ),
    ],
)
def test_the_last_decision_explains_what_was_found(world: World, told: str) -> None:
    decisions = decided(world)
    assert told in decisions[-1].reason
    assert sum(decision.before == decision.workers for decision in decisions) <= 1


def test_a_start_is_explained() -> None:
    world = World(cpus=16, service_s=0.041, away_s=0.0051, noise=0.0, spread=0.0)
    _, decision = live(world, 5)[0].changes[0]
    assert "a batch takes 41 ms to make and the step 5.1 ms: 8 workers" in decision.reason
    assert dict(decision.evidence)["service_s"] == pytest.approx(0.041, rel=0.1)


def decided(world: World) -> list[Decision]:
    """All decisions of a while, also those to stay."""
    controller, found, draw, workers = Controller(), [], random.Random(1), 0
    for _ in range(200):
        window = world.window(workers, *controller.wanted, draw)
        decision = controller.observe(window, world.bounds())
        if decision:
            found.append(decision)
            workers = decision.workers
            controller.changed(workers)
    return found


ANY = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 10) | st.just(0.0)
COUNTS = st.integers(0, 100) | st.just(10**400)
WINDOWS = st.builds(
    Window,
    workers=st.integers(0, 12),
    batches=COUNTS,
    seconds=ANY,
    waited_s=ANY,
    away_s=ANY,
    handling_s=ANY,
    made=COUNTS,
    busy_s=ANY,
    cpu_s=ANY,
    starved_s=ANY | st.none(),
    order_s=ANY,
    batch_bytes=st.integers(0, 1 << 40),
)
BOUNDS = st.builds(
    lambda cpus, least, more, start_s, left: Bounds(
        cpus, "the test", least + more, "the test", least, start_s, left
    ),
    st.floats(0.1, 300),
    st.integers(0, 1),
    st.integers(0, 12),
    st.floats(0, 5),
    st.none() | st.integers(0, 1000),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(WINDOWS, BOUNDS), max_size=12), st.booleans())
def test_any_window_leads_to_a_number_within_bounds(
    seen: list[tuple[Window, Bounds]], follow: bool
) -> None:
    controller, workers = Controller(), None
    for window, bounds in seen:
        if follow and workers is not None:
            window = dataclasses.replace(window, workers=workers)
        decision = controller.observe(window, bounds)
        batches, seconds = controller.wanted
        assert batches >= 1
        assert 0 < seconds <= 2
        if decision is not None:
            assert decision.before == window.workers
            assert bounds.least <= decision.workers <= bounds.workers
            assert decision.reason
            assert all(math.isfinite(value) for _, value in decision.evidence)
            workers = decision.workers


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(BOUNDS, min_size=1, max_size=4))
def test_bounds_that_change_are_kept(seed: int, changing: list[Bounds]) -> None:
    world, draw = random_world(seed), random.Random(seed)
    controller, workers = Controller(), 0
    for bounds in changing:
        for _ in range(12):
            window = world.window(workers, *controller.wanted, draw)
            decision = controller.observe(window, bounds)
            if decision is not None and draw.random() < 0.9:
                assert bounds.least <= decision.workers <= bounds.workers
                workers = decision.workers
                controller.changed(workers)
        assert bounds.least <= workers <= bounds.workers or decision is not None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(WINDOWS, min_size=1, max_size=4))
def test_what_cannot_be_measured_changes_nothing(seed: int, odd: list[Window]) -> None:
    world = World(cpus=4, service_s=0.02, away_s=0.01)
    life, controller = live(world, 10, seed)
    for window in odd:
        empty = dataclasses.replace(window, workers=life.workers, batches=0)
        assert controller.observe(empty, world.bounds()) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"batches": 0},
        {"made": 0},
        {"seconds": 0.0},
        {"seconds": math.nan},
        {"busy_s": math.inf},
        {"waited_s": -1.0},
        {"cpu_s": math.nan},
    ],
)
def test_a_window_that_cannot_be_true_counts_for_nothing(broken: dict[str, float]) -> None:
    world = World(cpus=4, service_s=0.02)
    window = world.window(0, 4, 0.04, random.Random(1))
    controller = Controller()
    for _ in range(9):
        assert controller.observe(dataclasses.replace(window, **broken), world.bounds()) is None
    assert not controller.settled
