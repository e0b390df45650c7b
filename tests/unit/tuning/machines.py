"""Invented machines: what each number of workers would be measured to give."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker.tuning.answer import Parts, Rate
from stoker.tuning.recommend import CountSummary
from stoker.tuning.situation import Situation


@dataclass(frozen=True)
class Machine:
    """Times in seconds for a batch.

    Attributes:
        cpus: CPUs.
        computing_s: Making a batch: on a CPU.
        off_cpu_s: Making a batch: waiting, alone.
        step_s: The consumer's own step.
        handling_s: Receiving a batch in the main process.
        cap_per_s: Batches a second that the storage gives to all workers together.
        link_per_s: Batches a second that the way from workers to the main process takes.
        held_up: Share of its time that a worker stands idle, since an earlier batch is awaited.
    """

    cpus: float = 8
    computing_s: float = 0.02
    off_cpu_s: float = 0.0
    step_s: float = 0.005
    handling_s: float = 0.0002
    cap_per_s: float = math.inf
    link_per_s: float = math.inf
    held_up: float = 0.0

    @property
    def alone_s(self) -> float:
        return self.computing_s + max(self.off_cpu_s, 1 / self.cap_per_s)

    def per_s(self, workers: int) -> float:
        if workers == 0:
            return 1 / (self.step_s + self.alone_s)
        made = workers * (1 - self.held_up) / (self.computing_s + self.off_cpu_s)
        computed = self.cpus / (self.computing_s or 1e-9)
        used = 1 / (self.step_s + self.handling_s)
        return min(made, computed, used, self.cap_per_s, self.link_per_s)

    def parts(self, workers: int) -> Parts:
        per_s = self.per_s(workers)
        if workers == 0:
            off_s = self.alone_s - self.computing_s
            return Parts(0, self.step_s, 0, 0, self.alone_s, self.computing_s, off_s, 0)
        waited_s = max(0.0, 1 / per_s - self.step_s - self.handling_s)
        shared_s = workers / per_s - self.computing_s
        off_s = shared_s if per_s == self.cap_per_s else self.off_cpu_s
        computed = per_s == self.cpus / (self.computing_s or 1e-9)
        starved_s = max(0.0, shared_s - off_s) if computed else 0.0
        ordered_s = 0.8 * waited_s if self.held_up else 0.0
        return Parts(
            workers,
            self.step_s,
            waited_s,
            self.handling_s,
            0,
            self.computing_s,
            off_s,
            starved_s,
            ordered_s,
        )

    def rate(self, workers: int) -> Rate:
        per_s, parts = self.per_s(workers), self.parts(workers)
        return Rate(
            CountSummary(workers, per_s, per_s, 0.1, None, 0.01, 3, "steady", True),
            waiting=(parts.waited_s + parts.loading_s) * per_s,
            busy_workers=per_s * parts.service_s if workers else None,
            cpus_used=per_s * self.computing_s,
        )

    def situation(self, *tried: int, here: int, **more: object) -> Situation:
        given = {
            "rates": tuple(self.rate(workers) for workers in tried),
            "parts": self.parts(here),
            "cpus": self.cpus,
            "bound_per_s": 1 / self.step_s,
        }
        return Situation(**{**given, **more})  # type: ignore[arg-type]
