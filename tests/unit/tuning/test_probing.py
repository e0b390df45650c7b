"""What is measured in a program that runs, and what comes of it, on simulated machines."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.feed.window import Window
from stoker.tuning.asks import IN_TURN
from stoker.tuning.decision import Bounds
from stoker.tuning.probing import Prober, Setting
from tests.unit.tuning.probing_drive import (
    MOST_WINDOWS,
    Drive,
    drive,
    fewest_within,
    is_fewest,
    program_world,
    share_of_best,
)
from tests.unit.tuning.simulated import World

WORLDS = 150
OWN: dict[str, Callable[[World], int]] = {
    "none": lambda world: world.least,
    "right": lambda world: world.best()[0],
    "far too many": lambda world: min(world.most, max(8, 4 * int(world.cpus))),
}
NEAR, VERY_NEAR, FEWEST = 0.94, 0.97, 0.8
"""Shares of the worlds that must end within 5 % of their best rate, within 10 %, and with the
fewest workers."""
BUSY = World(cpus=4, service_s=0.01, away_s=0.002, noise=0.03)


@cache
def driven(own: str) -> list[tuple[World, Drive]]:
    worlds = [program_world(seed) for seed in range(WORLDS)]
    return [(w, drive(w, Prober(OWN[own](w)), seed)) for seed, w in enumerate(worlds)]


def missed(own: str, fits: Callable[[World, int], bool]) -> list[str]:
    return [
        f"world {seed}: {life.chosen} gives {share_of_best(world, life.chosen):.3f} of the best, "
        f"{fewest_within(world, 0.05)} to {fewest_within(world, 0.02)} would do"
        for seed, (world, life) in enumerate(driven(own))
        if not fits(world, life.chosen)
    ]


@pytest.mark.parametrize("own", OWN)
def test_the_number_gives_nearly_the_best_rate(own: str) -> None:
    far = missed(own, lambda world, count: share_of_best(world, count) >= 0.95)
    very_far = missed(own, lambda world, count: share_of_best(world, count) >= 0.9)
    assert len(far) <= (1 - NEAR) * WORLDS, "\n".join(far)
    assert len(very_far) <= (1 - VERY_NEAR) * WORLDS, "\n".join(very_far)


@pytest.mark.parametrize("own", OWN)
def test_no_fewer_workers_would_do(own: str) -> None:
    too_many = missed(own, is_fewest)
    assert len(too_many) <= (1 - FEWEST) * WORLDS, "\n".join(too_many)


@pytest.mark.parametrize("own", OWN)
def test_it_takes_seconds(own: str) -> None:
    quick = [life.now_s for world, life in driven(own) if 1e-3 <= world.service_s <= 0.03]
    told = f"median {statistics.median(quick):.1f} s, at most {max(quick):.1f} s"
    assert statistics.median(quick) < 10, told
    for seed, (world, life) in enumerate(driven(own)):
        # The program's own setting may be as slow as it likes.
        most_s = 55 + 4 * max(world.made_in_s(n) for n in (1, life.chosen))
        found_s = life.now_s - life.stages_s["own"]
        rival_s = max((each.window.seconds for each in life.prober.trials), default=0.0)
        assert found_s <= most_s + 5 * rival_s, f"world {seed}: {dict(life.stages_s)}"


@pytest.mark.parametrize("own", OWN)
def test_where_rates_are_far_off_it_says_that_it_is_not_certain(own: str) -> None:
    sure = [(w, life) for w, life in driven(own) if not life.prober.gave_up]
    wrong = sum(share_of_best(world, life.chosen) < 0.95 for world, life in sure)
    assert wrong <= 0.04 * WORLDS
    assert len(sure) >= 0.5 * WORLDS


@pytest.mark.parametrize(
    ("world", "fewest", "most"),
    [
        (World(cpus=2, service_s=0.004), 2, 2),
        (World(cpus=2, service_s=0.3, cpu=0.01, away_s=0.1), 3, 4),
        (World(cpus=8, service_s=0.02, away_s=0.03), 1, 1),
        (World(cpus=8, service_s=100e-6, away_s=0.02), 0, 0),
        (World(cpus=4, service_s=0.01, ceiling_per_s=180), 2, 2),
    ],
    ids=["CPUs", "waiting", "slow step", "nothing to make", "a ceiling"],
)
@pytest.mark.parametrize("own", [0, 2, 8])
def test_named_worlds(world: World, fewest: int, most: int, own: int) -> None:
    found = [drive(dataclasses.replace(world, most=16), Prober(own), seed) for seed in range(5)]
    assert Counter(fewest <= life.chosen <= most for life in found)[True] >= 4
    assert max(life.now_s for life in found) < 60


@pytest.mark.parametrize("noise", [0.2, 0.35, 0.5])
def test_others_on_the_machine_do_not_make_it_run_on(noise: float) -> None:
    world = dataclasses.replace(BUSY, noise=noise)
    lives = [drive(world, Prober(2), seed) for seed in range(20)]
    assert max(life.now_s for life in lives) < 45
    assert sum(share_of_best(world, life.chosen) >= 0.8 for life in lives) >= 17
    sure = [life for life in lives if not life.prober.gave_up]
    assert sum(share_of_best(world, life.chosen) < 0.95 for life in sure) <= 2


def test_what_noise_hides_is_called_uncertain() -> None:
    """Workers that wait for storage leave CPUs free: nothing but the rate tells how many do."""
    world = World(cpus=16, service_s=0.1, cpu=0.02, ceiling_per_s=80, noise=0.4)
    lives = [drive(world, Prober(2), seed) for seed in range(20)]
    assert sum(life.prober.gave_up for life in lives) >= 15


def test_bursts_of_noise_are_got_over() -> None:
    def world_at(second: float) -> World:
        return dataclasses.replace(BUSY, noise=0.4 if second % 3 < 0.5 else 0.03)

    lives = [drive(world_at, Prober(2), seed) for seed in range(20)]
    assert sum(share_of_best(BUSY, life.chosen) >= 0.95 for life in lives) >= 17
    assert max(life.now_s for life in lives) < 30


@pytest.mark.parametrize("own", [0, 1, 2, 8, 16])
@pytest.mark.parametrize("times", [1.5, 4.0])
def test_a_program_that_warms_up_is_told_by_what_it_is_afterwards(own: int, times: float) -> None:
    """First steps and cold caches make its first second slow, and its own number is seen then."""
    cold = dataclasses.replace(
        BUSY, service_s=times * BUSY.service_s, away_s=times * BUSY.away_s, cpu=0.3
    )
    for seed in range(5):
        life = drive(lambda second: cold if second < 1 else BUSY, Prober(own), seed)
        late = [
            trial.window.rate_per_s
            for trial in life.prober.trials
            if trial.setting == Setting(own) and trial.stage in IN_TURN
        ]
        assert statistics.median(late) == pytest.approx(BUSY.rate_per_s(own), rel=0.15)
        assert share_of_best(BUSY, life.chosen) >= 0.9


def test_an_own_number_that_takes_long_is_not_measured_again() -> None:
    world = World(cpus=4, service_s=5.0)
    life = drive(world, Prober(0))
    assert "again" not in {ask.stage for ask in life.asks}
    assert life.chosen == 4


@pytest.mark.parametrize("from_s", [1.0, 2.0, 3.0, 4.0])
def test_a_machine_that_becomes_slower_fools_no_pair(from_s: float) -> None:
    slower = dataclasses.replace(
        BUSY, service_s=1.3 * BUSY.service_s, away_s=1.3 * BUSY.away_s, handling_s=0.26e-3
    )
    lives = [
        drive(lambda second: slower if second > from_s else BUSY, Prober(own), seed)
        for seed in range(8)
        for own in (0, 4, 16)
    ]
    assert sum(share_of_best(BUSY, life.chosen) >= 0.95 for life in lives) >= 22
    assert sum(is_fewest(BUSY, life.chosen) for life in lives) >= 17


def test_starts_that_take_seconds_leave_less_to_measure() -> None:
    prober, draw, passed_s = Prober(8), random.Random(0), 0.0
    while prober.stage not in ("extras", "replay", "done"):
        ask = prober.ask
        window = BUSY.window(ask.setting.workers, ask.batches, ask.seconds, draw)
        prober.observe(window, BUSY.bounds(), 5.0)
        passed_s += 5.0
    assert passed_s <= 60
    assert prober.gave_up


# -- what does not work -----------------------------------------------------------------------


@pytest.mark.parametrize("fails", [[0], [1], [2], [3], [4], [5], [3, 4, 5], range(3, 600), [0, 1]])
@pytest.mark.parametrize("own", [0, 2, 8])
def test_what_failed_is_not_chosen_nor_tried_again(fails: list[int], own: int) -> None:
    life = drive(dataclasses.replace(BUSY, most=16), Prober(own), fails=fails)
    assert life.prober.stage == "done"
    measured = [ask.setting.workers for ask in life.asks if ask.stage != "replay"]
    assert not set(measured) & set(fails)
    if measured:
        assert life.chosen in measured
        assert share_of_best(BUSY, life.chosen) >= 0.9 * max(
            share_of_best(BUSY, n) for n in measured
        )
    else:
        assert own in fails
        assert life.prober.gave_up


def test_nothing_works() -> None:
    life = drive(BUSY, Prober(4), fails=range(600))
    assert (life.prober.stage, life.chosen, life.prober.gave_up) == ("done", 4, True)


def test_another_engine_that_fails_says_nothing_of_the_number() -> None:
    world = World(cpus=8, service_s=0.01, handling_s=0.004)
    prober = Prober(2)
    life = drive(world, prober, until=lambda life: life.prober.stage == "extras")
    chosen = life.chosen
    assert any(setting.engine == "stoker" for setting in asked_in_extras(prober, world))
    assert prober.chosen == chosen


def asked_in_extras(prober: Prober, world: World) -> list[Setting]:
    """Everything but the plain setting fails."""
    asked, draw = [], random.Random(0)
    while prober.stage == "extras":
        ask = prober.ask
        asked.append(ask.setting)
        if ask.setting.engine == "stoker":
            prober.failed(ask.setting.workers, "an error")
        else:
            window = world.window(ask.setting.workers, ask.batches, ask.seconds, draw)
            prober.observe(window, world.bounds())
    return asked


# -- what may be tried ------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[0, 1, 2, 4, 8], [3], [4, 2], range(9)])
@pytest.mark.parametrize("own", [0, 2, 12])
def test_given_numbers_are_all_measured_as_often(counts: list[int], own: int) -> None:
    life = drive(BUSY, Prober(own, counts=counts))
    seen = Counter(ask.setting.workers for ask in life.asks if ask.stage == "confirm")
    assert seen == dict.fromkeys(counts, 3)
    again: set[str] = set() if own in counts else {"again"}
    assert {ask.stage for ask in life.asks} == {"own", "confirm", "replay"} | again
    assert life.chosen in counts
    assert not life.prober.gave_up


def test_given_numbers_of_which_one_fails() -> None:
    life = drive(BUSY, Prober(2, counts=[0, 2, 4, 6]), fails=[4])
    seen = Counter(ask.setting.workers for ask in life.asks if ask.stage == "confirm")
    assert seen == {0: 3, 2: 3, 6: 3}


@pytest.mark.parametrize(("least", "most"), [(1, 16), (0, 2), (1, 1), (2, 3), (0, 0)])
@pytest.mark.parametrize("own", [0, 1, 6])
def test_bounds_are_kept(least: int, most: int, own: int) -> None:
    life = drive(dataclasses.replace(BUSY, least=least, most=most), Prober(own))
    tried = {ask.setting.workers for ask in life.asks if ask.stage not in ("own", "replay")}
    assert all(least <= n <= most or n == own for n in tried)
    assert least <= life.chosen <= most or life.chosen == own


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_more_than_the_most_is_tried(most: int) -> None:
    life = drive(BUSY, Prober(0, most=most))
    assert max(ask.setting.workers for ask in life.asks) <= most


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_stopped_at_any_stage_it_has_the_best_so_far(after: int) -> None:
    life = drive(BUSY, Prober(1), until=lambda life: len(life.asks) >= after)
    stage, chosen = life.prober.stage, life.chosen
    life.prober.stop()
    assert (life.prober.stage, life.prober.ask.stage) == ("done", "done")
    assert life.chosen == chosen
    if stage in ("own", "search", "confirm"):
        assert life.prober.gave_up
    measured = {trial.setting.workers for trial in life.prober.trials} | {1}
    assert life.chosen in measured


@pytest.mark.parametrize("own", OWN)
def test_what_was_decided_stays(own: str) -> None:
    for seed in range(20):
        world, found = program_world(seed), set()

        def note(life: Drive, found: set[int] = found) -> bool:
            if life.prober.stage in ("extras", "replay"):
                found.add(life.chosen)
            return False

        life = drive(world, Prober(OWN[own](world)), seed, until=note)
        assert found == {life.chosen}


@pytest.mark.parametrize("own", OWN)
def test_a_reason_is_about_what_was_chosen(own: str) -> None:
    for _, life in driven(own):
        reason = life.prober.reason
        assert not reason or f"{life.chosen} worker" in reason, reason


# -- anything ---------------------------------------------------------------------------------

times = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-12, 1e-9, 1e12, math.inf, math.nan]), st.floats(0, 100)
)
anything = st.builds(
    Window,
    workers=st.integers(-1, 40),
    batches=st.one_of(st.integers(-1, 100), st.just(10**12)),
    seconds=times,
    waited_s=times,
    away_s=times,
    handling_s=times,
    made=st.one_of(st.integers(-1, 100), st.just(10**12)),
    busy_s=times,
    cpu_s=times,
    starved_s=st.one_of(st.none(), times),
    order_s=times,
    batch_bytes=st.integers(0, 1 << 40),
)


@given(
    own=st.integers(0, 20),
    seen=st.lists(st.one_of(anything, st.none(), st.just("failed")), min_size=1, max_size=30),
    least=st.integers(0, 1),
    most=st.integers(0, 20),
    counts=st.one_of(st.none(), st.sets(st.integers(0, 9), max_size=4)),
    seed=st.integers(0, 30),
)
@example(
    own=0,
    seen=[Window(0, 0, -1.0, 0.0, 0.0, 0.0, 10**12, 0.0, 0.0, None, 0.0, 0), None],
    least=0,
    most=0,
    counts=None,
    seed=0,
)
def test_whatever_is_seen_it_comes_to_an_end(
    own: int,
    seen: list[Window | str | None],
    least: int,
    most: int,
    counts: set[int] | None,
    seed: int,
) -> None:
    """Windows that cannot be, failures, and windows of a machine, over and over."""
    world, draw = program_world(seed), random.Random(seed)
    bounds = Bounds(max(0.01, world.cpus), "here", max(least, most), "memory", least)
    prober = Prober(own, counts=None if counts is None else sorted(counts))
    for step in range(MOST_WINDOWS):
        ask, what = prober.ask, seen[step % len(seen)]
        if ask.stage == "done":
            break
        assert ask.batches >= 0
        assert math.isfinite(ask.seconds)
        assert ask.setting.workers >= 0
        if what == "failed":
            prober.failed(ask.setting.workers, "an error")
        elif isinstance(what, Window):
            prober.observe(what, bounds)
        else:
            prober.observe(world.window(ask.setting.workers, 4, 0.1, draw), bounds)
        assert prober.chosen >= 0
    assert prober.stage == "done"


@given(window=anything)
def test_only_windows_that_tell_nothing_end_it_too(window: Window) -> None:
    prober = Prober(2)
    for _ in range(MOST_WINDOWS):
        prober.observe(window, BUSY.bounds())
    assert prober.stage == "done"


def test_a_loader_that_hardly_ever_is_waited_for_is_not_searched_for() -> None:
    """A validation loader: 0.3 s of batches once in seven seconds of the program."""
    prober, world = Prober(0), dataclasses.replace(BUSY, service_s=0.001, away_s=0.01)
    window = world.window(0, 25, 0.0, random.Random(1))
    prober.observe(window, world.bounds(), passed_s=7.0)
    assert (prober.stage, prober.chosen, prober.gave_up) == ("done", 0, False)
    assert prober.rare == pytest.approx(window.waiting * window.seconds / 7.0)


def test_workers_that_are_hardly_ever_waited_for_are_searched_for() -> None:
    """Their start, which is no part of a stretch, may be what is waited for."""
    prober, world = Prober(2), dataclasses.replace(BUSY, service_s=0.001, away_s=0.01)
    prober.observe(world.window(2, 25, 0.0, random.Random(1)), world.bounds(), passed_s=7.0)
    assert (prober.stage, prober.rare) == ("search", 0.0)


def test_a_loader_that_comes_up_rarely_and_is_waited_for_is_searched_for() -> None:
    prober = Prober(0)
    prober.observe(BUSY.window(0, 25, 0.0, random.Random(1)), BUSY.bounds(), passed_s=7.0)
    assert prober.stage == "search"
