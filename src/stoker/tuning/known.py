"""What is known of a loader's work before anything was measured in this run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.tuning.decision import Bounds
from stoker.tuning.visits import Visit
from stoker.tuning.wording import number, workers

SAME_STEP = 1.2
"""Times by which the consumer's step may differ from the kept one."""
NO_STEP = 0.05
"""Share of the time between two batches below which a difference of the step is none."""


@dataclass(frozen=True)
class Known:
    """An answer that was kept for this data set on this machine.

    Attributes:
        workers: The number that was found best.
        when: The day, as "2026-12-01".
        batches_per_s: What the consumer got with it; above 0.
        step_s: The consumer's own time for a batch; None when not known.
        waiting: Share of the time that the consumer waited with it; None when not known.
        start_method: How the processes were started; empty when not known.
    """

    workers: int
    when: str
    batches_per_s: float
    step_s: float | None = None
    waiting: float | None = None
    start_method: str = ""

    def within(self, bounds: Bounds) -> int:
        """The number, as far as it is allowed now."""
        return max(bounds.least, min(self.workers, bounds.workers))

    def share(self, visit: Visit) -> float:
        """The measured rate, as a share of the one that was kept."""
        return visit.rate_per_s / self.batches_per_s

    def same_step(self, visit: Visit) -> bool:
        """Whether the consumer takes as long for a batch as it did then."""
        if self.step_s is None:
            return True
        shorter_s, longer_s = sorted((self.step_s, visit.away_each_s))
        little = (longer_s - shorter_s) * visit.rate_per_s < NO_STEP
        return little or longer_s < SAME_STEP * shorter_s

    def reason(self, bounds: Bounds) -> str:
        """Why a loader begins with as many workers as are allowed of those, in one sentence."""
        count = self.within(bounds)
        best = "that" if count == self.workers else str(self.workers)
        told = (
            f"{workers(count)} to begin with: `stoker tune` found {best} best for this data set "
            f"on this machine on {self.when}"
        )
        if count < self.workers:
            return f"{told}, and {bounds.workers_source} allows no more"
        return told if count == self.workers else f"{told}, and something needs {count}"

    def confirmed(self, visit: Visit) -> str:
        """Why the number stays, where it holds."""
        return (
            f"{workers(visit.workers)}: {number(visit.rate_per_s)} batches/s, and `stoker tune` "
            f"found {number(self.batches_per_s)} to be the best on {self.when}"
        )

    def contradicted(self, visit: Visit) -> str:
        """Why the number is found anew, where the rate is another."""
        return (
            f"{workers(visit.workers)} gave {number(visit.rate_per_s)} batches/s, not the "
            f"{number(self.batches_per_s)} that `stoker tune` found on {self.when}"
        )
