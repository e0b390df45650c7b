"""How far a kept answer is followed: it says where to begin, and for a while where to stay. Pure.

begins ──▶ the number is measured ──▶ it holds ──▶ stays, a minute ──▶ the usual search
                   └── it does not ──▶ the usual search, from that number on
"""

from __future__ import annotations

from stoker.tuning import explained
from stoker.tuning.decision import Bounds
from stoker.tuning.known import Known
from stoker.tuning.seek import WORTH_STARTING, gain_with, pays
from stoker.tuning.seen import FED, Seen, Step

CHEAP_S = 0.1
"""Starting a worker in less than that, as by a fork, needs no reckoning."""
LONG = 20.0
"""Times the start of all workers that an epoch must last for them to be started unreckoned."""
BELIEVED_S = 60.0
"""Seconds of windows after which a number that was believed is looked at as any other."""


class Belief:
    """What a controller makes of a kept answer.

    Args:
        known: The answer; None where there is none, and nothing is ever believed.

    Attributes:
        holds: Whether the number stays because the answer holds.
    """

    def __init__(self, known: Known | None) -> None:
        self._known = known
        self._begun = False
        self.holds = False

    @property
    def pending(self) -> bool:
        """Whether the known number is still to be measured."""
        return self._known is not None and not self.holds

    def forget(self) -> None:
        """The work is no longer what it was."""
        self._known = None
        self.holds = False

    def over(self, seconds: float) -> bool:
        """Whether it was believed for so long that the usual search is due."""
        return self.holds and seconds > BELIEVED_S

    def first(self, here: int, bounds: Bounds) -> Step | None:
        """A step before anything was measured, where starting workers needs no reckoning."""
        known = self._known
        if known is None or self._begun or not _at_once(known, bounds):
            return None
        self._begun = True
        return _step(known, bounds) if known.within(bounds) != here else None

    def step(self, seen: Seen) -> Step | None:
        """A step to the known number, or to stay there; None: measure on, or search.

        Which of the two `pending` tells afterwards.
        """
        known = self._known
        if known is None:
            return None
        if not self._begun and known.workers > seen.here:
            return self._start(known, seen)
        if known.workers != seen.here:
            self.forget()
            return None
        if seen.here and seen.visit.waiting <= FED:
            self.forget()  # Whether fewer would do shows at once.
            return None
        holds = known.holds(seen.visit)
        if holds is False:
            self.forget()
        elif holds:
            self.holds = True
            figures = explained.figures(seen.visit)
            return Step(seen.here, known.confirmed(seen.visit), figures, final=True)
        return None

    def _start(self, known: Known, seen: Seen) -> Step | None:
        """Starts them where that pays, by the rate that was kept and the one that is seen."""
        count, main_per_s = known.within(seen.bounds), seen.visit.rate_per_s
        kept = known.batches_per_s
        gain = kept / main_per_s if kept else gain_with(seen, max(1, count))
        if count > seen.here and gain >= WORTH_STARTING and pays(seen, count, gain):
            self._begun = True
            return _step(known, seen.bounds)
        return None

    def waits(self, seen: Seen) -> bool:
        """Whether the usual search has to wait: the known number is being measured."""
        known = self._known
        return self.pending and known is not None and known.workers == seen.here


def _at_once(known: Known, bounds: Bounds) -> bool:
    """A fork costs next to nothing. For fresh interpreters the rest of the epoch must be long."""
    if bounds.start_s <= CHEAP_S or not known.workers:
        return True
    if bounds.batches_left is None or not known.batches_per_s:
        return False
    left_s = bounds.batches_left / known.batches_per_s
    return left_s > LONG * bounds.start_s * known.workers


def _step(known: Known, bounds: Bounds) -> Step:
    figures = (
        ("workers_known", float(known.workers)),
        ("rate_known_per_s", known.batches_per_s or 0.0),
    )
    return Step(known.within(bounds), known.reason(bounds), figures)
