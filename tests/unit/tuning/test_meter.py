"""The meter is fed with invented times: an epoch is a start-up, then batches at a rate."""

import math

import pytest

from stoker.tuning.meter import Meter, Observation, Plan


class Loader:
    """Invented: a start-up, a burst of prefetched batches, then one batch every ``gap_s``."""

    def __init__(self, batches: float, gap_s: float, start_up_s: float, burst: int = 0) -> None:
        self.batches, self.gap_s, self.start_up_s, self.burst = batches, gap_s, start_up_s, burst


def measure(
    loader: Loader, plan: Plan, num_workers: int, *, persistent: bool = False
) -> Observation:
    meter = Meter(plan, num_workers, persistent=persistent)
    now, epochs, enough = 100.0, 0, False
    while not enough:
        meter.start_epoch(now)
        if not (persistent and epochs):
            now += loader.start_up_s
        count = 0
        while count < loader.batches:
            now += loader.gap_s if count >= loader.burst else 0.0
            count += 1
            if meter.batch(now):
                enough = True
                break
        else:
            enough = meter.end_epoch(now)
        epochs += 1
        assert epochs < 10_000
    length = None if math.isinf(loader.batches) else int(loader.batches)
    found = meter.observation(length, complete=True)
    assert found is not None
    return found


def test_start_up_and_the_prefetched_batches_are_not_in_the_steady_rate() -> None:
    found = measure(Loader(1000, 0.01, 3.0, burst=8), Plan(), 4)
    assert found.method == "steady"
    assert found.batches_per_s == pytest.approx(100)
    assert found.first_batch_s == pytest.approx(3.0)
    assert found.batches == 992
    assert found.epochs == 1
    assert found.epoch_s == pytest.approx(3.0 + 992 * 0.01)


def test_without_workers_only_the_first_batch_is_left_out() -> None:
    found = measure(Loader(200, 0.01, 0.5), Plan(), 0)
    assert found.method == "steady"
    assert found.batches == 199
    assert found.batches_per_s == pytest.approx(100)


def test_a_short_epoch_is_repeated_and_measured_whole() -> None:
    found = measure(Loader(3, 0.01, 0.2), Plan(), 2)
    assert found.method == "epochs"
    assert found.epochs >= 3
    assert found.measured_s >= 1.0
    assert found.batches_per_s == pytest.approx(3 / 0.23)
    assert found.first_batch_s == pytest.approx(0.21)


def test_persistent_workers_start_once_so_the_first_short_epoch_does_not_count() -> None:
    found = measure(Loader(3, 0.01, 5.0), Plan(), 2, persistent=True)
    assert found.method == "epochs"
    assert found.batches_per_s == pytest.approx(100)
    assert found.epoch_s == pytest.approx(0.03)
    assert found.first_batch_s == pytest.approx(5.01)


def test_an_epoch_that_takes_too_long_is_cut_off() -> None:
    found = measure(Loader(100_000, 0.01, 1.0), Plan(), 0)
    assert found.method == "steady"
    assert found.measured_s == pytest.approx(10.0, abs=0.1)
    assert found.epoch_s is None
    assert found.epoch_batches == 100_000


def test_an_endless_loader_is_cut_off() -> None:
    found = measure(Loader(math.inf, 0.01, 1.0), Plan(), 2)
    assert found.epoch_batches is None
    assert found.batches_per_s == pytest.approx(100)


def test_batches_are_counted_after_the_first_few() -> None:
    found = measure(Loader(1000, 0.01, 1.0), Plan(batches=50), 2)
    assert found.batches == 50
    assert found.method == "steady"


def test_batches_go_on_into_the_next_epochs() -> None:
    found = measure(Loader(20, 0.01, 0.1), Plan(batches=50), 2)
    assert found.method == "steady"
    assert found.batches >= 50
    assert found.epochs == 4


def test_too_few_batches_asked_for_are_made_enough_for_a_rate() -> None:
    found = measure(Loader(1000, 0.01, 1.0), Plan(batches=1), 4)
    assert found.method == "steady"
    assert found.batches == 8


@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_seconds_fill_with_epochs_and_cut_them(seconds: float) -> None:
    found = measure(Loader(100, 0.01, 0.1), Plan(seconds=seconds), 0)
    assert found.measured_s == pytest.approx(seconds, abs=0.02)


def test_patience_ends_a_trial_that_never_becomes_steady() -> None:
    found = measure(Loader(1000, 5.0, 1.0), Plan(), 8)
    assert found.method == "brief"
    assert found.batches_per_s == pytest.approx(0.2)


def test_patience_also_ends_many_tiny_epochs_with_a_slow_start() -> None:
    found = measure(Loader(3, 0.001, 5.0), Plan(batches=1_000_000), 2)
    assert found.epochs <= 13


@pytest.mark.parametrize("times", [[], [0.0]])
def test_nothing_measured_is_none(times: list[float]) -> None:
    meter = Meter(Plan(), 0)
    meter.start_epoch(0.0)
    for time in times:
        meter.batch(time)
    assert meter.observation(None, complete=False) is None


def test_an_empty_epoch_ends_the_trial() -> None:
    meter = Meter(Plan(), 0)
    meter.start_epoch(0.0)
    assert meter.end_epoch(0.1)
    assert meter.observation(0, complete=True) is None


def test_a_partial_epoch_already_says_something() -> None:
    meter = Meter(Plan(), 0)
    meter.start_epoch(0.0)
    for number in range(1, 4):
        meter.batch(number * 0.1)
    found = meter.observation(50, complete=False)
    assert found is not None
    assert not found.complete
    assert found.batches_per_s == pytest.approx(10)
    assert meter.batches == 3
