"""What n workers would give: the closed form, and curves through what was measured. Pure.

A curve is the universal scalability law (Gunther, "Guerrilla Capacity Planning", 2007) for the
time of a batch, ``s(n) = first + queueing * (n - 1) + bending * n * (n - 1)``, under a ceiling:
the rate is ``min(n / s(n), ceiling)``. Which parts are there is chosen by how well they explain
the measured points, fewer parts first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HANDLING_S = 150e-6
"""The main process's time for a batch that a worker made, before it was measured; measured
0.1-0.3 ms to wake a process and open a batch."""
ENOUGH = 0.98
"""The fewest workers within 2 % of the best rate are the best: less cannot be told apart."""
MOST = 1024
"""Numbers of workers that are thought of at all."""
KNEE = 16
"""How sharply a ceiling takes over: batches differ, so where workers and ceiling are equal the
rate is 4 % below both (the exponent of a soft minimum)."""
A_PART = 2.0
"""What another part of a curve must explain (Akaike's criterion), in squared deviations."""
PLAUSIBLE = 4.0
"""Curves that cost this much more than the best could still be the true one."""
COMPUTES, MOSTLY = 0.96, 0.9
"""Work that computes for such a share of its time is taken to compute all the time: a worker
more than CPUs would only take turns. The first number is not to be more than CPUs for less."""


@dataclass(frozen=True)
class Point:
    """A measured rate in batches a second, and its standard error as a share of it."""

    workers: int
    rate_per_s: float
    error: float


@dataclass(frozen=True)
class Curve:
    """One explanation of the measured points; times in seconds for a batch."""

    first_s: float
    queueing_s: float = 0.0
    bending_s: float = 0.0
    ceiling_per_s: float = math.inf
    cost: float = 0.0

    def made_s(self, workers: int) -> float:
        """Making one batch while so many workers make one."""
        beside = workers - 1
        return self.first_s + self.queueing_s * beside + self.bending_s * workers * beside

    def rate_per_s(self, workers: int) -> float:
        """Batches a second that so many workers would make."""
        free_per_s = workers / self.made_s(workers)
        if not math.isfinite(self.ceiling_per_s):
            return free_per_s
        low, high = sorted((free_per_s, self.ceiling_per_s))
        return float(low * (1 + (low / high) ** KNEE) ** (-1 / KNEE))

    def fewest(self, limit: int, fed_per_s: float) -> int:
        """The fewest workers up to `limit` that reach `fed_per_s`, or nearly the best there is."""
        rates = [self.rate_per_s(workers) for workers in range(1, min(limit, MOST) + 1)]
        enough = min(fed_per_s, ENOUGH * max(rates))
        return 1 + next(index for index, rate in enumerate(rates) if rate >= enough)


def keeping_fed(service_s: float, cycle_s: float) -> int:
    """Workers that make batches as fast as they are used, one every `cycle_s`."""
    return max(1, math.ceil(min(1e6, service_s / max(cycle_s, 1e-9)) - 0.05))


def keeping_busy(cpus: float, cpu: float, computes: float = COMPUTES) -> int:
    """The most workers that `cpus` can serve where they compute for a share `cpu` of the time."""
    if cpu >= computes:
        return max(1, min(MOST, math.ceil(cpus - 0.05)))
    return max(1, min(MOST, math.ceil(cpus / max(cpu, 1e-3))))


def curves(points: Sequence[Point]) -> list[Curve]:
    """The plausible explanations of points sorted by workers, the simplest good one first."""
    found = [curve for parts in PARTS if (curve := _through(points, parts))]
    for split in range(1, len(points)):
        ceiling_per_s = _mean_rate(points[split:])
        below = [_through(points[:split], parts) for parts in PARTS]
        found += [_under(curve, ceiling_per_s) for curve in below if curve]
    costed = [_costed(curve, points) for curve in found]
    costed.sort(key=lambda curve: curve.cost)
    return [curve for curve in costed if curve.cost <= costed[0].cost + PLAUSIBLE]


# Which of first, queueing and bending a curve has.
PARTS = ((0,), (0, 2), (0, 1), (0, 1, 2))


def _through(points: Sequence[Point], parts: tuple[int, ...]) -> Curve | None:
    """Weighted least squares of the time of a batch; None where the parts cannot be told."""
    if len(parts) > len(points):
        return None
    rows, wanted = [], []
    for point in points:
        service_s, beside = point.workers / point.rate_per_s, point.workers - 1
        weight = 1 / (service_s * point.error)
        terms = (1.0, float(beside), float(beside * point.workers))
        rows.append([terms[part] * weight for part in parts])
        wanted.append(service_s * weight)
    found = _least_squares(rows, wanted)
    if found is None or found[0] <= 0 or min(found) < 0:
        return None
    values = [0.0, 0.0, 0.0]
    for part, value in zip(parts, found, strict=True):
        values[part] = value
    return Curve(*values)


def _least_squares(rows: list[list[float]], wanted: list[float]) -> list[float] | None:
    """Solves the normal equations by elimination; None where they have no single solution."""
    size = len(rows[0])
    table = [
        [math.fsum(row[i] * row[j] for row in rows) for j in range(size)]
        + [math.fsum(row[i] * value for row, value in zip(rows, wanted, strict=True))]
        for i in range(size)
    ]
    for i in range(size):
        pivot = table[i][i]
        if pivot <= 1e-9 * math.fsum(row[i] * row[i] for row in rows) or pivot <= 0:
            return None
        for j in range(size):
            if j != i:
                factor = table[j][i] / pivot
                table[j] = [a - factor * b for a, b in zip(table[j], table[i], strict=True)]
    return [table[i][size] / table[i][i] for i in range(size)]


def _mean_rate(points: Sequence[Point]) -> float:
    weights = [1 / point.error**2 for point in points]
    rates = [point.rate_per_s for point in points]
    return math.fsum(w * r for w, r in zip(weights, rates, strict=True)) / math.fsum(weights)


def _under(curve: Curve, ceiling_per_s: float) -> Curve:
    return Curve(curve.first_s, curve.queueing_s, curve.bending_s, ceiling_per_s)


def _costed(curve: Curve, points: Sequence[Point]) -> Curve:
    """The curve with its cost: squared deviations from the points, and its parts."""
    misses = (
        math.log(curve.rate_per_s(point.workers) / point.rate_per_s) / point.error
        for point in points
    )
    parts = (curve.queueing_s > 0) + (curve.bending_s > 0) + math.isfinite(curve.ceiling_per_s)
    cost = math.fsum(miss * miss for miss in misses) + A_PART * parts
    return Curve(curve.first_s, curve.queueing_s, curve.bending_s, curve.ceiling_per_s, cost)
