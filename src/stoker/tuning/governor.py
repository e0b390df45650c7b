"""What a loader may use at this moment, and what it decided: the controller's link to the world."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker.feed.meter import Meter
from stoker.feed.room import Room
from stoker.feed.window import Window
from stoker.host.limits import limit_facts
from stoker.host.memory import memory_facts
from stoker.host.ranks import CpuShare
from stoker.tuning.controller import Controller
from stoker.tuning.decision import Bounds, Decision
from stoker.tuning.known import Known

_log = logging.getLogger("stoker")

_WORKERS_PER_CPU = 4
_FEWEST_CAP, _LARGEST_CAP = 32, 256
_FORKED_BYTES, _FRESH_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
"""Memory of its own that a worker may take. Measured with a data set of next to nothing (USS,
torch 2.13): 20 MB after a fork, 165 MB of a fresh interpreter with torch."""
_WORKER_MEMORY_SHARE = 0.5
_DESCRIPTORS_A_WORKER = 2
_DESCRIPTORS_LEFT_ALONE = 64
_FORK_S, _FRESH_S = 0.03, 2.0
"""What starting a worker takes until it was measured: a fork, a fresh interpreter with torch."""
_FACTS_KEPT_S = 2.0


@dataclass(frozen=True)
class Least:
    """The fewest workers there must be.

    Attributes:
        workers: 0 or 1.
        why: What needs one, in plain words; empty with 0.
    """

    workers: int
    why: str


class LoaderGovernor:
    """Decides how many workers one loader has; see `feed.adaptive.Governor`.

    Args:
        least: The fewest.
        share: The CPUs of this process.
        others_cpus: Tells how many CPUs other loaders of this process use, and how many of
            those loaders there are.
        room: The memory for batches in flight.
        meter: Counts the batches.
        decisions: Where to keep what was decided, in order of time.
        method: How processes are started.
        known: Where to begin; None where nothing is known of the work.

    Attributes:
        changed: Called with the number of workers when it was changed.
    """

    def __init__(
        self,
        least: Least,
        share: CpuShare,
        others_cpus: Callable[[], tuple[float, int]],
        room: Room,
        meter: Meter,
        decisions: list[Decision],
        method: str,
        known: Known | None = None,
    ) -> None:
        self.least = least.workers
        self._least = least
        self._share = share
        self._others_cpus = others_cpus
        self._room = room
        self._meter = meter
        self._controller = Controller(known=known)
        forked = method == "fork"
        self._start_s = _FORK_S if forked else _FRESH_S
        self._worker_bytes = _FORKED_BYTES if forked else _FRESH_BYTES
        self._caps: tuple[int, str] = (0, "")
        self._caps_read_at = -_FACTS_KEPT_S
        self._began_at = time.perf_counter()
        self._workers = 0
        self._decisions = decisions
        self.changed: Callable[[int], None] = lambda workers: None
        if least.workers:
            self._keep(Decision(0, least.workers, f"at least {least.workers}: {least.why}"))

    def next_window(self) -> tuple[int, float]:
        """How many batches, and seconds, the next window is to have at least."""
        return self._controller.wanted

    def begin(self, batches_left: int | None) -> int | None:
        """Looks at what was known before; returns how many workers to begin with, None if it's
        not known, or not worth it yet.
        """
        decision = self._controller.begin(self._bounds(batches_left))
        if decision is None:
            return None
        self._keep(decision)
        return decision.workers

    def review(self, window: Window, batches_left: int | None) -> int | None:
        """Looks at what was seen; returns how many workers to have, None for no change."""
        decision = self._controller.observe(window, self._bounds(batches_left))
        if decision is None:
            return None
        self._keep(decision)
        return decision.workers if decision.workers != decision.before else None

    def performed(self, workers: int) -> None:
        """The number was changed."""
        self._workers = workers
        self._controller.changed(workers)
        self.changed(workers)

    def came_up(self, workers: int, seconds: float) -> None:
        """Workers that were started have come up, that long after."""
        self._start_s = max(0.001, seconds / max(1, workers))

    def refused(self, why: str, most: int = 0) -> None:
        """There can be no more workers than `most`."""
        self._controller.cannot_exceed(most, why)
        self._keep(Decision(self._workers, most, f"{most or 'no'} workers: {why}"))

    def _keep(self, decision: Decision) -> None:
        at_s = time.perf_counter() - self._began_at
        decision = replace(decision, at_s=at_s, batch=self._meter.totals.batches)
        self._decisions.append(decision)
        _log.info(
            "num_workers %d -> %d at batch %d: %s",
            decision.before,
            decision.workers,
            decision.batch,
            decision.reason,
        )

    def _cpus(self) -> tuple[float, str]:
        """CPUs for this loader: what others leave, and never less than an equal share."""
        share = self._share.cpus
        used, others = self._others_cpus()
        if not others:
            return share.value, share.source
        left = max(share.value - used, share.value / (others + 1))
        return left, f"{share.source}; {others} other live loaders use {used:.1f} of them"

    def _bounds(self, batches_left: int | None) -> Bounds:
        cpus, source = self._cpus()
        workers, workers_source = self._cap()
        return Bounds(
            cpus=cpus,
            cpus_source=source,
            workers=max(workers, self.least),
            workers_source=workers_source,
            least=self.least,
            start_s=self._start_s,
            batches_left=batches_left,
        )

    def _cap(self) -> tuple[int, str]:
        """The most workers for reasons other than CPUs; read anew every few seconds."""
        now = time.perf_counter()
        if now - self._caps_read_at >= _FACTS_KEPT_S:
            self._caps, self._caps_read_at = self._read_caps(), now
        slots = self._room.slots
        by_room = (slots - 1, f"the memory for batches ({self._room.source}): {slots} fit")
        return min(self._caps, by_room)

    def _read_caps(self) -> tuple[int, str]:
        machine = _WORKERS_PER_CPU * int(self._share.cpus.value)
        own = min(max(machine, _FEWEST_CAP), _LARGEST_CAP)
        memory, limits = memory_facts().available_bytes, limit_facts()
        by_memory = self._workers + int(
            memory.value * _WORKER_MEMORY_SHARE / self._share.ranks.value // self._worker_bytes
        )
        caps = [(own, f"the loader's own limit for {self._share.cpus.value:g} CPUs")]
        caps.append((by_memory, f"memory: {memory.value / 1e9:.1f} GB are left ({memory.source})"))
        free = limits.descriptors_free
        if free is not None:
            spare = max(0, free - _DESCRIPTORS_LEFT_ALONE) // _DESCRIPTORS_A_WORKER
            caps.append((self._workers + spare, f"the limit of open files: {free} are left"))
        return min(caps)
