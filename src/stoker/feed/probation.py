"""How long workers may take for their first batch, where it is known how long one takes. Pure.

Stages, for the worker that is waited for::

    has its first batch --half of it--> a first look at it, to compare with
                        --the limit---> judged: stuck, or looked at again, and again
"""

from __future__ import annotations

from stoker.feed.patience import Stage
from stoker.feed.plight import Condition

LEAST_S = 10.0
_USUAL_FACTOR = 100.0
_AT_WORK_FACTOR = 6.0


class Probation:
    """See the module.

    Attributes:
        looked_at: When the worker was last looked at; infinite: it was not.
    """

    def __init__(self) -> None:
        self._pid: int | None = None
        self._since = self._next_at = 0.0
        self.looked_at = self.limit_s = float("inf")

    @property
    def first_look_s(self) -> float:
        """How long a wait lasts at least before anything is due."""
        return LEAST_S / 2

    def due(self, pid: int, since: float, now: float, usual_s: float) -> Stage:
        """What is due now: nothing, a look, or its end.

        Args:
            pid: The process id of the worker that is waited for.
            since: When it had its first batch.
            now: The present moment.
            usual_s: How long a batch takes in the main process.
        """
        self.limit_s = max(LEAST_S, _USUAL_FACTOR * usual_s)
        if (pid, since) != (self._pid, self._since):
            self._pid, self._since = pid, since
            self.looked_at, self._next_at = float("inf"), since + self.limit_s / 2
        if now < self._next_at:
            return Stage.NOTHING
        # A process that was stopped comes back to find it late: so no end without a look.
        stage = Stage.LOOK if self.looked_at > now else Stage.END
        self.look(now)
        return stage

    def look(self, now: float) -> None:
        """The worker is looked at now: what comes next is compared with this."""
        self.looked_at, self._next_at = now, now + self.limit_s / 2

    def is_over(self, condition: Condition, now: float) -> bool:
        """Whether a worker that was found so is given up.

        One that works may be at something that is made once, as an index that it reads first.
        One that was stopped, by a debugger or with its job, goes on some time.
        """
        if condition == "stopped":
            return False
        return condition == "stuck" or now - self._since >= _AT_WORK_FACTOR * self.limit_s

    def next_at(self) -> float:
        """When to ask again what is due."""
        return self._next_at
