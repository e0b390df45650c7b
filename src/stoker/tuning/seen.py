"""What is known when the next number is chosen, and the step that follows from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from stoker.tuning.decision import Bounds
from stoker.tuning.model import Curve, Point, curves, keeping_busy
from stoker.tuning.visits import Visit

FED = 0.03
"""A consumer that waits for less than 3 % of the time could not gain more than that."""
SMOOTH = 4
"""Points from which on a curve through them knows more than each by itself."""
FIRST_ERROR = 0.1
"""Doubt about what one worker makes, taken from the main process: it has other caches and
threads than a worker."""
STARVED = 0.1
"""Share of the making that waited for a CPU from which on there are no CPUs to spare."""
FURTHEST = 3.0
"""Times by which a number may be raised beyond the closed form at once."""
CPUS_USED = 0.94
"""Share of the CPUs in use from which on more workers would only take turns."""
UNSERVED = 0.03
"""What workers without a CPU must gain before they are preferred."""
EVENED = 0.6
"""Of the spread of batches that much shows in the rate of workers, which work ahead."""
PRECISE = 0.0125
"""Standard error of a rate, as a share, from which on rates are compared."""
CLEARLY = 0.1
"""A rate that is worse by that and three standard errors needs not be known better."""
PATIENCE = 40
"""The usual `Seen.patience`."""

FIRST_NOISE = 0.04
FIRST_WEIGHT = 4
"""Before anything is known, rates of windows are taken to differ by 4 %, with the weight of
four windows: two windows that agree by chance prove nothing."""
OWN = 0.8
"""Weight of the noise that a visit's own few windows show, against that of all windows."""
INFLATED = 2.0
"""Times the workers' time of a batch that the main process's cannot be: it has the CPUs alone."""


@dataclass(frozen=True)
class Seen:
    """What is known when the next step is chosen.

    Attributes:
        visits: What was measured, by number of workers.
        here: The number now.
        bounds: What may be used.
        spent_s: Seconds that this work has gone on, the best guess of how long it still will.
        changes: Changes since the search began.
        floor: Fewer workers than that left the consumer waiting, after they had seemed to do;
            0 where nothing did.
        patience: Windows after which a rate is taken as it is: more would not make it more certain.
    """

    visits: Mapping[int, Visit]
    here: int
    bounds: Bounds
    spent_s: float
    changes: int
    floor: int = 0
    patience: int = PATIENCE

    @property
    def visit(self) -> Visit:
        """What was measured with the number of now."""
        return self.visits[self.here]

    @property
    def cpu(self) -> float:
        """Share of making a batch that computes: the highest seen, since starving hides it."""
        return max(visit.cpu for visit in self.visits.values())

    @property
    def main_per_s(self) -> float:
        """Batches a second in the main process: measured, or what service and step add up to."""
        if 0 in self.visits:
            return self.visits[0].rate_per_s
        return 1 / (self.visit.making_s + self.visit.away_each_s)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of one window's rate, as a share of it."""
        return noise(self.visits.values())

    @cached_property
    def points(self) -> list[Point]:
        """Rates of numbers that left the consumer waiting: those show what workers can make."""
        points = [
            Point(count, visit.rate_per_s, max(0.01, self.error(visit)))
            for count, visit in sorted(self.visits.items())
            if count > 0 and (visit.waiting > FED or count == self.here)
        ]
        if 0 in self.visits and 1 not in self.visits:
            main = self.visits[0]
            error = max(FIRST_ERROR, main.service_error)
            points.insert(0, Point(1, 1 / main.service_s, error))
        return points

    @cached_property
    def curves(self) -> list[Curve]:
        """The plausible explanations of the points, the best first."""
        return curves(self.points)

    @cached_property
    def rates_per_s(self) -> dict[int, float]:
        """Batches a second of the measured numbers that are allowed.

        Where there are enough points, half of each is what the best curve says: it knows the
        noise of all of them.
        """
        allowed = range(self.bounds.least, self.bounds.workers + 1)
        there = [n for n in self.visits if n in allowed] or [self.here]
        rates = {n: self.visits[n].rate_per_s for n in there}
        for point in self.points if len(self.points) >= SMOOTH and self.curves else []:
            if point.workers in rates:
                fitted_per_s = self.curves[0].rate_per_s(point.workers)
                rates[point.workers] = math.sqrt(rates[point.workers] * fitted_per_s)
        return {n: rate * (1 if self.served(n) else 1 - UNSERVED) for n, rate in rates.items()}

    def cpus_used(self, visit: Visit) -> float:
        """Share of the allowed CPUs that making and handling batches used."""
        return visit.cpus_used / max(self.bounds.cpus, 0.01)

    @cached_property
    def limit(self) -> int:
        """The most workers worth a try: CPUs, bounds, and fewer than were seen to feed it."""
        cpus = max(keeping_busy(self.bounds.cpus, self.cpu), self._cpus_could_serve())
        fed = [n for n, visit in self.visits.items() if n > self.here and visit.waiting <= FED]
        return max(1, self.bounds.least, min([cpus, self.bounds.workers, *fed]))

    @cached_property
    def reach(self) -> int:
        """The most workers that curves are asked about: where workers get in each other's way,
        CPUs serve more of them than one alone would make believe.
        """
        most = max(self.visits)
        measured = sum(count > 0 for count in self.visits)
        visit = self.visits[most]
        if measured < 2 or self.cpus_used(visit) > CPUS_USED or visit.starved > STARVED:
            return self.limit
        fed = [n for n, visit in self.visits.items() if n > self.here and visit.waiting <= FED]
        return max(self.limit, min([math.ceil(FURTHEST * most), self.bounds.workers, *fed]))

    def _cpus_could_serve(self) -> int:
        """The workers that CPUs could serve, by what the most workers so far really used."""
        visit = self.visits[max(self.visits)]
        used = self.cpus_used(visit)
        if used > CPUS_USED or visit.starved > STARVED:
            return keeping_busy(self.bounds.cpus, visit.cpu)
        return math.ceil(visit.workers * min(FURTHEST, 1 / max(used, 1e-3)))

    def served(self, count: int) -> bool:
        """Whether there are CPUs for so many, as far as was seen: taking turns is no gain."""
        visit = self.visits[count]
        starved = visit.starved > STARVED and visit.waiting > FED
        return count <= 1 or not starved or count <= keeping_busy(self.bounds.cpus, visit.cpu)

    def error(self, visit: Visit) -> float:
        """Standard error of a visit's rate, as a share of it."""
        windows = _error(visit, self.noise)
        if not visit.workers:
            return max(windows, visit.service_error * visit.waiting)
        return max(windows, EVENED * self.spread / math.sqrt(max(1.0, visit.batches)))

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the time of one batch, as a share: as the main process saw it."""
        return self.visits[0].batch_spread if 0 in self.visits else 0.0

    def precise(self, visit: Visit) -> bool:
        """Whether the rate is known well enough to be compared."""
        error = self.error(visit)
        if visit.count < 2 or error <= PRECISE or visit.count >= self.patience:
            return visit.count >= 2
        if visit.count < min(4, self.patience):
            return False
        best = max(other.rate_per_s * (1 - self.error(other)) for other in self.visits.values())
        return best > (1 + CLEARLY + 3 * error) * visit.rate_per_s


@dataclass(frozen=True)
class Step:
    """The next number; `final` where the search ends with it."""

    workers: int
    reason: str
    evidence: tuple[tuple[str, float], ...]
    final: bool = False


def noise(visits: Iterable[Visit]) -> float:
    """Standard deviation of one window's rate around its mean, as a share, over all visits.

    Without the main process's short windows: a few batches differ by more.
    """
    deviations = [each for visit in visits if visit.workers for each in visit.deviations()]
    squares = FIRST_WEIGHT * FIRST_NOISE**2 + math.fsum(each * each for each in deviations)
    return math.sqrt(squares / (FIRST_WEIGHT + len(deviations)))


def _error(visit: Visit, noise: float) -> float:
    """Standard error of a visit's rate, as a share of it.

    `noise` is that of one window with any number; a visit's own windows may differ by more.
    """
    if not visit.count:
        return math.inf
    own = [each * each for each in visit.deviations()]
    own_noise = math.sqrt(math.fsum(own) / len(own)) if own else 0.0
    return max(noise, OWN * own_noise) / math.sqrt(visit.count)


def inflated(visits: Mapping[int, Visit], visit: Visit, cpus: float) -> bool:
    """Whether what workers need for a batch shows that the main process was seen at a bad time."""
    if 0 not in visits or not visit.workers or visit.count < 2:
        return False
    return visits[0].service_s > INFLATED * visit.making_s / min(1.0, cpus)
