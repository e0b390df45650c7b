"""Chooses the number of workers while a loader runs, from windows of what was seen. Pure.

    finding ──── a number is named and measured ────▶ settled
       ▲                                                 │
       └── the work, the step or the CPUs changed ◀──────┘

While finding, `seek` names the next number. Once settled, only three things move it: bounds,
evidence that fewer would do, and a change of the work that two windows in a row agree on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from stoker.feed.window import Window
from stoker.tuning import explained
from stoker.tuning.belief import Belief
from stoker.tuning.decision import Bounds, Decision
from stoker.tuning.known import Known
from stoker.tuning.seek import (
    AGAIN,
    FEWER,
    FEWER_S,
    FEWER_WINDOWS,
    fewer_would_do,
    first_number,
    gain_with,
    next_window,
    seek,
)
from stoker.tuning.seen import FED, PATIENCE, Seen, Step, inflated
from stoker.tuning.visits import COMPARED, Visit, measurable, other_work
from stoker.tuning.wording import workers

CPUS_CHANGED = 1.5
"""Times by which the CPUs must differ for the measured rates to be void."""
NOTABLY = 0.03
"""Share of the time by which a fed consumer must wait more than it may to be looked after."""
QUIET_S = 20.0
"""Seconds after settling before waiting alone starts another search; doubles with each."""
AGREEING = 3
"""Windows in a row that must show a consumer waiting that was fed."""
WORTH_AGAIN = 1.12
"""Predicted gain that starts another search from a main process that had settled."""
BASE_S = 5.0
"""Seconds of windows that say what is usual once settled."""
LATEST = 3
"""Windows that may show other work already, and so do not say what is usual yet."""


@dataclass
class _Settled:
    """What was usual when the search ended."""

    fed: bool
    base: Visit
    recent: deque[Window]
    seconds: float = 0.0


class Controller:
    """Chooses the number of workers of one loader.

    Feed it every clean window with `observe`; perform the decision; tell what came of it with
    `changed`. It keeps no clock: times are what windows last.

    Args:
        patience: Windows after which a rate is taken as it is.
        known: Where to begin; None where nothing is known of the work.
    """

    def __init__(self, patience: int = PATIENCE, known: Known | None = None) -> None:
        self._patience = patience
        self._belief = Belief(known)
        self._workers = 0
        self._visits: dict[int, Visit] = {}
        self._settled: _Settled | None = None
        self._final: Step | None = None
        self._spent_s = 0.0
        self._changes = 0
        self._cpus: float | None = None
        self._most: tuple[int, str] | None = None
        self._quiet_s = QUIET_S
        self._told: int | None = None
        self._floor = 0

    @property
    def settled(self) -> bool:
        """Whether the number is found; windows then only watch for changes."""
        return self._settled is not None

    @property
    def wanted(self) -> tuple[int, float]:
        """Batches and seconds that the next window should have at least."""
        batches, seconds = next_window(self._visits, self._workers)
        return batches, max(0.5, seconds) if self.settled else seconds

    def changed(self, count: int) -> None:
        """The loader now runs with this number, whether or not that was decided."""
        if count != self._workers:
            self._workers = count
            self._changes += 1
            self._settled = None
            self._told = None

    def begin(self, bounds: Bounds) -> Decision | None:
        """What to do at the first batch, before there is a window; None: nothing is known."""
        step = self._belief.first(self._workers, self._bounded(bounds))
        return self._decide(step) if step else None

    def cannot_exceed(self, count: int, why: str) -> None:
        """More workers than this cannot be had; `why` ends "the most that ... allows"."""
        if self._most is None or count < self._most[0]:
            self._most = (max(0, count), why)

    def observe(self, window: Window, bounds: Bounds) -> Decision | None:
        """What to do after a window.

        Args:
            window: A stretch in which nothing was changed.
            bounds: What may be used now.

        Returns:
            None to go on as before; a decision with another number to change to it; once after
            settling, a decision with the same number, which explains it.
        """
        bounds = self._bounded(bounds)
        self.changed(window.workers)
        if not bounds.least <= self._workers <= bounds.workers:
            return self._obey(bounds)
        if not measurable(window):
            return None
        self._take(window, bounds)
        if self._settled:
            return self._watch(self._settled, window, bounds)
        return self._find(bounds)

    def _bounded(self, bounds: Bounds) -> Bounds:
        """The bounds, with what could not be had."""
        if self._most is None or self._most[0] >= bounds.workers:
            return bounds
        most = max(bounds.least, self._most[0])
        return replace(bounds, workers=most, workers_source=self._most[1])

    def _obey(self, bounds: Bounds) -> Decision:
        """Back within the bounds, at once."""
        count = min(max(self._workers, bounds.least), bounds.workers)
        if count < self._workers:
            reason = f"{workers(count)} is the most that {bounds.workers_source} allows now"
        else:
            reason = f"something needs at least {workers(count)}"
        self._reopen(0)
        return self._decide(Step(count, reason, (("workers_allowed", float(count)),)))

    def _take(self, window: Window, bounds: Bounds) -> None:
        """Adds a window to what is known, and forgets what it shows to be past."""
        self._spent_s += window.seconds
        cpus = max(bounds.cpus, 0.01)
        if self._cpus is None or not 1 / CPUS_CHANGED < cpus / self._cpus < CPUS_CHANGED:
            if self._cpus is not None:
                self._belief.forget()
            self._cpus = cpus
            self._reopen(0)
        visit = self._visits.setdefault(self._workers, Visit(self._workers))
        visit.add(window)
        if self._workers == 0 and not self._settled:
            visit.forget_warming()
        if inflated(self._visits, visit, cpus):
            del self._visits[0]
        if other_work(self._settled.base if self._settled else None, list(visit.windows)):
            self._floor = 0
            self._belief.forget()
            self._reopen(2)

    def _reopen(self, keep: int) -> None:
        """Forgets the measured rates but for the last windows, and searches again."""
        visit = self._visits.get(self._workers)
        self._visits = {}
        self._settled = self._final = None
        self._changes = 0
        if visit and keep:
            last = list(visit.windows)[-keep:]
            self._visits[self._workers] = Visit.of(self._workers, last)

    def _find(self, bounds: Bounds) -> Decision | None:
        arrived = self._final
        if arrived is not None and arrived.workers == self._workers:
            self._told = self._workers  # by the decision that led here
            return self._settle(arrived)
        seen = Seen(
            self._visits,
            self._workers,
            bounds,
            self._spent_s,
            self._changes,
            self._floor,
            self._patience,
        )
        step = self._belief.step(seen)
        if self._belief.failed:
            self._visits = {}
        elif step is None and not self._belief.waits(self._workers):
            step = seek(seen)
        if step is None:
            return None
        self._final = step if step.final else None
        if step.workers == self._workers:
            return self._settle(step)
        if not step.final and not step.workers:
            self._visits.pop(step.workers, None)  # measured again since it was too short
        return self._decide(step)

    def _settle(self, step: Step) -> Decision | None:
        visit = self._visits[self._workers]
        base = Visit.of(self._workers, visit.windows)
        fed = self._workers > 0 and visit.waiting <= FED
        self._settled = _Settled(fed, base, deque(maxlen=8))
        self._final = None
        if self._told == self._workers:
            return None
        self._told = self._workers
        return self._decide(step)

    def _watch(self, settled: _Settled, window: Window, bounds: Bounds) -> Decision | None:
        """Settled: adds to what is usual, and looks whether fewer would do or more are needed."""
        settled.seconds += window.seconds
        settled.recent.append(window)
        if settled.seconds < BASE_S and len(settled.recent) > LATEST:
            settled.base.add(settled.recent[-1 - LATEST])
        recent = Visit.of(self._workers, settled.recent)
        if recent.count < FEWER_WINDOWS or recent.seconds < FEWER_S:
            return None
        if self._belief.holds and not self._workers:
            return self._look_after_all(settled, bounds)
        if self._needs_more(settled, recent, bounds):
            self._quiet_s *= 2
            self._floor = self._workers + 1 if self._workers else 0
            self._reopen(AGREEING)
            return self._find(bounds)
        return self._lower(recent, bounds) if settled.fed else None

    def _look_after_all(self, settled: _Settled, bounds: Bounds) -> Decision | None:
        """A main process that was believed to do is looked at as any other in the end."""
        if not self._belief.over(settled.seconds):
            return None
        self._belief.forget()
        self._reopen(COMPARED)
        return self._find(bounds)

    def _needs_more(self, settled: _Settled, recent: Visit, bounds: Bounds) -> bool:
        """Whether a consumer that was fed waits now, or workers are worth it that were not."""
        patient = settled.seconds > self._quiet_s
        last = list(settled.recent)[-AGREEING:]
        if self._workers == 0:
            each = (Visit.of(0, [window]) for window in last)
            gains = (self._predicted(visit, bounds) for visit in each)
            may = patient and bounds.workers > 0 and not any(self._visits)
            return may and min(gains) > WORTH_AGAIN
        soon = self._quiet_s == QUIET_S and recent.waiting > FED + 2 * NOTABLY
        agree = min(window.waiting for window in last) > FED
        return settled.fed and agree and recent.waiting > FED + NOTABLY and (patient or soon)

    def _predicted(self, visit: Visit, bounds: Bounds) -> float:
        """Rate with workers over that in the main process, by the closed form."""
        seen = Seen({0: visit}, 0, bounds, self._spent_s, 0)
        return gain_with(seen, first_number(seen))

    def _lower(self, recent: Visit, bounds: Bounds) -> Decision | None:
        """Fewer workers where those would feed the consumer and were not seen to fail at it."""
        failed = [n for n, visit in self._visits.items() if visit.waiting > FED]
        failed = [n for n in failed if 0 < n < self._workers]
        fewer = max(fewer_would_do(recent), bounds.least, max(failed, default=0) + 1, self._floor)
        quiet = self._settled is not None and self._settled.seconds < self._quiet_s
        least = AGAIN if self._floor else FEWER
        if recent.waiting > FED or fewer > least * self._workers or fewer >= self._workers or quiet:
            return None
        self._quiet_s *= 2
        return self._decide(Step(fewer, explained.fewer(recent, fewer), explained.figures(recent)))

    def _decide(self, step: Step) -> Decision:
        return Decision(self._workers, step.workers, step.reason, step.evidence)
