"""Whether making a batch waits rather than computes, so that noise can't hide it. Pure.

One number of workers, seen for a second on a machine that does something else as well, may look
as if CPUs were short, or as if batches took long to be brought over. How much of making a batch
computes is the same for every number that had CPUs, so all of these are asked together.
"""

from __future__ import annotations

import statistics

from stoker.tuning.answer import Limit
from stoker.tuning.situation import Measured, Point, share
from stoker.tuning.wording import count_of, duration, number, percent, workers

WAITS, MOSTLY, COMPUTES = 0.2, 0.3, 0.45
"""Share of making a batch that computes: up to the first it waits, whatever else is seen; up to
the second it waits where nothing speaks for the CPUs; from the third on it computes. What lies
between keeps noise from turning the one into the other."""
BUSY, IDLE_WORKERS = 0.6, 0.4
"""Share of the workers that make a batch, from which on they are what is waited for, and below
which they are not."""
FREE_CPUS = 0.8
"""Share of the CPUs in use below which a worker has one when it wants one."""
CPUS_IN_USE, NO_CPU, CROWDED = 0.8, 0.1, 0.3
"""What speaks for the CPUs: so many are in use, or batches stood ready without one so long; from
the third on, with all CPUs in use, there are more workers than even waiting samples can use."""
FULL = 0.94
"""Share of the CPUs in use from which on there is none for more."""
LEVEL = 1.05
"""Rates that differ by less are told as the same."""


def computing_share(seen: Measured) -> float | None:
    """Share of making a batch that computes, 0 to 1; None where that can't be told.

    Workers that wait for a CPU look as if they waited for something else, so numbers that use
    most of the CPUs are left out.
    """
    free = [point for point in seen.points if (point.cpus or 0.0) < FREE_CPUS * seen.said.cpus]
    shares = [each for point in free if (each := _computes(point)) is not None]
    parts = seen.parts
    here = share(parts.computing_s, parts.service_s) if parts.service_s > 0 else None
    if here is not None and seen.in_use < FREE_CPUS:
        shares.append(here)
    if not shares:
        return None
    found = statistics.median(shares)
    # Where others keep all CPUs busy, no number had them: most of the waiting is for a CPU.
    starved = share(parts.starved_s, parts.service_s)
    return None if here is not None and starved > 1 - here - starved else min(1.0, found)


def _computes(point: Point) -> float | None:
    busy = point.busy if point.workers else point.waiting
    if point.cpus is None or not busy:
        return None
    return point.cpus / busy


def waits(seen: Measured) -> Limit | None:
    """The limit where workers are what is waited for, and they wait themselves."""
    computes = computing_share(seen)
    if seen.here.workers == 0 or computes is None or computes >= COMPUTES:
        return None
    busy = seen.busy / seen.here.workers
    if busy < IDLE_WORKERS:
        return None
    if busy < BUSY:
        return Limit(
            "unknown",
            f"{_made(seen)}, and {number(seen.busy)} of {workers(seen.here.workers)} make one: it "
            f"is not clear whether that is the limit, or bringing batches over",
        )
    full, starved = seen.in_use >= FULL, share(seen.parts.starved_s, seen.parts.service_s)
    if full and (computes > MOSTLY or starved >= CROWDED):
        return None
    short = seen.in_use >= CPUS_IN_USE or starved >= NO_CPU
    if computes > MOSTLY and not short:
        return None
    if (computes > WAITS and short) or (full and starved >= NO_CPU):
        return Limit(
            "unknown",
            f"{_made(seen)}, and {number(_used(seen))} of {count_of(round(seen.said.cpus), 'CPU')} "
            f"are in use: what was measured does not tell which of both it waits for",
        )
    return Limit("storage", f"{_made(seen)}: {_whose(seen)}", shared=_is_shared(seen))


def _used(seen: Measured) -> float:
    return min(seen.cpus_used, seen.said.cpus)


def _made(seen: Measured) -> str:
    parts = seen.parts
    return (
        f"with {workers(seen.here.workers)} the consumer waits {percent(seen.waiting)} of the "
        f"time; making a batch takes {duration(parts.service_s)}, of which it computes for "
        f"{duration(parts.computing_s)} and else waits"
    )


def _whose(seen: Measured) -> str:
    if seen.in_use >= FULL:
        return (
            f"storage, the network, a lock or a sleep; and {number(_used(seen))} of "
            f"{count_of(round(seen.said.cpus), 'CPU')} are in use, so more workers would not help"
        )
    if _is_shared(seen):
        return "storage, the network or a lock that workers share, since more bring no more"
    below = seen.lower
    if below is not None and seen.higher is None and seen.here.per_s > below.per_s * LEVEL:
        return (
            f"storage, the network or a sleep; the rate was still rising at "
            f"{workers(seen.here.workers)}, the most that were measured"
        )
    return "storage, the network, a lock or a sleep"


def _is_shared(seen: Measured) -> bool:
    """Whether more workers were seen to bring no more although CPUs were free."""
    here, higher = seen.here, seen.higher
    if higher is None or (higher.cpus or 0.0) >= FREE_CPUS * seen.said.cpus:
        return False
    return higher.per_s <= here.per_s * LEVEL
