"""What the meter adds up, and what a window of it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.feed.meter import WAIT_BOUNDS_S, Meter


@dataclass
class Consumer:
    """A consumer with a clock of its own, which only what is said here moves."""

    meter: Meter = field(default_factory=Meter)
    now: float = 1000.0

    def begin(self, after_s: float = 0.0) -> Consumer:
        self.now += after_s
        self.meter.begin_epoch()
        return self

    def served(self, away_s: float = 0.0, waited_s: float = 0.0, handled_s: float = 0.0) -> None:
        """Is away, asks, waits for what a worker makes, and has it handed out."""
        self.now += away_s
        entered = self.now
        self.meter.entered(entered)
        self.now += waited_s + handled_s
        self.meter.delivered(entered, self.now, waited_s)

    def loaded(
        self, away_s: float = 0.0, loading_s: float = 0.0, cpu_s: float | None = None
    ) -> None:
        """Is away, asks, and has the batch made in the main process."""
        self.now += away_s
        entered = self.now
        self.meter.entered(entered)
        self.now += loading_s
        if cpu_s is not None:
            self.meter.clocked(loading_s, cpu_s)
        self.meter.loaded(entered, self.now)

    def failed(self, away_s: float = 0.0, waited_s: float = 0.0) -> None:
        """Is away, asks, and gets an error."""
        self.now += away_s
        self.meter.entered(self.now)
        self.now += waited_s


def approx(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def test_time_is_added_up_where_it_belongs() -> None:
    consumer = Consumer().begin(after_s=50)
    consumer.served(waited_s=0.5, handled_s=0.01)
    consumer.served(away_s=0.2, waited_s=0.1, handled_s=0.02)
    consumer.served(away_s=0.3)
    totals = consumer.meter.totals
    assert totals.batches == 3
    assert totals.waited_s == approx(0.6)
    assert totals.handling_s == approx(0.03)
    assert totals.away_s == approx(0.5)
    assert totals.opening_s == approx(0.5)
    assert totals.seconds == approx(0.6 + 0.03 + 0.5 - 0.5)
    assert consumer.meter.left_at == consumer.now


def test_the_time_between_two_epochs_is_nobodys() -> None:
    consumer = Consumer().begin()
    consumer.served(waited_s=0.1)
    consumer.begin(after_s=7)
    consumer.served(away_s=3, waited_s=0.2)  # from the epoch's beginning to its first `next`
    totals = consumer.meter.totals
    assert totals.epochs == 2
    assert totals.away_s == 0
    assert totals.opening_s == approx(0.3)
    assert totals.seconds == approx(0)


def test_what_is_loaded_in_the_main_process_is_no_wait() -> None:
    consumer = Consumer().begin()
    consumer.loaded(loading_s=0.4, cpu_s=0.1)
    consumer.loaded(away_s=0.1, loading_s=0.2)
    totals = consumer.meter.totals
    assert (totals.waited_s, totals.handling_s, totals.opening_s) == (0, 0, 0)
    assert totals.loading_s == approx(0.6)
    assert totals.loaded == 2
    assert totals.seconds == approx(0.7)
    assert consumer.meter.loading_cpu_s == approx(0.6 * 0.25)
    assert not consumer.meter.waits
    assert sum(consumer.meter.histogram) == 0


def test_a_pause_is_not_the_step() -> None:
    consumer = Consumer().begin()
    for _ in range(20):
        consumer.served(away_s=0.01)
    before_s = consumer.meter.away_s
    consumer.served(away_s=60)
    assert consumer.meter.totals.paused_s == approx(60)
    assert consumer.meter.away_s == before_s
    consumer.served(away_s=0.01)
    assert consumer.meter.totals.away_s == approx(20 * 0.01)  # none before the first batch


def test_a_long_step_is_no_pause() -> None:
    consumer = Consumer().begin()
    for _ in range(20):
        consumer.served(away_s=5)
    assert consumer.meter.totals.paused_s == 0
    consumer.served(away_s=40)
    assert consumer.meter.totals.paused_s == 0


def test_the_usual_absence_follows_the_step() -> None:
    consumer = Consumer().begin()
    for _ in range(60):
        consumer.served(away_s=0.1)
    assert consumer.meter.away_s == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("waited_s", [0.0, 0.00005, 0.0001, 0.00011, 0.02, 3.0, 9.9, 10.1, 1e6])
def test_a_wait_is_counted_under_the_first_bound_that_holds_it(waited_s: float) -> None:
    consumer = Consumer().begin()
    consumer.served(waited_s=waited_s)
    at = consumer.meter.histogram.index(1)
    assert sum(consumer.meter.histogram) == 1
    assert waited_s <= WAIT_BOUNDS_S[at]
    assert at == 0 or waited_s > WAIT_BOUNDS_S[at - 1]


def test_waits_are_those_of_the_last_batches_and_are_forgotten_on_request() -> None:
    consumer = Consumer().begin()
    for number in range(600):
        consumer.served(waited_s=number / 1024)
    assert list(consumer.meter.waits) == [number / 1024 for number in range(88, 600)]
    consumer.meter.forget_waits()
    assert not consumer.meter.waits
    assert sum(consumer.meter.histogram) == 600


def test_what_workers_say_is_added_up() -> None:
    meter = Meter()
    meter.made(1.0, 0.4, None, 100)
    assert not meter.starved_known
    meter.made(2.0, 0.6, 0.5, 300)
    meter.made(1.0, 0.5, 0.25, 200)
    assert (meter.totals.made, meter.totals.busy_s, meter.totals.cpu_s) == (3, 4.0, 1.5)
    assert (meter.totals.starved_s, meter.starved_known) == (0.75, True)
    assert (meter.totals.total_bytes, meter.batch_bytes) == (600, 300)


def test_peaks_are_the_most_there_was() -> None:
    meter = Meter()
    for in_flight, slot_bytes in ((1, 10), (4, 5), (2, 30), (0, 0)):
        meter.note_peaks(in_flight, slot_bytes)
    assert (meter.peak_in_flight, meter.peak_slot_bytes) == (4, 30)


def test_a_window_is_the_difference_of_two_looks() -> None:
    consumer = Consumer().begin()
    meter = consumer.meter
    consumer.served(waited_s=9)
    meter.made(5.0, 5.0, 1.0, 10)
    assert not meter.window_is_open
    assert meter.seen() == (0, 0.0)
    meter.open_window()
    assert meter.window_is_open
    consumer.served(away_s=0.5, waited_s=0.25, handled_s=0.125)
    consumer.served(away_s=0.5)
    meter.made(3.0, 2.0, 0.5, 400)
    assert meter.seen() == (2, approx(1.375))
    window = meter.close_window(workers=3)
    assert not meter.window_is_open
    assert (window.workers, window.batches, window.made) == (3, 2, 1)
    assert window.seconds == approx(1.375)
    assert (window.waited_s, window.away_s, window.handling_s) == (
        approx(0.25),
        approx(1.0),
        approx(0.125),
    )
    assert (window.busy_s, window.cpu_s, window.starved_s) == (3.0, 2.0, 0.5)
    assert window.batch_bytes == 400
    assert meter.recent is window


def test_a_window_across_epochs_leaves_the_opening_out() -> None:
    consumer = Consumer().begin()
    consumer.served(waited_s=1)
    consumer.meter.open_window()
    consumer.served(away_s=0.5, waited_s=0.25)
    consumer.begin(after_s=30)
    consumer.served(away_s=2, waited_s=4, handled_s=0.125)
    consumer.served(away_s=0.5)
    window = consumer.meter.close_window(workers=1)
    assert window.batches == 3
    assert (window.waited_s, window.away_s, window.handling_s) == (
        approx(0.25),
        approx(1.0),
        approx(0.125),
    )
    assert window.seconds == approx(1.375)


def test_a_window_that_holds_a_pause_does_not_count_it() -> None:
    consumer = Consumer().begin()
    for _ in range(10):
        consumer.served(away_s=0.01)
    consumer.meter.open_window()
    consumer.served(away_s=0.01)
    consumer.served(away_s=100)
    window = consumer.meter.close_window(workers=1)
    assert window.seconds == approx(0.01)


def test_a_spoilt_window_is_none() -> None:
    meter = Meter()
    meter.open_window()
    meter.spoil_window()
    assert not meter.window_is_open
    assert meter.recent is None


def test_a_window_of_the_main_process_takes_cpu_time_from_what_was_clocked() -> None:
    consumer = Consumer().begin()
    consumer.loaded(loading_s=1.0, cpu_s=1.0)
    consumer.meter.open_window()
    consumer.loaded(away_s=0.5, loading_s=0.5, cpu_s=0.125)
    consumer.loaded(away_s=0.5, loading_s=1.5)
    window = consumer.meter.close_window(workers=0)
    assert (window.made, window.busy_s) == (2, approx(2.0))
    assert window.cpu_s == approx(0.5)
    assert window.waited_s == window.handling_s == 0
    assert window.starved_s is None
    assert window.waiting == approx(2.0 / 3.0)


def test_a_window_in_which_nothing_was_clocked_takes_the_share_of_before() -> None:
    consumer = Consumer().begin()
    consumer.meter.open_window()
    consumer.loaded(loading_s=1.0)
    assert consumer.meter.close_window(workers=0).cpu_s == approx(1.0)  # nothing known: all of it
    consumer.loaded(loading_s=1.0, cpu_s=0.5)
    consumer.meter.open_window()
    consumer.loaded(loading_s=2.0)
    assert consumer.meter.close_window(workers=0).cpu_s == approx(1.0)


def test_cpu_time_is_never_more_than_time() -> None:
    consumer = Consumer().begin()
    consumer.meter.open_window()
    consumer.loaded(loading_s=1.0, cpu_s=1.5)  # two clocks never quite agree
    assert consumer.meter.close_window(workers=0).cpu_s == approx(1.0)


def test_an_error_in_place_of_a_batch_is_not_counted_twice() -> None:
    consumer = Consumer().begin()
    consumer.served()
    consumer.failed(away_s=1.0, waited_s=0.5)
    consumer.served(away_s=0.25)
    assert 1.0 <= consumer.meter.totals.away_s <= 1.25


durations = st.floats(0, 20, allow_nan=False)
events = st.lists(
    st.tuples(
        st.sampled_from(["served", "loaded", "epoch", "open", "close", "spoil", "made"]),
        durations,
        durations,
        durations,
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(events)
def test_a_window_is_the_sum_of_its_parts_and_no_longer_than_the_clock_says(
    script: list[tuple[str, float, float, float]],
) -> None:
    consumer = Consumer().begin()
    meter = consumer.meter
    opened_at = loading_s = outside_s = 0.0
    first = True
    for kind, a, b, c in script:
        if kind == "served":
            paused_s = meter.totals.paused_s
            consumer.served(a, b, c)
            outside_s += a + b if first else meter.totals.paused_s - paused_s
            first = False
        elif kind == "loaded":
            paused_s = meter.totals.paused_s
            consumer.loaded(a, b, min(b, c))
            loading_s += b
            outside_s += a if first else meter.totals.paused_s - paused_s
            first = False
        elif kind == "epoch":
            consumer.begin(after_s=a)
            outside_s += a
            first = True
        elif kind == "made":
            meter.made(a, min(a, b), c, 10)
        elif kind == "open":
            meter.open_window()
            opened_at, loading_s, outside_s = consumer.now, 0.0, 0.0
        elif kind == "spoil":
            meter.spoil_window()
        elif meter.window_is_open:
            seen = meter.seen()
            window = meter.close_window(workers=2)
            parts_s = window.waited_s + window.away_s + window.handling_s
            close = pytest.approx(window.seconds, rel=1e-6, abs=1e-6)
            assert parts_s + loading_s == close
            assert consumer.now - opened_at - outside_s == close
            assert seen == (window.batches, window.seconds)
            assert min(window.waited_s, window.away_s, window.handling_s) >= -1e-6
            assert window.cpu_s <= window.busy_s + 1e-6
