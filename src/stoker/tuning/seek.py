"""Where to go next while the number of workers is being found. Pure.

The closed form gives the first number; then curves through the measured rates do, until the
number they name has been measured or would gain too little to try.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from stoker.tuning import explained
from stoker.tuning.model import COMPUTES, HANDLING_S, MOSTLY, Curve, keeping_busy, keeping_fed
from stoker.tuning.seen import CPUS_USED, FED, Seen, Step, noise
from stoker.tuning.settling import (
    CHANGES,
    EARLY_S,
    LEVEL,
    SAME_AS_MAIN,
    fewest_good,
    main_was_cold,
    settle,
)
from stoker.tuning.visits import Visit

WORTH_STARTING = 1.045
"""Workers are started where they are predicted to raise the rate by nearly 5 %."""
SURE = 1.3
"""A predicted gain that two short windows cannot have made up."""
BETTER = 1.015
"""A predicted gain worth another change while the search goes on."""
FEWER_WINDOWS, FEWER_S = 4, 2.0
"""Evidence before a number that feeds the consumer is lowered."""
FEWER = 0.92
"""A number is lowered by a twelfth at least: less is not worth a change."""
AGAIN = 0.6
"""The same where fewer workers were tried before and did not do."""
MARGIN = 1.05
"""Workers kept for each that is busy on average: batches differ."""
BESIDE = 0.25
"""What starting a worker costs while others go on making batches, of what it costs else."""
UNSURE = 12
"""Windows taken while it is not sure whether the consumer waits for more than `FED`."""
VAGUE = 0.03
"""Standard error of a rate from which on a consumer may seem to be fed by chance."""
ALL = 0.95
"""Share of what CPUs serve from which on all of that is asked for."""
FOOLED = 1.5
"""Times the closed form by what workers need themselves, beyond which it is begun anew."""
MANY, VERY = 200, 48
"""With fewer batches than that, being unsure takes so many windows."""
LONG_ENOUGH_S = 1.0
"""Seconds after which the main process is known well enough to choose between it and workers."""
AGREE, AGREED_BY = 1.6, 4
"""Times by which the first windows may differ, and how many of them it matters for."""
FIRST_WINDOW = (4, 0.04)
"""Batches and seconds of the first windows in the main process."""
LONG_BATCH_S = 0.25
"""A batch that takes longer is a window by itself in the main process."""
CALM = 0.05
"""Noise of a window's rate above which windows become longer."""
LONGEST_S = 4.0
"""Seconds beyond which windows are not made longer because of noise."""


def next_window(visits: Mapping[int, Visit], here: int) -> tuple[int, float]:
    """Batches and seconds that the next window should have at least."""
    visit = visits.get(here)
    count = len(visit.windows) if visit else 0
    if here == 0:
        long = visit is not None and visit.count > 0 and visit.service_s > LONG_BATCH_S
        batches = 1 if long else FIRST_WINDOW[0]
        return (batches, FIRST_WINDOW[1]) if count < 4 else (2 * batches, 0.25)
    longer = min(4.0, max(1.0, noise(visits.values()) / CALM))
    rate_per_s = visit.rate_per_s if visit and visit.count else 0.0
    least = max(8, here)
    return max(least, int(min(longer * least, LONGEST_S * rate_per_s))), 0.25 * longer


def seek(seen: Seen) -> Step | None:
    """The next step, or None to keep measuring."""
    if seen.here == 0:
        return _from_main(seen)
    if seen.visit.count < 2:
        return None
    return _fed(seen) if seen.visit.waiting <= FED else _unfed(seen)


def _from_main(seen: Seen) -> Step | None:
    if any(count > 0 for count in seen.visits):
        visit = seen.visit
        long = visit.seconds >= LONG_ENOUGH_S and visit.batches >= VERY
        known = visit.seconds >= EARLY_S and (seen.precise(visit) or long)
        return settle(seen) if known else None
    if seen.bounds.workers == 0:
        return _stay(seen, f"0 workers: {seen.bounds.workers_source} allows none")
    target = first_number(seen)
    gain = gain_with(seen, target)
    if gain < WORTH_STARTING:
        likely = gain * (1 + 2 * seen.visit.service_error * seen.visit.waiting)
        enough = 2 if likely < WORTH_STARTING else UNSURE if seen.visit.batches > MANY else VERY
        known = seen.visit.count >= min(enough, seen.patience)
        return _stay(seen, explained.in_main(seen, gain)) if known else None
    if seen.visit.count < (2 if gain >= SURE and _agree(seen.visit) else 4):
        return None
    for count in (target, target // 4):
        if count >= 1 and gain_with(seen, count) >= WORTH_STARTING and pays(seen, count):
            return Step(count, explained.start(seen, count, target), explained.figures(seen.visit))
    return None


def _agree(visit: Visit) -> bool:
    """Whether the first windows show about the same time of a batch."""
    times = [window.service_s for window in visit.windows]
    return visit.count > AGREED_BY or max(times) < AGREE * min(times)


def first_number(seen: Seen) -> int:
    """The closed form: enough to feed the consumer, within CPUs and bounds."""
    visit = seen.visit
    fed = keeping_fed(visit.making_s, visit.away_each_s + HANDLING_S)
    served = keeping_busy(seen.bounds.cpus, seen.cpu, MOSTLY)
    return max(1, seen.bounds.least, min(fed, served, seen.bounds.workers))


def gain_with(seen: Seen, count: int) -> float:
    """Predicted rate with workers over the rate in the main process."""
    visit = seen.visit
    computing_s = visit.service_s * visit.cpu + HANDLING_S
    limits = (
        count / visit.service_s,
        max(seen.bounds.cpus, 0.01) / computing_s,
        1 / (visit.away_each_s + HANDLING_S),
    )
    return min(limits) / visit.rate_per_s


def pays(seen: Seen, count: int, gain: float | None = None) -> bool:
    """Whether what is gained pays for starting workers: as in renting skis, the future is
    taken to last as long as the past where its length is not known.
    """
    gain = gain_with(seen, count) if gain is None else gain
    left_s = (seen.bounds.batches_left or 0) / seen.visit.rate_per_s
    saved_s = max(left_s, seen.spent_s) * (1 - 1 / gain)
    share = BESIDE if seen.here else 1.0
    return saved_s > share * seen.bounds.start_s * (count - seen.here)


def _fed(seen: Seen) -> Step | None:
    """The consumer hardly waits: would fewer do, or none?"""
    visit = seen.visit
    vague = visit.waiting_at_most > FED or seen.error(visit) > VAGUE
    if visit.count < min(UNSURE, seen.patience) and vague:
        return None
    if visit.waiting > FED / 2 and visit.count < FEWER_WINDOWS:
        return None
    if seen.bounds.least == 0 and visit.rate_per_s < SAME_AS_MAIN * seen.main_per_s:
        if not seen.precise(visit):
            return None
        reason = explained.back_to_main(seen, seen.main_per_s)
        return settle(seen) if 0 in seen.visits else Step(0, reason, explained.figures(visit))
    if any(rate > visit.rate_per_s for n, rate in seen.rates_per_s.items() if n < seen.here):
        return settle(seen) if seen.precise(visit) else None
    fewer = max(fewer_would_do(visit), _most_unfed(seen) + 1, seen.bounds.least, seen.floor)
    least = AGAIN if seen.floor else FEWER
    if fewer <= least * seen.here and fewer < seen.here and seen.changes < CHANGES:
        if visit.count < FEWER_WINDOWS or visit.seconds < FEWER_S:
            return None
        return Step(fewer, explained.fewer(visit, fewer), explained.figures(visit))
    if int(visit.busy * MARGIN + 1) <= FEWER * seen.here and visit.count < min(
        UNSURE, seen.patience
    ):
        return None
    return _stay(seen, explained.fed(visit))


def fewer_would_do(visit: Visit) -> int:
    """The fewest workers that would make as many batches, with a margin."""
    return int(min(visit.busy_at_most, visit.workers) * MARGIN + 1)


def _most_unfed(seen: Seen) -> int:
    unfed = [n for n, visit in seen.visits.items() if visit.waiting > FED and visit.count >= 2]
    return max((n for n in unfed if n < seen.here), default=0)


def _unfed(seen: Seen) -> Step | None:
    """The consumer waits: which number would feed it, or come closest?"""
    if main_was_cold(seen) and seen.changes < CHANGES:
        if seen.visit.count < FEWER_WINDOWS:
            return None
        return Step(0, explained.again(seen, 0), explained.figures(seen.visit))
    limit, honest = seen.limit, first_number(seen)
    if len(seen.visits) == 1 and seen.here > FOOLED * honest:
        return Step(honest, explained.trying(seen, honest), explained.figures(seen.visit))
    if limit < FEWER * seen.here and limit not in seen.visits:
        reason = explained.cpus_only(seen, limit)
        return Step(limit, reason, explained.figures(seen.visit))
    if seen.changes < CHANGES:
        fed_per_s = seen.visit.rate_per_s / max(0.01, 1 - seen.visit.waiting)
        for curve in seen.curves:
            count = max(_named_by(curve, seen, fed_per_s), seen.bounds.least)
            rate_per_s = min(curve.rate_per_s(count), fed_per_s, _cpus_allow_per_s(seen, count))
            if _worth_trying(seen, count, rate_per_s):
                return _try(seen, count, rate_per_s)
        if (
            len(seen.visits) == 1
            and seen.here >= max(4, 2 * seen.bounds.least)
            and seen.cpus_used(seen.visit) < CPUS_USED
        ):
            half = max((seen.here + 1) // 2, seen.bounds.least)
            return _try(seen, half, seen.visit.rate_per_s)
    return settle(seen) if seen.precise(seen.visit) else None


def _named_by(curve: Curve, seen: Seen, fed_per_s: float) -> int:
    """The number that a curve takes for the best."""
    count = curve.fewest(seen.limit, fed_per_s)
    if seen.cpu >= COMPUTES and ALL * seen.limit <= count:
        count = seen.limit
    if count < seen.here or seen.reach <= seen.limit:
        return count
    return curve.fewest(seen.reach, min(fed_per_s, _cpus_allow_per_s(seen, seen.here)))


def _worth_trying(seen: Seen, count: int, rate_per_s: float) -> bool:
    """Whether an unmeasured number promises more, or the same with clearly fewer."""
    if count in seen.visits:
        return False
    if rate_per_s > BETTER * max(seen.rates_per_s.values()):
        return True
    if any(abs(count - other) <= 0.1 * count for other in seen.visits):
        return False
    good = fewest_good(seen)
    if max(seen.visits) < min(seen.reach, LEVEL * good):
        return False
    if seen.cpu >= COMPUTES and seen.cpus_used(seen.visits[good]) > CPUS_USED:
        return False
    saved = good - count
    return saved > 0.1 * count and (saved > 1 or count <= 3)


def _cpus_allow_per_s(seen: Seen, count: int) -> float:
    """The rate at which making and handling batches as here would keep all CPUs busy.

    No bound on fewer workers: they may need less CPU time for a batch, since they get less in
    each other's way.
    """
    if count < seen.here:
        return math.inf
    return seen.visit.rate_per_s / min(1.0, max(seen.cpus_used(seen.visit), 1e-3))


def _try(seen: Seen, count: int, rate_per_s: float) -> Step | None:
    """A step to a number; up at once where it is clear, else when the rate here is known."""
    visit = seen.visit
    gain = rate_per_s / visit.rate_per_s
    clear = count >= 1.2 * seen.here and gain > 1.1 and max(seen.visits) == seen.here
    if not (clear or seen.precise(visit)):
        return None
    if count > max(seen.visits) and not pays(seen, count, max(1.0, gain)):
        return None
    return Step(count, explained.another(seen, count, rate_per_s), explained.figures(visit))


def _stay(seen: Seen, reason: str) -> Step:
    return Step(seen.here, reason, explained.figures(seen.visit), final=True)
