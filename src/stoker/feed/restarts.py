"""How often a dead worker is replaced, and when what it was at is given up. Pure.

A worker that dies is replaced and what it held is made again. That must end where it does not
help: at a batch that kills every worker, in a worker that cannot even come up, and in a loader
whose workers die all the time.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

PERIOD_S = 3600.0
_WORKERS_A_BATCH = 2
_STARTS_IN_A_ROW = 10


class Restarts:
    """How many replacements a loader may have in any hour.

    Args:
        limit: That number; 0: a dead worker is an error.
        period_s: How long an hour is.

    Attributes:
        limit: As given.
        total: How many there were, however long ago.
    """

    def __init__(self, limit: int, period_s: float = PERIOD_S) -> None:
        self.limit = limit
        self.total = 0
        self._period_s = period_s
        self._taken: deque[float] = deque()

    def used(self, now_s: float) -> int:
        """How many there were within the hour that ends now."""
        while self._taken and now_s - self._taken[0] >= self._period_s:
            self._taken.popleft()
        return len(self._taken)

    def take(self, now_s: float) -> bool:
        """Whether there may be one more now; counts it then."""
        if self.used(now_s) >= self.limit:
            return False
        self._taken.append(now_s)
        self.total += 1
        return True


class Verdict(Enum):
    """Why a dead worker is not replaced."""

    BATCH = "this batch has ended two workers"
    START = "ten workers in a row ended before they had come up"
    SPENT = "max_restarts"
    UNBUILT = "it can't build what it is sent"


class Blame:
    """What dead workers were at; for one epoch after another.

    Args:
        restarts: The loader's.
    """

    def __init__(self, restarts: Restarts) -> None:
        self.restarts = restarts
        self._ended_at: dict[int, int] = {}
        self._starts = 0

    def begin_epoch(self) -> None:
        """Other batches from now on."""
        self._ended_at.clear()

    def came_up(self) -> None:
        """A worker has come up."""
        self._starts = 0

    def answered(self, number: int) -> None:
        """A batch was made after all, or is an error of the data set's."""
        self._ended_at.pop(number, None)

    @property
    def suspects(self) -> bool:
        """Whether a batch that a worker died at has still to be made."""
        return bool(self._ended_at)

    def is_suspect(self, number: int) -> bool:
        """Whether a worker has died at this batch."""
        return number in self._ended_at

    def died(self, now_s: float, batch: int | None, *, starting: bool) -> Verdict | None:
        """A worker has died.

        Args:
            now_s: Of any clock that only goes forward.
            batch: The one it was making; None where it made none.
            starting: Whether it had not come up yet: then no batch is to blame.

        Returns:
            None where it is to be replaced; that is counted.
        """
        if starting:
            self._starts += 1
            if self._starts >= _STARTS_IN_A_ROW and self.restarts.limit:
                return Verdict.START
        elif batch is not None:
            self._ended_at[batch] = self._ended_at.get(batch, 0) + 1
            if self._ended_at[batch] >= _WORKERS_A_BATCH:
                return Verdict.BATCH
        return None if self.restarts.take(now_s) else Verdict.SPENT
