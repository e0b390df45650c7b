"""How far a kept answer is followed: it says where to begin, and where to stay if it holds. Pure.

begins ──▶ measured with the known number ──▶ the rate and the step of then ──▶ stays
                │                   └──▶ near it, or fed ──▶ the usual search, from there
                └──▶ another rate ──▶ the usual search, from the main process
"""

from __future__ import annotations

from stoker.tuning import explained
from stoker.tuning.decision import Bounds
from stoker.tuning.known import Known
from stoker.tuning.model import keeping_busy
from stoker.tuning.seek import WORTH_STARTING, first_number, gain_with, pays
from stoker.tuning.seen import FED, Seen, Step
from stoker.tuning.settling import THREADS

CHEAP_S = 0.1
"""Starting a worker in less than that, as by a fork, needs no reckoning."""
LONG = 20.0
"""Times the start of all workers that an epoch must last for them to be started unreckoned."""
HOLDS, EXCEEDS = 0.95, 1.15
"""Shares of the kept rate between which a measured one is the same work: where it is lower,
another number may be best, and where it is higher it is other work."""
FAR = 0.2
"""A rate that is by so much more off than that is another."""
WINDOWS, MOST_WINDOWS = 4, 12
"""Windows before a number is believed, and those after which it no longer is."""
CROWDED = 3.0
"""Times the workers that the CPUs can serve, beyond which no search has ended."""
VAGUE = 0.06
"""Standard error of a rate from which on it agrees with another by chance."""
FIRST = 1
"""Changes after which the usual search knows more than the answer."""
BELIEVED_S = 60.0
"""Seconds after which a main process that was believed to do is looked at as any other."""


class Belief:
    """What a controller makes of a kept answer.

    Args:
        known: The answer; None where there is none, and nothing is ever believed.

    Attributes:
        holds: Whether the number stays because the answer holds.
        failed: Whether the last step leaves a number of which nothing is to be learnt.
    """

    def __init__(self, known: Known | None) -> None:
        self._known = known
        self._begun = False
        self.holds = False
        self.failed = False

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
        """A step to the known number, to stay there, or away from it; None: see `waits`."""
        known, self.failed = self._known, False
        if known is None:
            return None
        if not self._begun and known.workers > seen.here and seen.changes <= FIRST:
            return self._start(known, seen)
        if known.workers != seen.here or (seen.here and seen.visit.waiting <= FED):
            self.forget()  # It can't be had, or whether fewer would do shows at once.
        elif _is_far(known, seen):
            return self._away(known, seen)
        elif _is_near(known, seen) and not _is_odd(seen):
            self.holds = True
            figures = explained.figures(seen.visit)
            return Step(seen.here, known.confirmed(seen.visit), figures, final=True)
        elif seen.visit.count >= MOST_WINDOWS or _is_odd(seen):
            self.forget()
        return None

    def _away(self, known: Known, seen: Seen) -> Step | None:
        self.forget()
        self.failed = seen.here > seen.bounds.least
        reason, figures = known.contradicted(seen.visit), explained.figures(seen.visit)
        return Step(seen.bounds.least, reason, figures) if self.failed else None

    def waits(self, here: int) -> bool:
        """Whether the usual search has to wait: the known number is being measured."""
        return self._known is not None and not self.holds and self._known.workers == here

    def _start(self, known: Known, seen: Seen) -> Step | None:
        """Starts them where that pays, by the rate that was kept and the one that is seen."""
        count, gain = known.within(seen.bounds), 1 / known.share(seen.visit)
        if count > seen.here and gain >= WORTH_STARTING and pays(seen, count, gain):
            self._begun = True
            return _step(known, seen.bounds)
        return None


def _is_far(known: Known, seen: Seen) -> bool:
    """Whether each window shows another rate."""
    if seen.visit.count < (2 if seen.here else WINDOWS):
        return False
    shares = [window.rate_per_s / known.batches_per_s for window in seen.visit.windows]
    return max(shares) < HOLDS - FAR or min(shares) > EXCEEDS + FAR


def _is_odd(seen: Seen) -> bool:
    """Whether the closed form says that the number can't be the best."""
    if seen.here:
        return seen.here > CROWDED * keeping_busy(seen.bounds.cpus, seen.cpu)
    return seen.visit.count >= WINDOWS and gain_with(seen, first_number(seen)) > THREADS


def _is_near(known: Known, seen: Seen) -> bool:
    sure = seen.visit.count >= WINDOWS and seen.error(seen.visit) < VAGUE
    return sure and HOLDS < known.share(seen.visit) < EXCEEDS and known.same_step(seen.visit)


def _at_once(known: Known, bounds: Bounds) -> bool:
    """A fork costs next to nothing. For fresh interpreters the rest of the epoch must be long."""
    if bounds.start_s <= CHEAP_S or not known.workers:
        return True
    left_s = (bounds.batches_left or 0) / known.batches_per_s
    return left_s > LONG * bounds.start_s * known.workers


def _step(known: Known, bounds: Bounds) -> Step:
    figures = (
        ("workers_known", float(known.workers)),
        ("rate_known_per_s", known.batches_per_s),
    )
    return Step(known.within(bounds), known.reason(bounds), figures)
