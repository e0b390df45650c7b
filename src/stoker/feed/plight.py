"""What a worker is at that others wait for: slow, stuck, stopped? Pure, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stoker.workers.pulse import Pulse

Condition = Literal["starting", "slow", "crowded", "stopped", "disk", "stuck", "unknown"]

FRESH = 'worker_method="fresh", whose workers are no copies of this process'
_AT_WORK = 0.05
_AT_WORK_S = 0.03  # CPU time is counted in ticks of a hundredth.
_AT_WORK_BYTES = 64 * 1024
_CROWDED = 0.5
_STACKS = 8
_INDICES = 200  # characters


@dataclass(frozen=True)
class Plight:
    """One worker that has something to make, or is starting.

    Attributes:
        worker: Its number.
        pid: Its process id.
        batch: The number of the batch that it is making, or would be if it had come up; None
            when it has none.
        indices: The sample indices of that; None for an iterable data set, or no batch.
        for_s: How long it has been at it, in seconds.
        condition: What kind of trouble it is in.
        signs: What that was concluded from.
        stack: The Python stack of its threads, most recent call first; empty when it could
            not answer.
        lost: The names of native threads that ran when it was forked; None where it was not, or
            has made a batch since.
    """

    worker: int
    pid: int
    batch: int | None
    indices: Any
    for_s: float
    condition: Condition
    signs: str
    stack: str = ""
    lost: tuple[str, ...] | None = None

    def __str__(self) -> str:
        lines = [
            f"worker {self.worker} (pid {self.pid}): {self._at()}, for {seconds(self.for_s)}: "
            f"{self.signs}"
        ]
        if self.stack:
            lines += ["  " + line for line in self.stack.splitlines()]
        return "\n".join(lines)

    def _at(self) -> str:
        if self.batch is None:
            return "starting"
        at = f"batch {self.batch}"
        if self.condition == "starting":
            at = f"starting, then {at}"
        if self.indices is None:
            return at
        text = repr(self.indices)
        if len(text) > _INDICES:
            text = f"{text[:_INDICES]} ..."
        return f"{at}, sample indices {text}"


def diagnose(
    before: Pulse | None, after: Pulse | None, between_s: float, *, starting: bool
) -> tuple[Condition, str]:
    """Tells slow from stuck.

    Args:
        before: The worker's signs of life when it was first looked at; None: it wasn't.
        after: Those of now; None: they can't be had.
        between_s: How long lies between the two.
        starting: Whether the worker has not come up yet.

    Returns:
        The condition, and what it was concluded from.
    """
    if after is not None and after.state in ("stopped", "tracing-stop"):
        return "stopped", "stopped by a signal (SIGSTOP, a debugger, or a job that was suspended)"
    signs = _signs(before, after, between_s)
    if starting:
        return "starting", f"it has not come up yet{signs and f' ({signs})'}"
    if before is None or after is None or between_s <= 0:
        return "unknown", "no telling whether it works"
    if after.cpu_s - before.cpu_s >= max(_AT_WORK * between_s, _AT_WORK_S):
        return "slow", f"slow or in a loop, not stuck: {signs}"
    if _starved_s(before, after) >= _CROWDED * between_s:
        return "crowded", f"slow: it gets no CPU ({signs})"
    if _moved_bytes(before, after) >= _AT_WORK_BYTES:
        return "slow", f"slow, not stuck: {signs}"
    if after.state == "disk-sleep":
        return "disk", f"it waits for a disk or a network file system: {signs}"
    return "stuck", f"stuck, or waiting: {signs}"


def _signs(before: Pulse | None, after: Pulse | None, between_s: float) -> str:
    if before is None or after is None:
        return ""
    told = f"{after.cpu_s - before.cpu_s:.2f} s of CPU in the last {seconds(between_s)}"
    starved_s, moved_bytes = _starved_s(before, after), _moved_bytes(before, after)
    if starved_s >= _AT_WORK * between_s:
        told += f", ready to run without a CPU for {starved_s:.2f} s"
    if moved_bytes >= _AT_WORK_BYTES:
        told += f", {moved_bytes / 1e6:.3g} MB read and written"
    return told


def _starved_s(before: Pulse, after: Pulse) -> float:
    return (after.starved_s or 0.0) - (before.starved_s or 0.0)


def _moved_bytes(before: Pulse, after: Pulse) -> int:
    return (after.io_bytes or 0) - (before.io_bytes or 0)


def told(plights: Sequence[Plight]) -> str:
    """All of them, those first that are waited for; stacks of the first 8 only."""
    texts = [str(plight) for plight in plights[:_STACKS]]
    texts += [str(plight).splitlines()[0] for plight in plights[_STACKS:]]
    return "\n".join(texts)


def likely(plight: Plight | None) -> str:
    """The likely cause of waiting for this worker."""
    if plight is None:
        return (
            "no worker: it is this process that does not go on, or the memory for batches is short"
        )
    told = _LIKELY[plight.condition]
    if plight.lost and may_miss_threads(plight):
        shown = ", ".join(map(repr, plight.lost[:5])) + ", ..." * (len(plight.lost) > 5)
        told = f"a library that waits for threads which a copy of the process has not ({shown})"
    return f"{told} (worker {plight.worker})"


def may_miss_threads(plight: Plight | None) -> bool:
    """Whether a worker that is no copy of the process might not hang."""
    return plight is not None and plight.condition == "stuck" and plight.lost is not None


def seconds(value_s: float) -> str:
    """Seconds in three digits."""
    return f"{value_s:.3g} s" if value_s < 100 else f"{value_s:,.0f} s"


_LIKELY: dict[Condition, str] = {
    "starting": "a worker that takes long to come up: what it imports, or worker_init_fn",
    "slow": "a sample that takes longer than the others, or one that loops for ever",
    "crowded": "other processes, or other workers, that use all the CPUs",
    "stopped": "a worker that was stopped: kill -CONT lets it go on",
    "disk": "a disk or a network file system that doesn't answer",
    "stuck": "something that does not come: a lock that was held during the fork, a server, a pipe",
    "unknown": "a sample that takes longer than the time-out",
}
