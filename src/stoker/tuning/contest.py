"""Which numbers of workers are compared in rounds, and when that is enough. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping

from stoker.feed.window import Window
from stoker.tuning.decision import Bounds
from stoker.tuning.rivals import DOUBT, NOISE, Rounds, Standing
from stoker.tuning.stretch import unlike
from stoker.tuning.visits import Visit

RIVAL = 0.9
"""Measured rates from this share of the best on are compared in rounds."""
MAIN_RIVAL = 0.75
"""The same where one of them is the main process: it was measured first of all, in few batches."""
MOST_RIVALS = 3
"""Numbers that are compared at once, to begin with."""
MOST_COUNTS = 8
"""Numbers that are compared in all."""
BEFORE = 0.05
"""Share by which rates may be off that were not measured in one round."""
FEWEST_ROUNDS, MOST_ROUNDS = 2, 8
SAME = 0.02
"""Rates that differ by less are the same, and fewer workers win."""
LEEWAY = 0.03
"""What a number may seem to lack and be taken: between `SAME` and `NOTABLE` either will do."""
NOTABLE = 0.05
VAGUE = 0.05
"""Standard error of a rate from which on nothing is clear."""
CHANCE, BUSY = 0.2, 0.93
"""Where workers are busy for more than the second of the time, how much a consumer waits is
known to the first over the root of the batches."""
FED = 0.02
"""A consumer that waits for less could not gain more by more workers."""
SMALL = 8
"""Up to so many workers the next number is one more; beyond, an eighth."""


class Contest:
    """See the module.

    Attributes:
        unclear: Whether the rounds ended before it was clear which number to choose.
    """

    def __init__(self) -> None:
        self._rounds = Rounds()
        self._entered: list[int] = []
        self._out: set[int] = set()
        self._done = 0
        self.unclear = False

    @property
    def counts(self) -> list[int]:
        """The numbers that were measured in rounds."""
        return self._rounds.counts

    def add(self, count: int, round: int, window: Window, visits: Mapping[int, Visit]) -> None:
        """A window of a round."""
        self._rounds.add(count, round, window.rate_per_s, unlike(count, window.batches, visits))

    def drop(self, count: int) -> None:
        """A number does not work."""
        self._rounds.drop(count)
        self._out.add(count)

    def forget_workers(self) -> list[int]:
        """Rates of all numbers but 0 tell nothing any more; the numbers that had one in a round."""
        forgotten = [n for n in self._rounds.counts if n and n not in self._out]
        for n in self._entered:
            if n:
                self._rounds.drop(n)
        return forgotten

    def begin(
        self, visits: Mapping[int, Visit], bounds: Bounds, failed: Collection[int]
    ) -> list[int]:
        """The numbers of the first round: what was found, what came near it, and what is beside
        it and might be better, or do as well.
        """
        rates = {n: _usual_rate_per_s(visit) for n, visit in visits.items()}
        best = max(rates, key=lambda n: rates[n])
        found = min(n for n, rate in rates.items() if rate >= (1 - SAME) * rates[best])
        beside = [_fewer(found, visits, bounds, RIVAL), _more(found, visits, bounds)]
        near = [n for n in rates if n != found and _may_be_near(n, best, visits)]
        if _most_gain(visits[found], bounds) <= SAME:
            near = [n for n in near if n < found]
        near.sort(key=lambda n: (n > found, abs(n - found)))
        rivals = [found, *(n for n in beside if n is not None and n not in failed), *near]
        self._entered = list(dict.fromkeys(rivals))[:MOST_RIVALS]
        for n in self._entered:
            if n in visits:
                error = math.hypot(BEFORE, unlike(n, visits[n].batches, visits))
                self._rounds.add(n, -1, rates[n], error)
        return sorted(self._entered)

    def next(
        self, visits: Mapping[int, Visit], bounds: Bounds, failed: Collection[int]
    ) -> list[int]:
        """The numbers of the next round; none where it is clear, or would not become so."""
        self._done += 1
        inside = [n for n in self._entered if n in self._rounds.counts and n not in self._out]
        if not inside:
            return []
        best = self._rounds.best(inside)
        chosen = self._fewest(inside, visits, bounds)
        self._leave(inside, best, chosen, visits, bounds)
        inside = [n for n in inside if n not in self._out]
        joins = self._joins(inside, best, chosen, visits, bounds, failed)
        clear = self._is_clear(inside, best, visits, bounds)
        clear = clear and self._rounds.error(chosen) <= VAGUE
        if self._done >= MOST_ROUNDS:
            self.unclear = not clear
            return []
        if not joins and self._done >= FEWEST_ROUNDS and (clear or len(inside) < 2):
            self.unclear = not clear
            return []
        self._entered += joins
        return sorted({*inside, *joins})

    def fewest(self, visits: Mapping[int, Visit], bounds: Bounds) -> int | None:
        """The fewest workers that do as well as the best; None before a round."""
        counts = [n for n in self._rounds.counts if n in visits]
        return self._fewest(counts, visits, bounds) if len(counts) > 1 else None

    def _fewest(self, counts: list[int], visits: Mapping[int, Visit], bounds: Bounds) -> int:
        best = self._rounds.best(counts)
        fits = [n for n in counts if self._standing(n, best, visits, bounds).short <= LEEWAY]
        return min(fits)

    def _standing(
        self, count: int, best: int, visits: Mapping[int, Visit], bounds: Bounds
    ) -> Standing:
        """How a number stands to the best."""
        found = self._rounds.standing(count, best)
        return found if count > best else found.at_most(_most_gain(visits[count], bounds))

    def _is_clear(
        self, counts: list[int], best: int, visits: Mapping[int, Visit], bounds: Bounds
    ) -> bool:
        """Whether more rounds would hardly change what is chosen."""
        standings = [self._standing(n, best, visits, bounds) for n in counts]
        enough = all(self._rounds.times(n) >= FEWEST_ROUNDS for n in counts)
        return enough and all(each.most <= NOTABLE or each.least > SAME for each in standings)

    def _leave(
        self,
        counts: list[int],
        best: int,
        chosen: int,
        visits: Mapping[int, Visit],
        bounds: Bounds,
    ) -> None:
        """Numbers that are clearly worse than the best are not measured again, nor more than
        are needed.
        """
        for n in counts:
            found = self._standing(n, best, visits, bounds)
            needless = n > chosen and _most_gain(visits[chosen], bounds) <= SAME
            worse = n != best and found.least > SAME
            worse = worse and self._rounds.times(n) >= FEWEST_ROUNDS
            if n != chosen and (worse or needless):
                self._out.add(n)

    def _joins(
        self,
        counts: list[int],
        best: int,
        chosen: int,
        visits: Mapping[int, Visit],
        bounds: Bounds,
        failed: Collection[int],
    ) -> list[int]:
        """A number beside those compared that might be better, or do as well."""
        if len(self._entered) >= MOST_COUNTS or self._done >= MOST_ROUNDS - 1:
            return []
        found = []
        if chosen == min(counts):
            found.append(_fewer(chosen, visits, bounds, 1 - NOTABLE))
        found.append(_more(best, visits, bounds))
        known = {*failed, *self._entered}
        return [n for n in found if n is not None and n not in known]


def _usual_rate_per_s(visit: Visit) -> float:
    return statistics.median(window.rate_per_s for window in visit.windows)


def _may_be_near(count: int, best: int, visits: Mapping[int, Visit]) -> bool:
    """Whether a number may do nearly as well as the one that was the best before any round."""
    errors = []
    for n in (count, best):
        errors += [unlike(n, visits[n].batches, visits), NOISE / math.sqrt(visits[n].count)]
    share = _usual_rate_per_s(visits[count]) / _usual_rate_per_s(visits[best])
    rival = RIVAL if count and best else MAIN_RIVAL
    return share >= rival - DOUBT * math.hypot(*errors)


def _most_gain(visit: Visit, bounds: Bounds) -> float:
    """The most that more workers could give, as a share of what they give: the consumer waits no
    longer than that, and there are no more CPUs.
    """
    if not visit.workers:
        return visit.waiting
    free = max(0.0, 1 - visit.cpus_used / bounds.cpus)
    by_chance = CHANCE / math.sqrt(visit.batches) if visit.busy > BUSY * visit.workers else 0.0
    return min(visit.waiting + by_chance, free)


def _fewer(found: int, visits: Mapping[int, Visit], bounds: Bounds, bad: float) -> int | None:
    """A number below one that might give as much, above those that were seen not to.

    Args:
        found: The number.
        visits: What was measured.
        bounds: What may be used.
        bad: Share of its rate below which a number is not as good.
    """
    visit = visits[found]
    worse = [n for n, v in visits.items() if n < found and v.rate_per_s < bad * visit.rate_per_s]
    making_s = min(v.making_s for v in visits.values())
    enough = math.ceil((1 - NOTABLE) * visit.rate_per_s * making_s - 0.02)
    least = max(bounds.least, max(worse, default=-1) + 1)
    if found > 1 or bounds.least:
        least = max(least, enough, 1)
    most = min(found - 1, bounds.workers)
    if least > most:
        return None
    if visit.waiting <= FED:
        return max(least, min(most, math.ceil(visit.busy)))
    return max(least, min(most, round(math.sqrt(least * found))))


def _more(best: int, visits: Mapping[int, Visit], bounds: Bounds) -> int | None:
    """A number above the best that might be better, below those that were seen not to be."""
    visit = visits[best]
    above = [n for n in visits if n > best]
    more = best + 1 if best < SMALL else math.ceil(1.15 * best)
    if above:
        more = min(more, (best + min(above)) // 2)
    if not best < more <= bounds.workers or _most_gain(visit, bounds) <= SAME:
        return None
    below = [n for n in visits if n < best]
    if not below:
        return more
    low = max(below)
    steep = math.log(visit.rate_per_s / visits[low].rate_per_s) / math.log(best / max(0.5, low))
    return more if steep * math.log(more / max(0.5, best)) > SAME else None
