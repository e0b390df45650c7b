"""Where the search ends: the fewest workers with a rate within noise of the best. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stoker.tuning import explained
from stoker.tuning.seen import CPUS_USED, FED, PRECISE, Seen, Step

SAME = 1.025
"""Rates that differ by less are taken to be the same, and the fewer workers win."""
SAME_AS_MAIN = 1.03
"""The same beside the main process, which needs no processes at all."""
LUCKY = 0.25
"""Standard errors by which the best of several rates is taken to be too high."""
THREADS = 2.5
"""Times the rate of one worker that the main process may have."""
CHANGES = 6
"""Changes after which the best of what was measured is taken; one more goes there."""
CLOSE = 0.008
"""Standard error wanted where two rates are hard to tell apart."""
CLOSE_PATIENCE = 1.2
"""Times the patience after which that is given up."""
LEAST, LOST, DOUBT = 1.005, 1.045, 2.0
"""Where rates are not known well, less is taken to be the same, down to the first: so that no
more than the second is lost, even if a difference is off by so many standard errors."""
MOST = 1.8
"""Times the patience beyond which a number isn't measured for longer."""
LEVEL = 1.5
"""Times by which counts must differ for equal rates to show that more workers give no more."""
WIDE, NEARER = 1.25, 0.75
"""Times by which counts must differ for a gap, and where in the gap below the best to look."""
EARLY_S, COLD = 0.4, 1.5
"""The main process is measured first of all, when memory is new and caches are cold: if that was
all in so short a time, it may be so many times as fast by now."""
HIGHER = 1.06
"""What a number between two measured ones must promise at most to be tried."""


def settle(seen: Seen) -> Step | None:
    """Ends with the best of what was measured, goes to measure a number, or None: not yet sure."""
    unsure = seen.visit.count < CLOSE_PATIENCE * seen.patience
    if unsure and _close(seen) and seen.error(seen.visit) > CLOSE:
        return None
    if seen.changes < CHANGES:
        if _main_could_be_best(seen):
            return Step(0, explained.trying(seen, 0), explained.figures(seen.visit))
        between = _between(seen) or _beyond(seen)
        if between is not None:
            return Step(between, explained.trying(seen, between), explained.figures(seen.visit))
        doubtful = _doubtful(seen)
        if doubtful == seen.here:
            return None
        if doubtful is not None:
            return Step(doubtful, explained.again(seen, doubtful), explained.figures(seen.visit))
    count = fewest_good(seen)
    reason = explained.settled(seen, count)
    sure = seen.changes > CHANGES or seen.precise(seen.visits[count])
    return Step(count, reason, explained.figures(seen.visits[count]), final=sure)


def fewest_good(seen: Seen) -> int:
    """The fewest of the measured numbers whose rate is within noise of the best."""
    rates = seen.rates_per_s
    found = {n: _at_least(seen, n, rate) for n, rate in rates.items()}
    best = max(found, key=lambda n: found[n])
    lucky = 1 - LUCKY * seen.error(seen.visits[best])
    return min(n for n in found if found[n] * (1 + _same(seen, n, best)) >= found[best] * lucky)


def _same(seen: Seen, count: int, best: int) -> float:
    """The difference from the best that is taken for none: less where less is known."""
    doubt = DOUBT * math.hypot(seen.error(seen.visits[count]), seen.error(seen.visits[best]))
    most = SAME if count else SAME_AS_MAIN
    return min(most, max(LEAST, LOST - doubt)) - 1


def _main_could_be_best(seen: Seen) -> bool:
    """Whether the main process is not known, and may give as much with more threads of its own."""
    unknown = seen.bounds.least == 0 and 0 not in seen.visits
    return unknown and max(seen.rates_per_s.values()) < THREADS * seen.main_per_s


def main_was_cold(seen: Seen) -> bool:
    """Whether the main process was measured in the first moments only, and may be best by now."""
    main = seen.visits.get(0)
    if main is None or seen.here == 0 or seen.bounds.least > 0 or main.seconds >= EARLY_S:
        return False
    return COLD * main.rate_per_s >= seen.visit.rate_per_s


def _at_least(seen: Seen, count: int, rate_per_s: float) -> float:
    """A rate less what is not known of it, beyond what numbers known well have."""
    doubt = seen.error(seen.visits[count]) - PRECISE
    return rate_per_s * (1 - min(max(0.0, doubt), 0.9))


def _close(seen: Seen) -> bool:
    """Whether the rate here is near the line between good enough and not."""
    found = dict(seen.rates_per_s)
    here = found.pop(seen.here, seen.visit.rate_per_s)
    apart = (abs(math.log(here / rate)) for rate in found.values())
    return any(abs(each - math.log(SAME)) < 2 * CLOSE for each in apart)


def _between(seen: Seen) -> int | None:
    """A number in a gap beside the best whose rate could be clearly higher."""
    found = {0: 0.0} | {max(1, count): rate for count, rate in seen.rates_per_s.items()}
    counts = sorted(found)
    best = max(counts, key=lambda count: found[count])
    at = counts.index(best)
    gaps = (_in_gap(seen, found, low, best) for low in (at, at - 1))
    return (at == 1 and _fewer_unhindered(seen, best)) or next(filter(None, gaps), None)


def _fewer_unhindered(seen: Seen, best: int) -> int | None:
    """A number below the only one known: its workers may be in each other's way, where each
    makes batches so fast that fewer would do, and still the consumer waits.
    """
    fewer = min(best - 1, max(1, round(NEARER * best)))
    if fewer < max(1, seen.bounds.least) or best not in seen.visits:
        return None
    visit = seen.visits[best]
    made_per_s = fewer / max(1e-9, visit.making_s)
    fed_per_s = 1 / max(1e-9, visit.away_each_s + visit.handling_each_s)
    return fewer if min(made_per_s, fed_per_s) > HIGHER * visit.rate_per_s else None


def _in_gap(seen: Seen, found: Mapping[int, float], at: int, best: int) -> int | None:
    """A number in the gap above the measured one at this place, if it may be clearly better.

    Rates bend down only: in a gap no rate lies above the lines through what is beside it. And
    batches take no less of the CPUs there than below the gap.
    """
    counts = sorted(found)
    if not 0 < at < len(counts) - 1:
        return None
    below, low, high, *above = counts[at - 1 : at + 3]
    count = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
    if low < best:
        count = max(count, round(NEARER * best))
    if not WIDE * low < high > count > low:
        return None
    most = [_line(found, below, low, count)]
    most += [_line(found, high, other, count) for other in above]
    if low in seen.visits:
        most.append(found[low] / min(1.0, max(seen.cpus_used(seen.visits[low]), 1e-3)))
    return count if min(most) > HIGHER * found[best] else None


def _line(found: Mapping[int, float], one: int, other: int, count: int) -> float:
    """What the line through two measured rates says of another number."""
    return found[one] + (found[other] - found[one]) / (other - one) * (count - one)


def _beyond(seen: Seen) -> int | None:
    """A number far above the best, where the rates so far lie too close to show a ceiling."""
    good, most = fewest_good(seen), max(seen.rates_per_s)
    if good == 0 or most >= LEVEL * good or seen.reach < LEVEL * most:
        return None
    visit = seen.visits[good]
    if visit.waiting <= FED or seen.cpus_used(visit) > CPUS_USED:
        return None
    return min(seen.reach, 2 * most)


def _doubtful(seen: Seen) -> int | None:
    """A number to measure for longer: what is chosen is not told from what may be better by too
    much, or from fewer that may do as well.
    """
    chosen = fewest_good(seen)
    rates, error = seen.rates_per_s, {n: seen.error(visit) for n, visit in seen.visits.items()}
    best = max(rates.values())
    doubtful: set[int] = set()
    for count, rate in rates.items():
        doubt = DOUBT * math.hypot(error[count], error[chosen])
        lost = math.log(rate / rates[chosen]) + doubt
        if count > chosen:
            lost = min(lost, -math.log(max(0.01, seen.cpus_used(seen.visits[chosen]))))
        if count != chosen and lost > LOST - 1:
            doubtful |= {count, chosen}
        fewer = chosen - count > max(1, 0.1 * chosen) or count == 0 < chosen
        if fewer and rate * (1 + DOUBT * error[count]) * SAME >= best:
            doubtful.add(count)
    left = [n for n in doubtful if error[n] > CLOSE and seen.visits[n].count < MOST * seen.patience]
    return max(left, key=lambda n: error[n], default=None)
