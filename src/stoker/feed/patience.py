"""How long a wait for a batch may last before somebody is told. Pure: times are arguments.

Stages of a wait::

    asked for --half of it--> a first look at the workers, to compare with
              --patience----> told, with each worker's stack; again at twice that, and so on
              --timeout-----> the end of it

A process that was stopped, or had no CPU, comes back to find its time-out over, and nobody to
blame. So no end without a look at its time, and a wait counts as half over when the look comes.
"""

from __future__ import annotations

from enum import Enum

LEAST_S = 30.0
FIRST_S = 60.0
"""Before any batch has been made: nobody knows how long one takes, and workers come up first."""
_USUAL_FACTOR = 10.0


class Stage(Enum):
    """What is due."""

    NOTHING = "nothing"
    LOOK = "look"
    TELL = "tell"
    END = "end"


class Patience:
    """The stages of one wait after another.

    Args:
        timeout_s: How long a wait may last; 0 means for ever.

    Attributes:
        timeout_s: As given.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._asked = float("-inf")
        self.begin_anew(self._asked)

    @property
    def first_look_s(self) -> float:
        """How long a wait lasts at least before anything is due."""
        return min(self.timeout_s or LEAST_S, LEAST_S) / 2

    def waited_s(self, now: float) -> float:
        """How long this wait has lasted, or has since it began anew."""
        return now - self._since

    def begin_anew(self, now: float) -> None:
        """Something was done about it: the wait counts from now."""
        self._since, self._looked = now, False
        self._end_at, self._next_at = float("inf"), now + self.first_look_s

    def due(self, asked: float, now: float, usual_s: float | None) -> Stage:
        """What is due now.

        Args:
            asked: When the batch was asked for: tells one wait from another.
            now: The present moment.
            usual_s: How long a batch takes; None when not known yet.
        """
        if asked != self._asked:
            self._asked = asked
            self.begin_anew(asked)
        if self._looked and now >= self._end_at:
            return Stage.END
        if now < self._next_at:
            return Stage.NOTHING
        if self._looked:
            self._next_at = now + self.waited_s(now)
            return Stage.TELL
        tell_after_s = _tell_after_s(usual_s)
        first_s = min(tell_after_s, self.timeout_s or tell_after_s) / 2
        if now < self._since + first_s:
            self._next_at = self._since + first_s
            return Stage.NOTHING
        self._looked = True
        self._since = now - first_s
        self._end_at = self._since + (self.timeout_s or float("inf"))
        self._next_at = self._since + tell_after_s
        return Stage.LOOK

    def next_at(self) -> float:
        """When to ask again what is due."""
        return min(self._next_at, self._end_at) if self._looked else self._next_at


def _tell_after_s(usual_s: float | None) -> float:
    return FIRST_S if usual_s is None else max(LEAST_S, _USUAL_FACTOR * usual_s)
