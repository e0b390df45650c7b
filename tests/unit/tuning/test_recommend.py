import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.meter import Observation
from stoker.tuning.recommend import (
    INDIFFERENT,
    UNKNOWN_NOISE,
    Decision,
    decide,
    epoch_rate,
    summarise,
)
from tests.unit.tuning.invented import observe, repeats

rate = st.floats(min_value=0.1, max_value=1e5)
tables = st.integers(1, 6).flatmap(
    lambda rounds: st.dictionaries(
        st.integers(0, 64), st.lists(rate, min_size=rounds, max_size=rounds), min_size=1, max_size=8
    )
)


def choose(observations: list[Observation]) -> Decision:
    decision = decide(observations)
    assert decision is not None
    return decision


@given(tables)
def test_it_is_the_fewest_of_those_within_noise_of_the_best(rates: dict[int, list[float]]) -> None:
    decision = choose(repeats(rates))
    assert decision.comparisons[decision.best].shortfall == 0
    for count, beside in decision.comparisons.items():
        within = beside.shortfall <= max(INDIFFERENT, beside.noise)
        assert not (within and count < decision.chosen)
        assert within or count != decision.chosen


@given(tables, st.integers(-3, 3))
def test_a_machine_that_is_faster_by_a_factor_gets_the_same_answer(
    rates: dict[int, list[float]], power: int
) -> None:
    scaled = {count: [each * 2.0**power for each in row] for count, row in rates.items()}
    assert choose(repeats(scaled)).chosen == choose(repeats(rates)).chosen


@given(tables, st.integers(1, 8), st.integers(65, 99))
def test_more_workers_that_are_far_slower_change_nothing(
    rates: dict[int, list[float]], share: int, count: int
) -> None:
    rows = list(rates.values())
    slow = min(min(row) for row in rows) / (10 * share)
    more = {**rates, count: [slow] * len(rows[0])}
    before, after = choose(repeats(rates)), choose(repeats(more))
    assert (after.chosen, after.best) == (before.chosen, before.best)


@given(st.dictionaries(st.integers(0, 64), rate, min_size=1), st.integers(3, 6))
def test_without_noise_it_is_within_two_percent_of_the_best(
    rates: dict[int, float], rounds: int
) -> None:
    decision = choose(repeats({count: [each] * rounds for count, each in rates.items()}))
    assert rates[decision.chosen] >= (1 - INDIFFERENT) * max(rates.values()) * (1 - 1e-9)
    fewer = [rates[count] for count in rates if count < decision.chosen]
    assert all(each < (1 - INDIFFERENT) * max(rates.values()) for each in fewer)


@given(st.lists(rate, min_size=3, max_size=9), st.integers(1, 4))
def test_a_slowdown_of_the_whole_machine_is_no_noise(drift: list[float], share: int) -> None:
    """Every count slows down alike from round to round: pairs see only the difference."""
    gain = 1.0 + share / 10
    decision = choose(repeats({0: drift, 2: [each * gain for each in drift]}))
    assert decision.chosen == 2
    assert decision.comparisons[0].shortfall == pytest.approx(1 - 1 / gain)
    assert not decision.contested


@given(tables)
def test_the_order_of_observations_does_not_matter(rates: dict[int, list[float]]) -> None:
    assert decide(repeats(rates)) == decide(reversed(repeats(rates)))


def test_fewest_within_noise() -> None:
    rates = {0: [430.0] * 3, 1: [455.0] * 3, 2: [800.0, 812.0, 805.0], 4: [806.0, 800.0, 818.0]}
    assert choose(repeats(rates)).chosen == 2


def test_all_the_same_is_zero() -> None:
    rates = {count: [100.0, 101.0, 99.0] for count in (0, 1, 2, 4)}
    assert choose(repeats(rates)).chosen == 0


def test_nothing_measured_is_no_decision() -> None:
    assert decide([]) is None
    assert summarise([]) == []


def test_one_repeat_is_judged_with_assumed_noise_and_never_certain() -> None:
    decision = choose(repeats({0: [95.0], 2: [100.0]}))
    assert decision.comparisons[0].noise == UNKNOWN_NOISE
    assert decision.chosen == 0
    assert decision.contested == {0, 2}


def test_a_close_and_noisy_race_is_contested_between_its_runners_only() -> None:
    rates = {0: [50.0, 51.0, 49.0], 2: [100.0, 90.0, 95.0], 4: [97.0, 102.0, 93.0]}
    assert choose(repeats(rates)).contested == {2, 4}


def test_a_clear_race_is_not() -> None:
    assert not choose(repeats({0: [50.0, 51.0, 49.0], 2: [100.0, 99.0, 101.0]})).contested


def test_a_trial_cut_short_counts_only_where_none_ran_whole() -> None:
    found = [observe(0, 10.0, 0), observe(0, 99.0, 1, complete=False)]
    found += [observe(2, 20.0, 0, complete=False)]
    by_count = {summary.num_workers: summary for summary in summarise(found)}
    assert by_count[0].batches_per_s == 10.0
    assert by_count[0].complete
    assert by_count[2].batches_per_s == 20.0
    assert not by_count[2].complete


class TestEpochRate:
    def test_start_up_is_counted(self) -> None:
        found = observe(2, 100.0, epoch_batches=101, first_batch_s=1.0)
        assert epoch_rate(found) == pytest.approx(101 / 2)

    def test_a_whole_epoch_goes_before_an_estimate(self) -> None:
        found = observe(2, 100.0, epoch_batches=100, first_batch_s=1.0, epoch_s=4.0)
        assert epoch_rate(found) == 25.0

    def test_persistent_workers_pay_it_once(self) -> None:
        found = observe(2, 100.0, epoch_batches=100, first_batch_s=9.0, persistent=True)
        assert epoch_rate(found) == 100.0

    def test_a_rate_over_whole_epochs_has_it_already(self) -> None:
        found = observe(2, 30.0, epoch_batches=3, first_batch_s=0.1, epoch_s=0.1, method="epochs")
        assert epoch_rate(found) == 30.0

    def test_an_epoch_without_end_leaves_the_steady_rate(self) -> None:
        assert epoch_rate(observe(2, 100.0, first_batch_s=9.0)) == 100.0

    def test_short_epochs_get_fewer_workers_than_long_ones(self) -> None:
        """C009: time to the first batch grows with the workers, and a short run is all start-up."""

        def sweep(batches: int) -> list[Observation]:
            steady = {1: 265.0, 2: 410.0, 4: 700.0, 8: 1100.0, 16: 1700.0}
            return [
                observe(count, each, repeat, epoch_batches=batches, first_batch_s=3.5 * count)
                for count, each in steady.items()
                for repeat in range(3)
            ]

        assert choose(sweep(1_000)).chosen == 1
        assert choose(sweep(1_000_000)).chosen == 16
        assert math.isclose(epoch_rate(sweep(1)[0]), 1 / 3.5)
