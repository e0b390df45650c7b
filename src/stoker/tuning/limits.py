"""What keeps batches from coming faster, from what was measured. Pure.

The rules are asked in an order in which an earlier answer explains a later one's signs away:
workers that have no CPU are no sign of slow storage. Each claims no more than its sentence's
numbers show, and where none fits, the sentence says what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stoker.tuning.answer import Limit
from stoker.tuning.off_cpu import NO_CPU, waits
from stoker.tuning.situation import Measured, Point, Situation, measured, share
from stoker.tuning.wording import count_of, duration, number, percent, workers

FED = 0.03
"""Share of waiting below which a consumer is fed, and of the bound within which a rate is at it."""
IDLE, IN_USE = 0.8, 0.94
"""Share of the CPUs in use below which they are no limit, and from which on they are."""
STARVED = 0.2
"""Of making a batch: ready to run, without a CPU."""
IN_ORDER = 0.3
"""Of the waiting: a later batch was ready."""
HANDLED = 0.5
"""Of the time between batches: the main process's work of receiving."""
LEVEL = 1.05
"""Rates that differ by less are told as the same."""
GROWN = 1.25
"""Waiting off the CPU that has grown so much with workers is for something they share."""
START = 0.1
"""Of an epoch: a start that is worth a word."""
TINY_S = 300e-6
"""A batch made so soon costs less than handing it from process to process."""


def limit_of(said: Situation) -> Limit:
    """Names what keeps batches from coming faster at the recommended setting.

    Any numbers are fine: what is missing, or can't be, names nothing.
    """
    seen = measured(said)
    if seen is None:
        return Limit("unknown", "nothing was measured to the end, so no limit can be named")
    for rule in _RULES:
        found = rule(seen)
        if found is not None:
            return found
    return _unknown(seen)


def _start(seen: Measured) -> Limit | None:
    start_s, batches = seen.said.start_s, seen.said.epoch_batches
    if not start_s or not batches or batches < 1:
        return None
    steady_s = (batches - 1) * seen.period_s
    epoch_s = start_s + steady_s
    lost_s = start_s - seen.parts.service_s - seen.period_s
    if lost_s < START * epoch_s or lost_s < seen.waiting * steady_s:
        return None
    after = "the batches after it" if batches > 1 else "nothing after it"
    whose = f"with {workers(seen.here.workers)} " if seen.here.workers else ""
    return Limit(
        "start",
        f"of an epoch of {duration(epoch_s)} the wait for its first batch takes "
        f"{duration(start_s)} ({percent(start_s / epoch_s)}) {whose}and {after} "
        f"{duration(steady_s)}",
    )


def _consumer(seen: Measured) -> Limit | None:
    bound = seen.said.bound_per_s
    fed = f"the consumer waits {percent(seen.waiting)} of the time"
    if bound and seen.here.per_s >= (1 - FED) * bound:
        return Limit(
            "consumer",
            f"{number(seen.here.per_s)} batches/s, and batches that were ready gave "
            f"{number(bound)}: the consumer's own step of {duration(seen.parts.step_s)} is the "
            f"limit",
        )
    if seen.waiting < FED and seen.parts.handling_s < START * seen.period_s:
        return Limit(
            "consumer",
            f"{fed}: its own step of {duration(seen.parts.step_s)} is the limit, and no loader "
            f"setting changes it",
        )
    return None


def _tiny(seen: Measured) -> Limit | None:
    """Batches that are made sooner than handed on, in the main process."""
    if seen.here.workers or not 0 < seen.parts.loading_s <= TINY_S:
        return None
    return Limit(
        "main process",
        f"a batch takes {duration(seen.parts.loading_s)} to make in the main process, no more "
        f"than a worker needs to hand one on{_with_workers(seen)}",
    )


def _in_main(seen: Measured) -> Limit | None:
    """More workers were measured, and are no faster than none."""
    if seen.here.workers or seen.higher is None:
        return None
    return Limit(
        "main process",
        f"batches are made in the main process, in {duration(seen.parts.loading_s)}, and "
        f"workers bring them no sooner{_with_workers(seen)}",
    )


def _with_workers(seen: Measured) -> str:
    others = [point for point in seen.points if point.workers]
    if not others:
        return ""
    best = max(others, key=lambda point: point.per_s)
    return (
        f" ({number(seen.here.per_s)} batches/s, and {number(best.per_s)} with "
        f"{workers(best.workers)})"
    )


def _off_cpu(seen: Measured) -> Limit | None:
    """Where making a batch waits, that is the limit whatever one number looks like by chance."""
    found = waits(seen)
    if found is None or found.kind != "storage":
        return found
    return _order(seen) or _storage(seen) or _memory(seen) or found


def _cpu(seen: Measured) -> Limit | None:
    cpus = count_of(round(seen.said.cpus), "CPU")
    starved = share(seen.parts.starved_s, seen.parts.service_s)
    if seen.in_use >= IN_USE:
        used = number(min(seen.cpus_used, seen.said.cpus))
        return Limit(
            "cpu", f"{_waits(seen)}, and {used} of {cpus} are in use: there is no CPU for more"
        )
    if starved >= STARVED:
        return Limit(
            "cpu",
            f"{_waits(seen)}, and making a batch stood ready without a free CPU "
            f"{percent(starved)} of its time ({cpus}, "
            f"{number(seen.cpus_used)} used by this loader)",
        )
    return None


def _waits(seen: Measured) -> str:
    if seen.here.workers:
        with_them = f"with {workers(seen.here.workers)}"
        return f"{with_them} the consumer waits {percent(seen.waiting)} of the time"
    return f"making batches in the main process takes {percent(seen.waiting)} of the time"


def _order(seen: Measured) -> Limit | None:
    ordered = share(seen.parts.order_s, seen.parts.waited_s)
    if seen.here.workers < 2 or ordered < IN_ORDER or seen.busy >= 0.9 * seen.here.workers:
        return None
    return Limit(
        "order",
        f"{percent(ordered)} of the waiting was for a batch whose successors were ready, and "
        f"{number(seen.busy)} of {workers(seen.here.workers)} were busy: slow batches hold up "
        f"quick ones",
    )


def _transport(seen: Measured) -> Limit | None:
    count = seen.here.workers
    if not count:
        return None
    made_each_s = seen.parts.service_s / count
    handled = share(seen.parts.handling_s, seen.period_s)
    if handled >= HANDLED and made_each_s < 0.7 * seen.period_s:
        return Limit(
            "transport",
            f"receiving a batch takes the main process {duration(seen.parts.handling_s)}, "
            f"{percent(handled)} of the time between batches; {workers(count)} could make one "
            f"every {duration(made_each_s)}",
        )
    slack = seen.busy < 0.5 * count and made_each_s < 0.5 * seen.period_s
    ordered = share(seen.parts.order_s, seen.parts.waited_s)
    if slack and seen.waiting >= START and ordered < 0.1 and seen.parts.service_s > 0:
        return Limit(
            "transport",
            f"the consumer waits {percent(seen.waiting)} of the time while only "
            f"{number(seen.busy)} of {workers(count)} make a batch and no later one is ready: the "
            f"time goes into bringing batches over",
        )
    return None


def _storage(seen: Measured) -> Limit | None:
    """The rate is level, CPUs are free, and what batches wait for off the CPU grows."""
    here, more = seen.here, seen.higher
    if here.workers == 0:
        return None
    if more is None:  # the recommended number is the largest: is it level with a smaller one?
        level = [p for p in seen.points if 0 < p.workers < here.workers]
        level = [p for p in level if p.per_s * LEVEL > here.per_s]
        if not level:
            return None
        here, more = level[0], here
    off_s, more_off_s = here.off_cpu_s, more.off_cpu_s
    if not off_s or not more_off_s or more.per_s > here.per_s * LEVEL:
        return None
    used = (more.cpus or 0.0) / max(seen.said.cpus, 0.01)
    mostly = off_s * here.per_s >= 0.3 * (here.busy or math.inf)
    starved = share(seen.parts.starved_s, seen.parts.service_s)
    if more_off_s < GROWN * off_s or used >= IDLE or starved >= NO_CPU or not mostly:
        return None
    return Limit("storage", _capped(seen, here, more, off_s, more_off_s), shared=True)


def _capped(seen: Measured, here: Point, more: Point, off_s: float, more_off_s: float) -> str:
    size = seen.said.batch_size
    samples = f" ({number(here.per_s * size)} samples/s)" if size and size > 1 else ""
    return (
        f"from {workers(here.workers)} on the rate stays at {number(here.per_s)} "
        f"batches/s{samples} and CPUs are free, while a batch's waiting grows from "
        f"{duration(off_s)} to {duration(more_off_s)} with {more.workers}: storage, network or a "
        f"lock that workers share"
    )


def _memory(seen: Measured) -> Limit | None:
    most = seen.said.memory_workers
    if most is None or seen.here.workers < most or seen.here.workers == 0:
        return None
    below = seen.lower
    if below is not None and seen.here.per_s < below.per_s * LEVEL:
        return None
    return Limit(
        "memory",
        f"{_waits(seen)} and there is no memory for more; {number(seen.here.per_s)} batches/s "
        f"were still rising",
    )


def _unknown(seen: Measured) -> Limit:
    """Where no rule fits: what was measured all the same."""
    waits, here = _waits(seen), seen.here
    if share(seen.parts.step_s, seen.period_s) >= 1 - START:
        most = seen.period_s / seen.parts.step_s - 1
        return Limit(
            "consumer",
            f"{waits} beside its own step of {duration(seen.parts.step_s)}: no loader setting can "
            f"gain more than {percent(most)}",
        )
    others = [point for point in seen.points if point.workers != here.workers]
    if not others:
        return Limit("unknown", f"{waits}; other numbers of workers were not measured")
    below = seen.lower
    rising = seen.higher is None and below is not None and here.per_s > below.per_s * LEVEL
    if rising:
        return Limit(
            "unknown",
            f"{waits}; the rate was still rising at {workers(here.workers)}, the most that were "
            f"measured",
        )
    free = f" and {number(seen.cpus_used)} of {number(seen.said.cpus)} CPUs are in use"
    return Limit("unknown", f"{waits}{free}; what was measured does not tell what it waits for")


_RULES: tuple[Callable[[Measured], Limit | None], ...] = (
    _start,
    _consumer,
    _tiny,
    _off_cpu,
    _cpu,
    _in_main,
    _order,
    _storage,
    _transport,
    _memory,
)
