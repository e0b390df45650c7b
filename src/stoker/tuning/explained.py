"""The reasons and the evidence that decisions carry, for people. Pure.

They claim no more than was measured: a cause is named only where the figures leave no other.
"""

from __future__ import annotations

from stoker.tuning.model import HANDLING_S, keeping_fed
from stoker.tuning.seen import Seen
from stoker.tuning.visits import Visit
from stoker.tuning.wording import duration, number, percent, workers

NO_STEP_S = 1e-4
"""A step of the consumer that is not worth a word."""
LITTLE = 0.005
"""A gain that rounds to nothing."""
LEVEL = 1.05
"""Rates that differ by less are told as the same."""
IDLE, IN_USE = 0.8, 0.94
"""Share of the CPUs in use below which they are no limit, and from which on they are."""


def figures(visit: Visit) -> tuple[tuple[str, float], ...]:
    return (
        ("rate_per_s", visit.rate_per_s),
        ("service_s", visit.service_s),
        ("away_s", visit.away_each_s),
        ("waiting_share", visit.waiting),
        ("busy_workers", visit.busy),
        ("cpus_used", visit.cpus_used),
    )


def start(seen: Seen, count: int, wished: int) -> str:
    """Why the first workers are started; `wished` is what the closed form asks for."""
    visit, bounds = seen.visit, seen.bounds
    told = f"{_pace(visit)}: {workers(count)} "
    if count < wished:
        return told + "to begin with, since starting more would not pay yet"
    if count >= keeping_fed(visit.service_s, visit.away_each_s + HANDLING_S):
        return told + ("keeps it fed" if count == 1 else "keep it fed")
    if count == bounds.workers:
        return told + f"is the most that {bounds.workers_source} allows"
    return told + f"for {number(bounds.cpus)} CPUs ({bounds.cpus_source})"


def in_main(seen: Seen, gain: float) -> str:
    """Why no worker is started; `gain` is the predicted rate with workers over that without."""
    visit = seen.visit
    if visit.service_s <= HANDLING_S:
        made = duration(visit.service_s)
        return f"0 workers: a batch is ready in {made}, a worker could not bring it sooner"
    if gain < 1 + LITTLE:
        return f"0 workers: {_pace(visit)}, and workers could not raise the rate"
    return f"0 workers: {_pace(visit)}, and workers would raise the rate by {percent(gain - 1)}"


def _pace(visit: Visit) -> str:
    made = f"a batch takes {duration(visit.service_s)} to make and "
    if visit.away_each_s < NO_STEP_S:
        return f"{made}is used at once"
    return f"{made}the step {duration(visit.away_each_s)}"


def back_to_main(seen: Seen, main_per_s: float) -> str:
    """Why the workers are let go."""
    verb = "gave" if 0 in seen.visits else "should give"
    return (
        f"{workers(seen.here)} gave {number(seen.visit.rate_per_s)} batches/s and the main "
        f"process alone {verb} {number(main_per_s)}"
    )


def fed(visit: Visit) -> str:
    """Why a number that feeds the consumer stays."""
    return (
        f"{workers(visit.workers)}: the consumer waits {percent(visit.waiting)} of the time, and "
        f"{number(visit.busy)} of {visit.workers} are busy on average"
    )


def fewer(visit: Visit, count: int) -> str:
    """Why a number that feeds the consumer is lowered."""
    return (
        f"the consumer waits {percent(visit.waiting)} of the time and {number(visit.busy)} of "
        f"{workers(visit.workers)} are busy on average: {count} should do"
    )


def cpus_only(seen: Seen, count: int) -> str:
    """Why a number is lowered to what the CPUs can serve."""
    return (
        f"making batches computes for {percent(seen.visit.cpu)} of its time, and "
        f"{number(seen.bounds.cpus)} CPUs ({seen.bounds.cpus_source}) keep no more than "
        f"{workers(count)} busy"
    )


def another(seen: Seen, count: int, rate_per_s: float) -> str:
    """Why an unmeasured number is tried; `rate_per_s` is what it promises."""
    visit = seen.visit
    return (
        f"the consumer waits {percent(visit.waiting)} of the time with {workers(seen.here)} at "
        f"{number(visit.rate_per_s)} batches/s: {count} should give {number(rate_per_s)}"
    )


def trying(seen: Seen, count: int) -> str:
    """Why a number in a gap between the measured ones, or far above them, is tried."""
    return f"{_measured(seen)}: trying {count}"


def again(seen: Seen, count: int) -> str:
    """Why a number is measured once more."""
    return f"{_measured(seen)}: measuring {count} for longer"


def settled(seen: Seen, count: int) -> str:
    """Why the search ends with this number."""
    visit = seen.visits[count]
    told = f"{workers(count)}: {number(visit.rate_per_s)} batches/s"
    level = [
        other
        for n, other in seen.visits.items()
        if n > count and visit.rate_per_s / LEVEL < other.rate_per_s < visit.rate_per_s * LEVEL
    ]
    if level and count:
        most = max(level, key=lambda other: other.workers)
        return f"{told}, and {number(most.rate_per_s)} with {most.workers}; {_limit(seen, most)}"
    others = [n for n in sorted(seen.visits) if n != count]
    told += "".join(f", {number(seen.visits[n].rate_per_s)} with {n}" for n in others)
    return f"{told}; {_limit(seen, visit)}" if count else told


def _limit(seen: Seen, visit: Visit) -> str:
    """What keeps more workers from giving more, as far as the figures tell."""
    bounds = seen.bounds
    waits = f"the consumer waits {percent(visit.waiting)} of the time"
    used = visit.cpus_used / max(bounds.cpus, 0.01)
    if used >= IN_USE:
        return f"{waits}, and {number(visit.cpus_used)} of {number(bounds.cpus)} CPUs are in use"
    if visit.workers == bounds.workers:
        return f"{waits}, and {bounds.workers_source} allows no more"
    fewer = [n for n in seen.visits if 0 < n < visit.workers]
    alike = [n for n in fewer if seen.visits[n].rate_per_s * LEVEL > visit.rate_per_s]
    cpus_free = used < IDLE and visit.tells_starving and visit.starved < 1 - IN_USE
    if alike and cpus_free:
        return (
            f"{waits} and only {number(visit.cpus_used)} of {number(bounds.cpus)} CPUs are in "
            f"use, so something the workers share (disk, memory or network) is the limit"
        )
    return waits


def _measured(seen: Seen) -> str:
    rates = (f"{number(seen.visits[n].rate_per_s)} with {n}" for n in sorted(seen.visits))
    return f"batches/s so far: {', '.join(rates)}"
