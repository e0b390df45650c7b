"""Epochs too short for a steady stretch: numbers are compared over whole epochs, all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from stoker.feed.window import Window
from stoker.tuning.probing import Prober
from tests.unit.tuning.planted import answer, own, seen
from tests.unit.tuning.simulated import World

WAITS = World(cpus=8, service_s=0.16, cpu=0.02, away_s=0.02, spread=0.1)


@dataclass
class Line:
    """A loader whose epochs are measured whole once one number takes a sixth of them at once.

    Attributes:
        world: What it does within an epoch.
        length: Batches of an epoch.
        start_s: Starting one worker.
        whole: Whether its epochs are measured whole by now.
    """

    world: World
    length: int
    start_s: float
    whole: bool = False

    def rate_per_s(self, workers: int) -> float:
        """Batches a second over an epoch with the start of its workers: the truth."""
        steady_per_s = self.world.rate_per_s(workers)
        started_s = workers * self.start_s + (self.world.service_s if workers else 0.0)
        return self.length / (started_s + self.length / steady_per_s)

    def window(self, workers: int, batches: int, seconds: float, draw: random.Random) -> Window:
        self.whole = self.whole or 0 < self.length < 6 * workers
        found = self.world.window(workers, batches, seconds, draw)
        if not self.whole or not workers:
            return found
        longer = self.world.rate_per_s(workers) / self.rate_per_s(workers)
        lost_s = found.seconds * (longer - 1)
        waited_s = found.waited_s + lost_s
        return replace(found, seconds=found.seconds + lost_s, waited_s=waited_s, whole=True)

    def share_of_best(self, workers: int) -> float:
        return self.rate_per_s(workers) / max(map(self.rate_per_s, range(17)))


def answered(line: Line, own: int, seed: int) -> Prober:
    draw, prober = random.Random(seed), Prober(own, most=16)
    while prober.stage not in ("replay", "done"):
        ask = prober.ask
        window = line.window(ask.setting.workers, ask.batches, ask.seconds, draw)
        prober.observe(window, line.world.bounds())
    return prober


@pytest.mark.parametrize("start_s", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("own", [0, 2, 6, 12])
def test_the_start_of_workers_counts_for_all_numbers(own: int, start_s: float) -> None:
    lines = [Line(WAITS, 30, start_s) for _ in range(20)]
    shares = [
        line.share_of_best(answered(line, own, seed).chosen) for seed, line in enumerate(lines)
    ]
    assert all(share >= 0.89 for share in shares)
    assert sum(share >= 0.93 for share in shares) >= 18


@pytest.mark.parametrize("counts", [[2, 8], [8, 2], [2, 4, 8]])
def test_numbers_of_a_round_are_measured_again_where_the_last_one_is_too_large(
    counts: list[int],
) -> None:
    """Within an epoch eight are much faster than two; with their start they are slower."""
    line, draw, prober = Line(WAITS, 30, 1.0), random.Random(0), Prober(2, counts=counts)
    seen: list[tuple[int, bool]] = []
    while prober.stage not in ("replay", "done"):
        ask = prober.ask
        window = line.window(ask.setting.workers, ask.batches, ask.seconds, draw)
        if ask.stage == "confirm":
            seen.append((ask.setting.workers, window.whole))
        prober.observe(window, line.world.bounds())
    first = seen.index((8, True))
    assert {workers for workers, whole in seen[first:]} == set(counts)
    assert all(whole for _, whole in seen[first:])
    assert prober.chosen == 2


def test_the_own_number_is_measured_again_where_it_was_seen_within_an_epoch() -> None:
    line, draw, prober = Line(WAITS, 30, 0.2), random.Random(0), Prober(1, most=16)
    stages = set()
    while prober.stage not in ("replay", "done"):
        ask = prober.ask
        stages.add((ask.stage, ask.setting.workers))
        line.whole = line.whole or ask.stage != "own"
        window = line.window(ask.setting.workers, ask.batches, ask.seconds, draw)
        prober.observe(window, line.world.bounds())
    assert stages & {("confirm", 1), ("again", 1)}


def test_a_rate_is_of_whole_epochs_where_there_were_any() -> None:
    """Four were seen to give 40 within an epoch, and 20 with their start."""
    told = answer(
        own(0, 10.0),
        [seen(4, 40.0, first_batch_s=0.8)],
        [seen(4, 20.0, whole=True, first_batch_s=0.8)],
        chosen=4,
        epoch_batches=30,
    )
    rates = {each.summary.num_workers: each.summary for each in told.rates}
    assert rates[0].batches_per_s == pytest.approx(10.0)
    assert rates[4].batches_per_s == pytest.approx(20.0)


def test_a_report_of_steady_stretches_is_of_their_rates() -> None:
    told = answer(own(0, 10.0), [seen(4, 40.0, first_batch_s=0.8)], chosen=4, epoch_batches=30)
    rates = {each.summary.num_workers: each.summary for each in told.rates}
    assert rates[4].batches_per_s == pytest.approx(40.0)
    assert rates[4].epoch_batches_per_s == pytest.approx(30 / (0.8 + 29 / 40))
