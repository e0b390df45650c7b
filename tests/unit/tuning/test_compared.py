"""When one setting counts as faster than another."""

from __future__ import annotations

import pytest

from tests.unit.tuning.planted import again, answer, own, rounds


@pytest.mark.parametrize(("per_s", "num_workers"), [(41.5, 2), (43.0, 2), (46.0, 4)])
def test_one_pair_of_windows_shows_only_what_is_far_above_its_noise(
    per_s: float, num_workers: int
) -> None:
    """39 batches a second with two workers; a window alone is off by some 4 %."""
    found = answer(
        own(2, 39.0, 39.0),
        rounds({2: (39.0,), 4: (per_s,)}),
        own=2,
        chosen=4,
        persistent=True,
    )
    assert found.advice is not None
    assert found.advice.num_workers == num_workers


def test_a_large_gain_is_taken_before_it_is_beyond_doubt() -> None:
    """Rates of one run on two CPUs, where a step and two workers are in each other's way."""
    found = answer(
        own(0, 9.7, 9.6),
        rounds({0: (10.5, 11.2, 10.6), 2: (10.7, 14.5, 12.9)}),
        again(0, 10.8),
        chosen=2,
        persistent=True,
    )
    assert found.advice is not None
    assert found.advice.num_workers == 2
    assert found.advice.gain == pytest.approx(1.2, abs=0.05)
    assert not found.advice.certain
    assert "probably about 1.2 times the 10.7 of now with 0" in found.advice.reason
    assert "although rates vary by as much" in found.advice.reason


def test_a_small_gain_in_doubt_is_none() -> None:
    """As likely as a large one, and not worth two workers."""
    found = answer(
        own(0, 9.7, 9.6),
        rounds({0: (10.0, 10.0, 10.0), 2: (10.2, 10.8, 11.2)}),
        again(0, 10.0),
        chosen=2,
        persistent=True,
    )
    assert found.advice is not None
    assert (found.advice.num_workers, found.advice.gain) == (0, 1.0)
