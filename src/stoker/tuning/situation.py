"""What is known of a loader at the recommended setting, for naming its limit. Pure.

Numbers that can't be (negative, infinite, not a number) are taken as not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.tuning.answer import Parts, Rate


@dataclass(frozen=True)
class Situation:
    """Everything that is known of the recommended setting and those around it.

    Attributes:
        rates: What was measured, in any order.
        parts: Where the time of a batch goes with the recommended setting.
        cpus: CPUs that this process may use.
        bound_per_s: Batches a second with batches that were ready; None when not measured.
        memory_workers: The most workers that there is memory for, where that was looked at.
        start_s: From ``iter(loader)`` to the first batch, with the recommended setting.
        epoch_batches: Batches of an epoch, for what a start weighs; None when not known.
        batch_size: Samples of a batch; None when not known.
        consumer_cpus: CPUs that the consumer's own step used on average; 0 when not known.
    """

    rates: Sequence[Rate] = field(default=())
    parts: Parts | None = None
    cpus: float = 1
    bound_per_s: float | None = None
    memory_workers: int | None = None
    start_s: float | None = None
    epoch_batches: int | None = None
    batch_size: int | None = None
    consumer_cpus: float = 0.0


@dataclass(frozen=True)
class Point:
    """One number of workers, as the rules look at it; times in seconds for a batch."""

    workers: int
    per_s: float
    waiting: float
    busy: float | None
    cpus: float | None

    @property
    def off_cpu_s(self) -> float | None:
        """Making a batch without a CPU, by Little's law."""
        if self.busy is None or self.cpus is None:
            return None
        return max(0.0, self.busy - self.cpus) / self.per_s


@dataclass(frozen=True)
class Measured:
    here: Point
    points: tuple[Point, ...]
    parts: Parts
    said: Situation

    @property
    def period_s(self) -> float:
        """The consumer's time between two batches; above 0."""
        parts = self.parts
        told_s = parts.step_s + parts.waited_s + parts.handling_s + parts.loading_s
        return told_s if told_s > 0 else 1 / self.here.per_s

    @property
    def waiting(self) -> float:
        return share(self.parts.waited_s + self.parts.loading_s, self.period_s)

    @property
    def busy(self) -> float:
        """Workers that make a batch, on average."""
        if self.here.busy is not None:
            return self.here.busy
        return min(float(self.here.workers), self.parts.service_s / self.period_s)

    @property
    def cpus_used(self) -> float:
        """By workers and the consumer."""
        making = self.here.cpus
        if making is None:
            making = self.parts.computing_s / self.period_s
        return making + self.said.consumer_cpus + self.parts.handling_s / self.period_s

    @property
    def in_use(self) -> float:
        return self.cpus_used / max(self.said.cpus, 0.01)

    @property
    def lower(self) -> Point | None:
        """The next smaller number of workers that was measured."""
        return max(
            (point for point in self.points if point.workers < self.here.workers),
            key=lambda point: point.workers,
            default=None,
        )

    @property
    def higher(self) -> Point | None:
        """The largest number of workers that was measured, where it is above this one."""
        most = self.points[-1]
        return most if most.workers > self.here.workers else None


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 of nothing."""
    return part / whole if whole > 0 else 0.0


def measured(said: Situation) -> Measured | None:
    points = sorted(
        (point for rate in said.rates if (point := _point(rate))), key=lambda point: point.workers
    )
    parts = said.parts
    if parts is None or not _sound(parts):
        best = max(points, key=lambda point: point.per_s, default=None)
        parts = _guessed(best) if best else None
    if parts is None:
        return None
    here = next((point for point in points if point.workers == parts.num_workers), None)
    if here is None:
        period_s = parts.step_s + parts.waited_s + parts.handling_s + parts.loading_s
        if period_s <= 0:
            return None
        waiting = (parts.waited_s + parts.loading_s) / period_s
        here = Point(parts.num_workers, 1 / period_s, waiting, None, None)
        points = sorted([*points, here], key=lambda point: point.workers)
    return Measured(here, tuple(points), parts, _cleaned(said))


def _point(rate: Rate) -> Point | None:
    summary = rate.summary
    if not (math.isfinite(summary.batches_per_s) and summary.batches_per_s > 0):
        return None
    return Point(
        summary.num_workers,
        summary.batches_per_s,
        _known(rate.waiting) or 0.0,
        _known(rate.busy_workers),
        _known(rate.cpus_used),
    )


def _guessed(point: Point) -> Parts:
    """The parts of a batch where only the rate and the waiting are known."""
    period_s = 1 / point.per_s
    waited_s = min(1.0, point.waiting) * period_s
    made = (0.0, waited_s) if point.workers == 0 else (waited_s, 0.0)
    busy_s = (point.busy or 0.0) / point.per_s
    computing_s = min(busy_s, (point.cpus or 0.0) / point.per_s)
    off_cpu_s = busy_s - computing_s
    return Parts(
        point.workers, period_s - waited_s, made[0], 0.0, made[1], computing_s, off_cpu_s, 0.0
    )


def _sound(parts: Parts) -> bool:
    times = (
        parts.step_s,
        parts.waited_s,
        parts.handling_s,
        parts.loading_s,
        parts.computing_s,
        parts.off_cpu_s,
        parts.starved_s,
        parts.order_s,
    )
    # So large a sum would be no number any more.
    return all(0 <= value < 1e12 for value in times) and parts.num_workers >= 0


def _cleaned(said: Situation) -> Situation:
    return Situation(
        said.rates,
        said.parts,
        _known(said.cpus) or 1.0,
        _known(said.bound_per_s) or None,
        said.memory_workers,
        _known(said.start_s),
        said.epoch_batches,
        said.batch_size,
        _known(said.consumer_cpus) or 0.0,
    )


def _known(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return value
