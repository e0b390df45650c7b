"""From what the engine has counted to what a user is told. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stoker.feed.meter import WAIT_BOUNDS_S, Meter
from stoker.feed.room import Room
from stoker.tuning.decision import Decision
from stoker.tuning.growth import WorkerMemory
from stoker.tuning.pattern import every_nth, remarks
from stoker.tuning.statistics import Statistics, WorkerState

_UNDECIDED = (
    "nothing is decided yet: the main process makes the batches until workers are known to help, "
    "and to pay for their start"
)


@dataclass(frozen=True)
class Identity:
    """What a loader is known by.

    Attributes:
        name: For people: its data set, samples, batch size.
        batch_size: Samples in a batch; None where the loader does not make up the batches.
        length: Batches in an epoch; None when unknown.
    """

    name: str
    batch_size: int | None
    length: int | None


@dataclass(frozen=True)
class Now:
    """What there is at this moment, of this loader and around it.

    Attributes:
        workers: The loader's workers.
        in_flight: Batches asked for and not handed out.
        slot_bytes: Memory of its slots.
        automatic: Whether it chooses the number of workers.
        peak_workers: The most workers it has had.
        cpus: CPUs this process may use.
        cpus_source: Where that comes from.
        ranks: Processes of the training on this node.
        live_loaders: Loaders of this process that are being iterated over.
        all_workers: Workers of all of these.
        decisions: What was chosen.
        findings: Further remarks.
        replaced: Workers that died and were replaced.
        worker_memory: What workers have told of their memory; None where none has.
    """

    workers: tuple[WorkerState, ...]
    in_flight: int
    slot_bytes: int
    automatic: bool
    peak_workers: int
    cpus: float
    cpus_source: str
    ranks: int
    live_loaders: int
    all_workers: int
    decisions: Sequence[Decision]
    findings: Sequence[str]
    replaced: int = 0
    worker_memory: WorkerMemory | None = None


def snapshot(meter: Meter, room: Room, identity: Identity, now: Now) -> Statistics:
    """What a loader has seen and done until now."""
    totals = meter.totals
    made = totals.made + totals.loaded
    serving = sum(1 for worker in now.workers if worker.state != "leaving")
    cpu_known = made > 0 and (totals.clocked_s > 0 or not totals.loaded)
    told = Statistics(
        automatic=now.automatic,
        num_workers=serving,
        peak_workers=now.peak_workers,
        epochs=totals.epochs,
        batches=totals.batches,
        batch_size=identity.batch_size,
        length=identity.length,
        seconds=totals.seconds + totals.opening_s,
        waited_s=totals.waited_s,
        away_s=totals.away_s,
        handling_s=totals.handling_s,
        loading_s=totals.loading_s,
        order_s=totals.order_s,
        start_s=totals.start_s + totals.coming_up_s,
        coming_up_s=totals.coming_up_s,
        starts=totals.starts,
        made=made,
        service_s=(totals.busy_s + totals.loading_s) / made if made else None,
        cpu_s=(totals.cpu_s + meter.loading_cpu_s) / made if cpu_known else None,
        starved_s=totals.starved_s / totals.made if meter.starved_known else None,
        batch_bytes=meter.batch_bytes,
        total_bytes=totals.total_bytes,
        in_flight=now.in_flight,
        peak_in_flight=meter.peak_in_flight,
        slot_bytes=now.slot_bytes,
        peak_slot_bytes=meter.peak_slot_bytes,
        memory_limit=room.limit_bytes or None,
        memory_limit_source=room.source if room.limit_bytes else "",
        cpus=now.cpus,
        cpus_source=now.cpus_source,
        workers=now.workers,
        recent=meter.recent,
        waits=tuple(zip(WAIT_BOUNDS_S, meter.histogram, strict=True)),
        decisions=tuple(now.decisions),
        replaced=now.replaced,
        timed_out=meter.timed_out,
        left_out=meter.given_up,
        broken_samples=meter.losses.broken,
        skipped_samples=meter.losses.skipped,
        skipped_batches=meter.losses.skipped_batches,
        errors=meter.losses.listed,
        worker_memory=now.worker_memory,
    )
    return _with_remarks(told, meter, serving, now)


def _with_remarks(told: Statistics, meter: Meter, serving: int, now: Now) -> Statistics:
    found = remarks(
        told, live_loaders=now.live_loaders, all_workers=now.all_workers, ranks=now.ranks
    )
    pattern = every_nth(list(meter.waits), serving, meter.away_s)
    undecided = told.automatic and told.batches and not told.decisions
    more = [*([pattern] if pattern else []), *([_UNDECIDED] if undecided else [])]
    return replace(told, remarks=(*found, *more, *now.findings))
