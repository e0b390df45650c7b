"""How many batches a worker holds, and how long a waiting consumer sleeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.feed.dispatch import (
    BURST_LIMIT,
    BURST_S,
    NAP_LIMIT_S,
    nap_s,
    queue_depth,
)

NO_LIMIT = 1 << 30

seconds = st.floats(0, 100, allow_nan=False)


@given(st.integers(1, 64), seconds, st.none() | seconds, st.booleans())
def test_depth_is_between_one_and_prefetch(
    prefetch: int, away_s: float, service_s: float | None, waiting: bool
) -> None:
    most = max(prefetch, BURST_LIMIT) if waiting else prefetch
    assert 1 <= queue_depth(prefetch, away_s, service_s, waiting=waiting) <= most


@given(st.integers(1, 64), seconds, seconds, seconds, st.booleans())
def test_depth_grows_with_absence_and_falls_with_service_time(
    prefetch: int, away_s: float, service_s: float, more_s: float, waiting: bool
) -> None:
    depth = queue_depth(prefetch, away_s, service_s, waiting=waiting)
    assert queue_depth(prefetch, away_s + more_s, service_s, waiting=waiting) >= depth
    assert queue_depth(prefetch, away_s, service_s + more_s, waiting=waiting) <= depth
    assert queue_depth(prefetch, away_s, service_s, waiting=True) >= depth


def test_a_worker_never_holds_more_than_a_burst_while_the_consumer_waits() -> None:
    assert queue_depth(1, 0.0, BURST_S / 4.5, waiting=True) == 4
    assert queue_depth(1, 0.0, BURST_S * 2, waiting=True) == 1
    assert queue_depth(1, 0.0, 0.0, waiting=True) == BURST_LIMIT


@pytest.mark.parametrize(
    ("away_s", "service_s", "depth"),
    [
        (0.0, None, 8),  # nothing known yet
        (0.0, 0.100, 1),  # slow batches, a waiting consumer: a queued one could not move
        (0.0, 0.002, 2),  # a worker would idle between two batches
        (0.100, 0.100, 2),
        (1.0, 0.100, 8),  # a slow consumer
        (0.350, 0.100, 5),
        (0.0, 0.0, 8),
    ],
)
def test_depth_examples(away_s: float, service_s: float | None, depth: int) -> None:
    assert queue_depth(8, away_s, service_s) == depth


helds = st.lists(st.tuples(st.integers(0, 64), st.none() | st.floats(0, 0.1)), max_size=4)


@given(helds)
def test_a_nap_is_short_and_ends_before_the_work_does(held: list[tuple[int, float | None]]) -> None:
    nap = nap_s(held)
    assert 0.0 <= nap <= NAP_LIMIT_S
    for count, service_s in held:
        if service_s is not None and service_s <= NAP_LIMIT_S:
            assert nap <= count * service_s / 2


SHORT_S = NAP_LIMIT_S / 20


@pytest.mark.parametrize(
    ("held", "sleeps"),
    [
        ([], False),
        ([(1, SHORT_S)], False),
        ([(2, SHORT_S)], False),
        ([(12, SHORT_S)], True),
        ([(12, SHORT_S), (2, SHORT_S)], False),
        ([(12, SHORT_S), (0, SHORT_S)], False),
        ([(12, NAP_LIMIT_S * 2)], False),
        ([(12, None)], False),
    ],
)
def test_there_is_a_nap_only_in_a_burst(held: list[tuple[int, float | None]], sleeps: bool) -> None:
    assert (nap_s(iter(held)) > 0) == sleeps
