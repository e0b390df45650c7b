"""One guess at what workers would give on another machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stoker.tuning.model import KNEE, MOST, Curve

SHARP, BLUNT = 40.0, 14.0
"""How sharply one limit takes over from another, as exponents of a soft minimum: machines are
between the two."""
BLUNTEST = 4.0
"""The same where few workers make batches that differ much."""
UNEVEN = 0.4
"""Where workers and consumer are equally fast, the rate is lower by this share of the deviation
of what lies ready: half the mean of what a bell is off by."""
AHEAD = 2
"""Batches that each worker makes ahead."""
ONE_BY_ONE, STRIDE = 64, 0.02
"""Numbers up to the first are looked at one by one, above it in steps of 2 %."""


@dataclass(frozen=True)
class Scenario:
    """A machine, a consumer and one explanation of the work. Seconds, a batch.

    Attributes:
        curve: Making a batch with so many workers where each has a CPU, and the ceiling of what
            they share.
        offsets: Numbers of workers, and the log of what was measured there over the curve: what
            is measured beats what is fitted.
        main_s: Making one in the main process.
        cpu_s: CPU time of a batch with one worker.
        crowding: Share of what workers slow each other down by that is CPU time.
        handling_s: The main process's work for a batch that a worker made.
        step_s: The consumer's step.
        step_cpus: CPUs that the step keeps busy, 0 or 1.
        cpus: CPUs there are.
        sharp: How sharply one limit takes over from another.
        spread: Deviation from batch to batch that makes it softer; 0 for none.
    """

    curve: Curve
    offsets: tuple[tuple[int, float], ...]
    main_s: float
    cpu_s: float
    crowding: float
    handling_s: float
    step_s: float
    step_cpus: int
    cpus: float
    sharp: float = KNEE
    spread: float = 0.0

    def made_per_s(self, workers: int) -> float:
        """Batches a second from so many workers if each has a CPU and nobody keeps them."""
        return self.curve.rate_per_s(workers) * math.exp(self._offset(workers))

    def served_per_s(self, workers: int) -> float:
        """Batches a second that the CPUs are enough for, while so many workers make them."""
        grown = self.curve.made_s(workers) / self.curve.first_s - 1
        cpu_s = self.cpu_s * (1 + self.crowding * grown) + self.handling_s
        return self.cpus / max(cpu_s + self.step_s * self.step_cpus, 1e-9)

    @property
    def wanted_per_s(self) -> float:
        """Batches a second that the consumer takes if it never waits."""
        return 1 / max(self.step_s + self.handling_s, 1e-9)

    def rate_per_s(self, workers: int) -> float:
        """Batches a second that the consumer gets."""
        if workers == 0:
            alone_s = self.main_s * max(1.0, self.cpu_s / self.curve.first_s / self.cpus)
            alone_s += self.step_s * max(1.0, self.step_cpus / self.cpus)
            return min(1 / alone_s, self.curve.ceiling_per_s)
        limits = (self.made_per_s(workers), self.served_per_s(workers), self.wanted_per_s)
        return soft_minimum(limits, self._sharp(workers))

    def waiting(self, workers: int) -> float:
        """Share of the time that the consumer waits for a batch, or makes it itself."""
        return min(1.0, max(0.0, 1 - self.rate_per_s(workers) * self.own_s(workers)))

    def own_s(self, workers: int) -> float:
        """What the consumer takes for a batch when it never waits."""
        return self.step_s + (self.handling_s if workers else 0.0)

    def fewest(self, most: int, shares: tuple[float, ...]) -> list[int]:
        """For each share, the fewest workers up to `most` that reach it of the best rate."""
        numbers = list(looked_at(most))
        rates = [self.rate_per_s(workers) for workers in numbers]
        best = max(rates)
        return [
            next(n for n, rate in zip(numbers, rates, strict=True) if rate >= share * best)
            for share in shares
        ]

    def _offset(self, workers: int) -> float:
        """Between what was measured in proportion, and beyond it as at its ends."""
        below = [each for each in self.offsets if each[0] <= workers]
        above = [each for each in self.offsets if each[0] >= workers]
        if not below or not above:
            return (below[-1:] + above[:1] + [(0, 0.0)])[0][1]
        (low, first), (high, last) = below[-1], above[0]
        if low == high:
            return first
        return first + (last - first) * math.log(workers / low) / math.log(high / low)

    def _sharp(self, workers: int) -> float:
        uneven = UNEVEN * self.spread / math.sqrt(AHEAD * workers)
        return max(BLUNTEST, min(self.sharp, math.log(2) / uneven)) if uneven else self.sharp


def looked_at(most: int) -> Iterable[int]:
    """Numbers of workers from 0 to `most`, with gaps where one more makes no difference."""
    number = 0
    while number < min(most, MOST):
        yield number
        number += max(1, round(STRIDE * number)) if number >= ONE_BY_ONE else 1
    yield min(most, MOST)


def soft_minimum(limits: Iterable[float], sharp: float) -> float:
    """A little less than the least of `limits` where several are nearly equal."""
    several = list(limits)
    least = min(several)
    return least * math.pow(math.fsum((least / each) ** sharp for each in several), -1 / sharp)
