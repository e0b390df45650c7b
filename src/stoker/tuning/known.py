"""What is known of a loader's work before anything was measured in this run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.tuning.decision import Bounds
from stoker.tuning.visits import Visit
from stoker.tuning.wording import number, workers

HOLDS, EXCEEDS = 0.96, 1.15
"""Shares of the kept rate between which a measured one is the same work: where it is lower,
another number may be best, and where it is higher it is other work."""
FAR = 0.2
"""A rate that is so much off, of two windows, is another."""
SAME_STEP = 1.2
"""Times by which the consumer's step may differ from the kept one."""
NO_STEP = 0.05
"""Share of the time between two batches below which a difference of the step is none."""
WINDOWS, MOST_WINDOWS = 4, 8
"""Windows before a number is believed, and those after which it no longer is."""


@dataclass(frozen=True)
class Known:
    """An answer that was kept for this data set on this machine.

    Attributes:
        workers: The number that was found best.
        when: The day, as "2026-12-01".
        batches_per_s: What the consumer got with it; None when not known.
        step_s: The consumer's own time for a batch; None when not known.
        waiting: Share of the time that the consumer waited with it; None when not known.
        start_method: How the processes were started; empty when not known.
    """

    workers: int
    when: str
    batches_per_s: float | None = None
    step_s: float | None = None
    waiting: float | None = None
    start_method: str = ""

    def within(self, bounds: Bounds) -> int:
        """The number, as far as it is allowed now."""
        return max(bounds.least, min(self.workers, bounds.workers))

    def holds(self, visit: Visit) -> bool | None:
        """Whether the work is what it was then, by its rate and step; None: too early to tell.

        Args:
            visit: What was measured with this number.
        """
        if not self.batches_per_s:
            return False
        if visit.count < 2:
            return None
        share = visit.rate_per_s / self.batches_per_s
        if not HOLDS - FAR < share < EXCEEDS + FAR or not self._same_step(visit):
            return False
        if visit.count < WINDOWS:
            return None
        return HOLDS < share < EXCEEDS or (None if visit.count < MOST_WINDOWS else False)

    def _same_step(self, visit: Visit) -> bool:
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
        kept = number(self.batches_per_s or 0.0)
        return (
            f"{workers(visit.workers)}: {number(visit.rate_per_s)} batches/s, and `stoker tune` "
            f"found {kept} to be the best on {self.when}"
        )
