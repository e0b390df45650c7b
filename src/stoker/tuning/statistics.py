"""What a loader has seen and done since it was made. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from stoker.feed.losses import BrokenSample
from stoker.feed.window import Window
from stoker.tuning.decision import Decision
from stoker.tuning.growth import WorkerMemory
from stoker.tuning.table import memory, two_columns
from stoker.tuning.wording import count_of, duration, number, percent

_SHOWN_ERRORS = 5

Activity = Literal["starting", "idle", "working", "leaving"]


@dataclass(frozen=True)
class WorkerState:
    """One worker process.

    Attributes:
        number: Its number in the loader, from 0.
        pid: Its process id; None where it is not known yet.
        state: "starting" until it has answered; "leaving" once it was asked to end.
        batches: Batches it has made.
        service_s: Mean wall-clock seconds a batch took it; None before its first.
    """

    number: int
    pid: int | None = None
    state: Activity = "starting"
    batches: int = 0
    service_s: float | None = None


@dataclass(frozen=True)
class Statistics:
    """What a loader has seen and done, over all its epochs.

    Times are wall-clock seconds unless they say otherwise.

    Attributes:
        automatic: Whether the loader chooses the number of workers itself.
        num_workers: Workers now; 0 where batches are made in the main process.
        peak_workers: The most workers it has had at once.
        epochs: Epochs begun.
        batches: Batches handed out.
        batch_size: Samples in a batch; None where the loader doesn't make up the batches.
        length: Batches in an epoch; None when unknown.
        seconds: Time inside epochs: `waited_s`, `away_s`, `handling_s` and `loading_s`.
        waited_s: The consumer waited for a batch that workers had not ready.
        away_s: The consumer's own time between two batches.
        handling_s: The main process's own work in ``next``: opening batches, sending tasks.
        loading_s: Making batches in the main process.
        order_s: Of `waited_s`, how long a later batch was ready and had to wait its turn.
        start_s: Starting workers: the main process's own part, and `coming_up_s`.
        coming_up_s: Of `waited_s`, while the worker whose batch was awaited, or every worker, had
            not come up yet.
        starts: How often workers were started where there were none, as in each epoch without
            ``persistent_workers``.
        made: Batches made, handed out or not.
        service_s: Mean time of making a batch; None before the first.
        cpu_s: Mean CPU seconds of making a batch; None before the first, and where that was
            not taken (batches made in the main process, with a given number of workers).
        starved_s: Mean seconds, for each batch made, that its worker was ready to run and had
            no CPU; None where the system doesn't tell.
        batch_bytes: Size of the largest batch that came from a worker, in bytes; 0 if none did.
        total_bytes: Bytes of all batches that workers have made.
        in_flight: Batches asked for and not yet handed out.
        peak_in_flight: The most of these at once.
        slot_bytes: Shared memory for batches now, in bytes.
        peak_slot_bytes: The most of it at once, in bytes.
        memory_limit: Bytes that batches in flight may take; None without a limit.
        memory_limit_source: Where the limit comes from, in plain words.
        cpus: CPUs the loader may use; None where it was not asked for.
        cpus_source: Where that number comes from, in plain words.
        workers: The worker processes there are.
        recent: The last stretch in which nothing was changed; None before there was one.
        waits: How long the consumer waited for each batch: pairs of an upper bound in seconds
            and how many waits were up to it and above the bound before. The last bound is inf.
        decisions: What was chosen, in order of time.
        remarks: What stood out, each a sentence with its measured reason.
        replaced: Workers that died and were replaced, their batches made again.
        timed_out: Batches that did not come within ``timeout`` and were made again, or left out.
        left_out: Of those, how many were left out (``on_timeout="skip"``).
        broken_samples: How often a sample could not be read, and ``on_error`` has let that pass.
        skipped_samples: How many of these were left out.
        skipped_batches: Batches that nothing was left of, so that they were not handed out.
        errors: The samples that could not be read, each once, those met first; at most 1,000.
        worker_memory: What workers have told of their private memory, in bytes, and its growth;
            None where none has. They look at their first batch, 0.25 s later, and then ever
            more seldom.
    """

    automatic: bool = False
    num_workers: int = 0
    peak_workers: int = 0
    epochs: int = 0
    batches: int = 0
    batch_size: int | None = None
    length: int | None = None
    seconds: float = 0.0
    waited_s: float = 0.0
    away_s: float = 0.0
    handling_s: float = 0.0
    loading_s: float = 0.0
    order_s: float = 0.0
    start_s: float = 0.0
    coming_up_s: float = 0.0
    starts: int = 0
    made: int = 0
    service_s: float | None = None
    cpu_s: float | None = None
    starved_s: float | None = None
    batch_bytes: int = 0
    total_bytes: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    slot_bytes: int = 0
    peak_slot_bytes: int = 0
    memory_limit: int | None = None
    memory_limit_source: str = ""
    cpus: float | None = None
    cpus_source: str = ""
    workers: tuple[WorkerState, ...] = ()
    recent: Window | None = None
    waits: tuple[tuple[float, int], ...] = ()
    decisions: tuple[Decision, ...] = ()
    remarks: tuple[str, ...] = ()
    replaced: int = 0
    timed_out: int = 0
    left_out: int = 0
    broken_samples: int = 0
    skipped_samples: int = 0
    skipped_batches: int = 0
    errors: tuple[BrokenSample, ...] = ()
    worker_memory: WorkerMemory | None = None

    @property
    def rate_per_s(self) -> float:
        """Batches a second, over all epochs; 0 before any time has passed."""
        return self.batches / self.seconds if self.seconds > 0 else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time inside epochs that the consumer waited for a batch or made one."""
        lost_s = self.waited_s + self.loading_s
        return min(1.0, lost_s / self.seconds) if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as lists, dicts, numbers and strings that JSON has.

        Units are those of the attributes. A number that JSON lacks, as the last bound of
        `waits`, is None.
        """
        told: dict[str, Any] = plain(self)
        return told | {"rate_per_s": plain(self.rate_per_s), "waiting": plain(self.waiting)}

    def __str__(self) -> str:
        """A table for people: numbers with their units, then decisions, then remarks."""
        rows = [*_work(self), *_losses(self), *_time(self), *_making(self), *_means(self)]
        parts = [two_columns(rows)]
        if self.decisions:
            parts.append("\n".join(["decisions:", *map(_decision, self.decisions)]))
        if self.remarks:
            parts.append("\n".join(["remarks:", *(f"  {remark}" for remark in self.remarks)]))
        return "\n\n".join(parts)


def plain(value: Any) -> Any:
    """A value of dataclasses, tuples and numbers as JSON has it; None for inf and NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


Rows = list[tuple[str, str]]


def _work(told: Statistics) -> Rows:
    chosen = "chosen by the loader" if told.automatic else "as given"
    epoch = "" if told.length is None else f", {count_of(told.length, 'batch')} in each"
    return [
        ("workers now", f"{told.num_workers} ({chosen}; {told.peak_workers} at its peak)"),
        *([("workers that died", f"{told.replaced:,}, replaced")] if told.replaced else []),
        ("epochs", f"{told.epochs:,}{epoch}"),
        ("batches", f"{told.batches:,} ({number(told.rate_per_s)} a second)"),
    ]


def _losses(told: Statistics) -> Rows:
    if not told.broken_samples:
        return []
    counts = f"{told.broken_samples:,} (left out: {told.skipped_samples:,} in all"
    lines = [f"{counts}, and {count_of(told.skipped_batches, 'batch')} whole)"]
    for each in told.errors[:_SHOWN_ERRORS]:
        often = "" if each.times == 1 else f", {each.times:,} times"
        lines.append(f"index {each.index!r}, batch {each.batch:,}{often}: {each.error}")
    if len(told.errors) > _SHOWN_ERRORS:
        lines.append("further ones are in .errors")
    return [("samples that could not be read", "\n".join(lines))]


def _time(told: Statistics) -> Rows:
    def part(name: str, seconds: float) -> tuple[str, str]:
        if seconds <= 0 or told.seconds <= 0:
            return name, duration(seconds)
        return name, f"{duration(seconds)} ({percent(seconds / told.seconds)})"

    return [
        ("time inside epochs", duration(told.seconds)),
        part("  waiting for a batch", told.waited_s),
        part("  making batches in the main process", told.loading_s),
        part("  handling batches", told.handling_s),
        part("  away in the training step", told.away_s),
        ("of waiting, a later batch was ready", duration(told.order_s)),
        ("waits", _histogram(told.waits)),
        ("starting workers", _starting(told)),
    ]


def _starting(told: Statistics) -> str:
    if told.starts < 2:
        return duration(told.start_s)
    each = duration(told.start_s / told.starts)
    return f"{duration(told.start_s)} ({told.starts:,} times, {each} each until one was ready)"


def _histogram(waits: tuple[tuple[float, int], ...]) -> str:
    """One line for each bound that any wait fell under."""
    lines = []
    below = 0.0
    for bound, count in waits:
        name = f"above {duration(below)}" if math.isinf(bound) else f"up to {duration(bound)}"
        below = bound
        if count:
            lines.append(f"{name}: {count:,}")
    return "\n".join(lines) or "none"


def _making(told: Statistics) -> Rows:
    def each(name: str, seconds: float | None) -> tuple[str, str]:
        return name, "not known" if seconds is None else duration(seconds)

    return [
        ("batches made", f"{told.made:,}"),
        each("  making one takes", told.service_s),
        each("  of that on a CPU", told.cpu_s),
        each("  of that without a free CPU", told.starved_s),
    ]


def _means(told: Statistics) -> Rows:
    limit = "no limit" if told.memory_limit is None else f"limit {memory(told.memory_limit)}"
    cpus = "not known" if told.cpus is None else number(told.cpus)
    return [
        ("largest batch of a worker", memory(told.batch_bytes) if told.batch_bytes else "none yet"),
        ("all batches of workers", memory(told.total_bytes)),
        ("batches in flight", f"{told.in_flight} (at most {told.peak_in_flight} so far)"),
        (
            "memory for batches",
            f"{memory(told.slot_bytes)} (at most {memory(told.peak_slot_bytes)} so far; "
            f"{limit}{_source(told.memory_limit_source)})",
        ),
        *_worker_memory(told.worker_memory),
        ("CPUs", f"{cpus}{_source(told.cpus_source)}"),
    ]


def _worker_memory(told: WorkerMemory | None) -> Rows:
    if told is None:
        return []
    lines = [
        f"{memory(told.private_bytes)} of {count_of(told.workers, 'worker')} "
        f"({memory(told.start_bytes)} when they were ready; at most "
        f"{memory(told.peak_bytes)} so far)"
    ]
    if told.growing:
        lines.append(f"grows by {memory(told.per_batch_bytes)} with each batch")
    if told.growth_likely:
        lines.append(f"likely: {told.growth_likely}")
    return [("private memory", "\n".join(lines))]


def _source(source: str) -> str:
    return f", by {source}" if source else ""


def _decision(decision: Decision) -> str:
    at = f"{duration(decision.at_s)}, batch {decision.batch:,}"
    return f"  {at}: {decision.before} -> {decision.workers}: {decision.reason}"
