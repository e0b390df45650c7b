"""Many workers for little: they have to be shown to be worth it."""

from __future__ import annotations

import pytest

from stoker.tuning.probing import Prober
from tests.unit.tuning.planted import again, answer, own, rounds, seen
from tests.unit.tuning.probing_drive import drive
from tests.unit.tuning.simulated import World


def test_far_more_workers_whose_gain_may_be_noise_are_not_recommended() -> None:
    found = answer(
        own(4, 90.0, 100.0),
        rounds({8: (100.0, 130.0, 105.0), 32: (120.0, 112.0, 108.0)}),
        again(4, 60.0),
        own=4,
        chosen=32,
        certain=False,
        persistent=True,
    )
    assert found.advice is not None
    assert (found.advice.num_workers, found.advice.certain) == (8, False)
    assert "32 workers gave 112, 3 % more round by round, which is within" in found.advice.reason


@pytest.mark.parametrize("certain", [True, False])
def test_far_more_workers_that_every_round_shows_to_be_faster_are(certain: bool) -> None:
    found = answer(
        own(4, 50.0, 50.0),
        rounds({8: (100.0, 101.0, 102.0), 32: (120.0, 121.0, 122.0)}),
        again(4, 50.0),
        own=4,
        chosen=32,
        certain=certain,
        persistent=True,
    )
    assert found.advice is not None
    assert found.advice.num_workers == 32


def test_a_look_does_not_keep_far_more_workers_than_are_needed() -> None:
    """A tenth more in one window, for 28 processes."""
    found = answer(
        own(32, 110.0, 108.0),
        [seen(1, 30.0)],
        rounds({3: (96.0, 97.0), 4: (99.0, 100.0)}),
        again(32, 112.0),
        own=32,
        chosen=4,
        persistent=True,
    )
    assert found.advice is not None
    assert found.advice.num_workers == 4


@pytest.mark.parametrize("seed", range(6))
def test_the_only_number_that_is_left_for_rounds_is_chosen(seed: int) -> None:
    """One long window of 32 is no reason to keep them where two feed the consumer."""
    world = World(cpus=8, service_s=1.7, cpu=0.2, away_s=1.2, noise=0.06, most=32)
    assert drive(world, Prober(32), seed).chosen <= 4
