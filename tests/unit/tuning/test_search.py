"""The search against invented worlds: a rate for each count, and noise."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.search import MOST_REPEATS, Search, Trial, default_counts
from tests.unit.tuning.invented import observe


@pytest.mark.parametrize(
    ("cpus", "counts"),
    [
        (1, [0, 1, 2]),
        (2, [0, 1, 2, 4]),
        (3, [0, 1, 2, 4, 6]),
        (8, [0, 1, 2, 4, 8, 16]),
        (0, [0, 1, 2]),
    ],
)
def test_counts_double_up_to_twice_the_cpus(cpus: int, counts: list[int]) -> None:
    assert default_counts(cpus) == counts


def test_exhaustive_is_every_count() -> None:
    assert default_counts(2, exhaustive=True) == [0, 1, 2, 3, 4]


def play(search: Search, rates: dict[int, float], noise: float = 0.0, seed: int = 0) -> list[Trial]:
    draw, made = random.Random(seed), []
    while (trial := search.next(float(len(made)))) is not None:
        made.append(trial)
        rate = rates[trial.num_workers] * (1 + noise * draw.uniform(-1, 1))
        search.record(observe(trial.num_workers, rate, trial.repeat))
        assert len(made) <= MOST_REPEATS * len(rates)
    return made


def test_rounds_go_forth_and_back() -> None:
    made = play(Search([0, 1, 2], repeats=2), {0: 1.0, 1: 1.0, 2: 1.0})
    assert [trial.num_workers for trial in made] == [0, 1, 2, 2, 1, 0]
    assert [trial.repeat for trial in made] == [0, 0, 0, 1, 1, 1]


def test_without_noise_three_rounds_are_enough_and_bad_counts_get_two() -> None:
    made = play(Search([0, 1, 2, 4]), {0: 10.0, 1: 11.0, 2: 100.0, 4: 99.0})
    tries = {count: sum(trial.num_workers == count for trial in made) for count in (0, 1, 2, 4)}
    assert tries == {0: 2, 1: 2, 2: 3, 4: 3}


def test_noise_asks_for_more_but_not_for_ever() -> None:
    made = play(Search([0, 1, 2]), {0: 100.0, 1: 104.0, 2: 108.0}, noise=0.3)
    tries = [sum(trial.num_workers == count for trial in made) for count in (0, 1, 2)]
    assert 3 < max(tries) <= MOST_REPEATS


def test_the_budget_ends_it_after_the_rounds_that_are_always_made() -> None:
    noisy = {0: 100.0, 1: 104.0, 2: 108.0}
    assert len(play(Search([0, 1, 2], budget_s=0.0), noisy, noise=0.3)) == 9


def test_an_exact_number_of_repeats_is_obeyed() -> None:
    assert len(play(Search([0, 4], repeats=1), {0: 1.0, 4: 1.0}, noise=0.5)) == 2
    assert len(play(Search([0, 4], repeats=5), {0: 1.0, 4: 50.0})) == 10


def test_a_count_that_failed_is_left_out() -> None:
    search = Search([0, 2, 4], repeats=2)
    assert search.next(0.0) == Trial(0, 0)
    search.record(observe(0, 10.0))
    assert search.next(0.0) == Trial(2, 0)
    search.fail(2)
    assert search.next(0.0) == Trial(4, 0)
    search.record(observe(4, 5.0))
    assert [search.next(0.0) for _ in range(3)] == [Trial(4, 1), Trial(0, 1), None]


def test_a_count_that_failed_later_is_not_recommended() -> None:
    search = Search([0, 2], repeats=2)
    for count, rate in ((0, 10.0), (2, 90.0)):
        search.next(0.0)
        search.record(observe(count, rate))
    search.fail(2)
    decision = search.decision()
    assert decision is not None
    assert decision.chosen == 0


def test_it_gives_up_when_nothing_works() -> None:
    search = Search([0, 1, 2, 4])
    for _ in range(2):
        trial = search.next(0.0)
        assert trial is not None
        search.record(observe(trial.num_workers, 1.0, complete=False))
        search.fail(trial.num_workers)
    assert search.next(0.0) is None
    assert search.decision() is None


@given(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=9), st.integers(0, 99))
def test_it_ends_near_the_best_in_any_world(rates: list[float], seed: int) -> None:
    world = dict(enumerate(rates))
    search = Search(list(world))
    made = play(search, world, noise=0.01, seed=seed)
    decision = search.decision()
    assert decision is not None
    assert world[decision.chosen] >= 0.93 * max(rates)
    assert search.planned == len(made)


@given(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=9), st.floats(0.0, 0.5))
def test_what_is_planned_never_falls_below_what_is_done(rates: list[float], noise: float) -> None:
    search, draw, made = Search(list(range(len(rates)))), random.Random(0), 0
    while (trial := search.next(0.0)) is not None:
        made += 1
        assert search.planned >= made
        rate = rates[trial.num_workers] * (1 + noise * draw.random())
        search.record(observe(trial.num_workers, rate, trial.repeat))
