"""What a batch costs, and where its time goes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from stoker.tuning.answer import Parts, Work
from stoker.tuning.asks import IN_TURN
from stoker.tuning.model import HANDLING_S
from stoker.tuning.rates import plain_seen
from stoker.tuning.site_record import Seen, SiteRecord
from stoker.tuning.visits import Visit

FREE = 0.85
"""Share of the CPUs in use up to which a worker has one whenever it wants one."""
STARVED = 0.1
"""Share of the making without a free CPU from which on workers were in each other's way."""


def parts_of(count: int, found: Sequence[Seen]) -> Parts:
    """Where the time of a batch went with so many workers; pairs count more than looks."""
    windows = [seen.window for seen in found if seen.stage in IN_TURN]
    windows = windows or [seen.window for seen in found]
    batches = max(1, sum(window.batches for window in windows))
    made = max(1, sum(window.made for window in windows))
    busy_s = sum(window.busy_s for window in windows) / made
    cpu_s = min(busy_s, sum(window.cpu_s for window in windows) / made)
    starved_s = sum(window.starved_s or 0.0 for window in windows) / made
    starved_s = min(starved_s, busy_s - cpu_s)
    return Parts(
        num_workers=count,
        step_s=sum(window.away_s for window in windows) / batches,
        waited_s=sum(window.waited_s for window in windows) / batches,
        handling_s=sum(window.handling_s for window in windows) / batches,
        loading_s=0.0 if count else busy_s,
        computing_s=cpu_s,
        off_cpu_s=max(0.0, busy_s - cpu_s - starved_s),
        starved_s=starved_s,
        order_s=sum(window.order_s for window in windows) / batches,
    )


def work_of(record: SiteRecord) -> Work | None:
    """What a batch costs; None when nothing was measured."""
    visits = {
        count: Visit.of(count, [seen.window for seen in found])
        for count, found in plain_seen(record).items()
    }
    visits = {count: visit for count, visit in visits.items() if visit.count}
    if not visits:
        return None
    free = _undisturbed(visits, record.cpus[0])
    with_workers = [visit for visit in visits.values() if visit.workers]
    memory = [
        seen.memory_bytes / seen.setting.workers
        for seen in record.seen
        if seen.memory_bytes and seen.setting.workers
    ]
    return Work(
        service_s=free.making_s,
        cpu_s=free.making_s * free.cpu,
        step_s=min(visit.away_each_s for visit in visits.values()),
        handling_s=min((visit.handling_each_s for visit in with_workers), default=HANDLING_S),
        spread=free.batch_spread,
        worker_bytes=int(statistics.median(memory)) if memory else None,
        batch_bytes=record.batch_bytes,
        start_s=_start_s(record, free.making_s),
        doubt=free.service_error,
    )


def _undisturbed(visits: Mapping[int, Visit], cpus: float) -> Visit:
    """The fewest workers that had CPUs enough: what they share was shared the least.

    Where larger numbers say the same and were measured longer, it is the one that is known best.
    The main process is taken only where no worker ran free: it computes with more threads.
    """
    workers = [visits[count] for count in sorted(visits) if count]
    free = [visit for visit in workers if _is_free(visit, cpus)]
    if not free:
        return visits[0] if 0 in visits else workers[0]
    fewest = free[0]
    alike = [visit for visit in free if _alike(visit, fewest)]
    return min(alike, key=lambda visit: visit.service_error)


def _is_free(visit: Visit, cpus: float) -> bool:
    return visit.cpus_used <= FREE * cpus and visit.starved <= STARVED


def _alike(one: Visit, other: Visit) -> bool:
    apart = abs(one.making_s - other.making_s)
    return apart <= other.making_s * max(one.service_error, other.service_error)


def _start_s(record: SiteRecord, service_s: float) -> float:
    """Starting one worker: what came before the first batch, without making it."""
    starts = [
        max(0.0, seen.first_batch_s - service_s) / seen.setting.workers
        for seen in record.seen
        if seen.first_batch_s is not None and seen.setting.workers
    ]
    return statistics.median(starts) if starts else 0.0
