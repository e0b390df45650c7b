"""What measured rates say about the work itself, once what limits this machine is taken out. Pure.

Two workers on two CPUs give less than twice the rate of one, and that says nothing about
twenty-four CPUs. So each rate is freed of the limits that are known: the CPUs here, and the
consumer here. A rate that is nothing but such a limit tells nothing and is left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.tuning.answer import Answer, Rate, Work
from stoker.tuning.model import A_PART, KNEE, Curve, Point, curves

LEAST_ERROR = 0.015
"""Standard error that no rate is known better than."""
ONE_TRIAL = 0.04
"""Standard error of a rate that was measured once, where its spread is not known."""
ALL_LIMIT = 0.75
"""Share of a rate's shortfall, as the soft minimum sums it, from which on it is all limit."""
INDIRECT = 0.03
"""Error of a time that is taken from CPU time or from how many workers were busy, at least."""
CLEARLY = 2.5
"""Standard errors that a rate must be below a limit, to say something else than the limit."""
FED = 0.1
"""A consumer that waited less was the limit itself."""
BUSY = 0.9
"""Share of the CPUs in use from which on they are all busy."""
SURE = 1.5
"""Standard errors that measured rates are moved by, to see what else they could mean."""
TOO_MUCH = 1.15
"""CPUs used over CPUs there are, from which on what was summed cannot all have been computing."""
GROWN = 1.1
"""Times that a batch takes longer with more workers, from which on the reason can be told."""


@dataclass(frozen=True)
class Evidence:
    """What was measured, freed of this machine.

    Attributes:
        points: By rising number of workers; at least one.
        floors: What was measured at least, whatever limited it.
        main_s: Making a batch in the main process.
        step_cpus: CPUs that the consumer's step is taken to keep busy, 0 or 1.
        crowding: Share of what workers slow each other down that is CPU time; None when they
            do not, or that is not known.
        reach: The most workers that were seen making batches at once.
    """

    points: tuple[Point, ...]
    floors: tuple[Point, ...]
    main_s: float
    step_cpus: int
    crowding: float | None
    reach: int


def evidence(answer: Answer, work: Work, cpus: float, step_cpus: int) -> Evidence:
    """What was measured on `cpus` CPUs, if the consumer's step keeps `step_cpus` busy."""
    rates = comparable(answer.rates)
    here = _Here(work, cpus, step_cpus, _usual_error(rates))
    found = [here.freed(rate) for rate in rates if rate.summary.num_workers]
    points = _one_each([point for point in found if point])
    reach = points[-1].workers if points else 1
    if not points:
        points = [Point(1, 1 / work.service_s, max(LEAST_ERROR, work.doubt))]
    main = next((rate for rate in rates if rate.summary.num_workers == 0), None)
    return Evidence(
        points=tuple(points),
        floors=tuple(here.floor(rate) for rate in rates if rate.summary.num_workers),
        main_s=_main_s(main, work, cpus, step_cpus),
        step_cpus=step_cpus,
        crowding=_crowding(rates, points, work),
        reach=reach,
    )


def step_may_compute(answer: Answer, work: Work, cpus: float) -> bool:
    """Whether there was CPU time left for the consumer's step to be computing all the time."""
    for rate in comparable(answer.rates):
        if rate.cpus_used is not None and rate.summary.num_workers:
            beside = rate.summary.batches_per_s * (work.handling_s + work.step_s)
            if rate.cpus_used + beside > TOO_MUCH * cpus:
                return False
    return True


def comparable(rates: Sequence[Rate]) -> list[Rate]:
    """One rate a count, the best, all of one engine: that with the most counts."""
    whole = [rate for rate in rates if rate.summary.complete and rate.summary.batches_per_s > 0]
    engines = {rate.engine for rate in whole}
    by_engine = [_best_each([r for r in whole if r.engine == each]) for each in sorted(engines)]
    return max(by_engine, key=len, default=[])


def explanations(
    points: Sequence[Point], floors: Sequence[Point], shapes: frozenset[str] | None = None
) -> list[Curve]:
    """The plausible curves through the points as they are, the best one first.

    Where a simple curve is the best, one with more parts is not looked at: noise makes it
    plausible, and twenty-four workers foretold by it would be noise made large.

    Args:
        points: At least one.
        floors: Rates that a curve has to reach.
        shapes: Parts that a curve may have; None for as many as the best one has.
    """
    found = [curve for curve in _fitted(points) if _reaches(curve, floors)]
    found = found or _at_least(points, floors)
    if shapes is not None:
        return [curve for curve in found if shape(curve) <= shapes] or found[:1]
    return [curve for curve in found if len(shape(curve)) <= len(shape(found[0]))]


def _fitted(points: Sequence[Point]) -> list[Curve]:
    """The plausible curves; where even the best is far from the points, their errors were taken
    for too small, and are made larger (Birge, Physical Review 40, 207, 1932).
    """
    found = curves(points)
    missed = found[0].cost - A_PART * len(shape(found[0]))
    if missed <= len(points):
        return found
    larger = math.sqrt(missed / len(points))
    return curves([Point(p.workers, p.rate_per_s, p.error * larger) for p in points])


def _at_least(points: Sequence[Point], floors: Sequence[Point]) -> list[Curve]:
    """Where no curve through the points reaches the floors: the plain one, if noise may have
    made the rest, else curves through the points and the floors that were not reached.
    """
    plain = curves(points[:1])
    seen = (plain[0].rate_per_s(point.workers) for point in points)
    pairs = zip(points, seen, strict=True)
    if all(abs(math.log(rate / p.rate_per_s)) < CLEARLY * p.error for p, rate in pairs):
        return plain
    taken = {point.workers for point in points}
    best = _fitted(points)[0]
    both = list(points)
    both += [each for each in floors if each.workers not in taken and not _reaches(best, [each])]
    return _fitted(sorted(both, key=lambda point: point.workers))


def _reaches(curve: Curve, floors: Sequence[Point]) -> bool:
    return all(
        curve.rate_per_s(floor.workers) >= floor.rate_per_s * (1 - CLEARLY * floor.error)
        for floor in floors
    )


def shape(curve: Curve) -> frozenset[str]:
    """Which parts a curve has."""
    parts = {
        "queueing": curve.queueing_s > 0,
        "bending": curve.bending_s > 0,
        "ceiling": math.isfinite(curve.ceiling_per_s),
    }
    return frozenset(part for part, there in parts.items() if there)


def moved(points: Sequence[Point]) -> list[tuple[list[Point], float]]:
    """The points as they could as well have been, all higher or lower, or tilted; each with
    how much longer everything else would then have taken.
    """
    ways: list[tuple[list[Point], float]] = []
    mean = max(LEAST_ERROR, math.sqrt(1 / math.fsum(1 / point.error**2 for point in points)))
    first, last = math.log(points[0].workers), math.log(points[-1].workers)
    for sign in (SURE, -SURE):
        level = math.exp(sign * mean)
        ways.append(([_times(point, level) for point in points], 1 / level))
        if len(points) > 1:
            places = [_place(math.log(point.workers), first, last) for point in points]
            pairs = zip(points, places, strict=True)
            tilted = [_times(p, math.exp(sign * p.error * place)) for p, place in pairs]
            ways.append((tilted, 1.0))
    return ways


def _place(at: float, first: float, last: float) -> float:
    """-1 at the first, 1 at the last."""
    return 2 * (at - first) / (last - first) - 1


def _times(point: Point, factor: float) -> Point:
    return Point(point.workers, point.rate_per_s * factor, point.error)


def _best_each(rates: list[Rate]) -> list[Rate]:
    best: dict[int, Rate] = {}
    for rate in rates:
        count, known = rate.summary.num_workers, best.get(rate.summary.num_workers)
        if known is None or rate.summary.batches_per_s > known.summary.batches_per_s:
            best[count] = rate
    return [best[count] for count in sorted(best)]


def _one_each(points: list[Point]) -> list[Point]:
    """The best known point of each number of workers."""
    best: dict[int, Point] = {}
    for point in points:
        if point.workers not in best or point.error < best[point.workers].error:
            best[point.workers] = point
    return [best[workers] for workers in sorted(best)]


@dataclass(frozen=True)
class _Here:
    """This machine, and how well rates are known on it."""

    work: Work
    cpus: float
    step_cpus: int
    usual_error: float

    def freed(self, rate: Rate) -> Point | None:
        """The rate as it were with CPUs without end, and a consumer that takes no time."""
        per_s, error = rate.summary.batches_per_s, self.error(rate)
        cpus = self._cpus_share(rate)
        eaten = cpus**KNEE + (per_s * (self.work.step_s + self.work.handling_s)) ** KNEE
        most = eaten * math.exp(KNEE * CLEARLY * error)
        if most < ALL_LIMIT and rate.waiting > FED:
            free_per_s = per_s * (1 - eaten) ** (-1 / KNEE)
            more = math.log((1 - eaten) / (1 - most)) / KNEE / CLEARLY
            return Point(rate.summary.num_workers, free_per_s, error + more)
        if cpus > BUSY:
            return self._by_cpu_time(rate)
        return self._by_busy(rate)

    def floor(self, rate: Rate) -> Point:
        """What the work allows at least, with so many workers."""
        error = max(INDIRECT, self.error(rate))
        return Point(rate.summary.num_workers, rate.summary.batches_per_s, error)

    def _cpus_share(self, rate: Rate) -> float:
        """CPUs that were used, as a share of all."""
        per_s = rate.summary.batches_per_s
        used = max(rate.cpus_used or 0.0, per_s * self.work.cpu_s)
        used += per_s * (self.work.handling_s + self.work.step_s * self.step_cpus)
        return used / self.cpus

    def _by_cpu_time(self, rate: Rate) -> Point | None:
        """CPUs were all busy: a batch that took more CPU time than alone took longer."""
        workers = rate.summary.num_workers
        if rate.cpus_used is None or workers > math.ceil(self.cpus):
            return None
        computed_s = rate.cpus_used / rate.summary.batches_per_s
        if computed_s < GROWN * self.work.cpu_s:
            return None
        made_s = self.work.service_s - self.work.cpu_s + computed_s
        return Point(workers, workers / made_s, max(INDIRECT, self.error(rate)))

    def _by_busy(self, rate: Rate) -> Point | None:
        """The consumer was fed: as many workers as were busy made what it took."""
        if rate.busy_workers is None or rate.busy_workers < 0.5:
            return None
        busy = max(1, round(rate.busy_workers))
        made_s = rate.busy_workers / rate.summary.batches_per_s
        return Point(busy, busy / made_s, max(INDIRECT, self.error(rate)))

    def error(self, rate: Rate) -> float:
        return max(self.usual_error / math.sqrt(rate.summary.repeats), error_of(rate))


def error_of(rate: Rate) -> float:
    """Standard error of a rate, as a share of it."""
    summary = rate.summary
    if summary.spread is None:
        return ONE_TRIAL
    return max(LEAST_ERROR, summary.spread / math.sqrt(summary.repeats))


def _usual_error(rates: Sequence[Rate]) -> float:
    """The usual spread: a few repeats often lie together by chance."""
    spreads = [rate.summary.spread for rate in rates if rate.summary.spread is not None]
    return statistics.median(spreads) if spreads else 0.0


def _main_s(main: Rate | None, work: Work, cpus: float, step_cpus: int) -> float:
    """From the rate without workers where that tells it, else as in a worker."""
    if main is None:
        return work.service_s
    whole_s = 1 / main.summary.batches_per_s
    made_s = whole_s - work.step_s * max(1.0, step_cpus / cpus)
    if made_s < 0.2 * whole_s:
        return work.service_s
    return made_s / max(1.0, work.cpu_s / work.service_s / cpus)


def _crowding(rates: list[Rate], points: list[Point], work: Work) -> float | None:
    """From the CPU time of a batch, where a batch took clearly longer with more workers."""
    used = {rate.summary.num_workers: rate for rate in rates if rate.cpus_used is not None}
    seen = [point for point in points if point.workers in used]
    if len(seen) < 2 or work.cpu_s <= 0:
        return None
    first, last = seen[0], seen[-1]
    longer = last.workers / last.rate_per_s / (first.workers / first.rate_per_s)
    if longer < GROWN:
        return None
    computed = [_cpu_s(used[point.workers]) for point in (first, last)]
    return min(1.0, max(0.0, (computed[1] / max(computed[0], 1e-9) - 1) / (longer - 1)))


def _cpu_s(rate: Rate) -> float:
    return (rate.cpus_used or 0.0) / rate.summary.batches_per_s
