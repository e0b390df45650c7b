"""When one setting counts as faster than another."""

from __future__ import annotations

import pytest

from tests.unit.tuning.planted import answer, own, rounds


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
