"""Forked workers that have made nothing yet, where the main process has shown what they could.

A compiled library may wait in a forked copy for a thread that only the main process has, and
nobody knows of all such libraries. Where the number of workers is chosen, the main process has
made batches by itself. So when the worker that is waited for has made none for long enough, see
`probation`, all forked workers that have made none are killed, what they held is put back, and
the main process, or the workers that have shown that they work, make it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from textwrap import indent
from typing import Any, NamedTuple

from stoker.errors import ForkUnsafe
from stoker.feed.crew import Crew
from stoker.feed.dispatch import Dispatcher
from stoker.feed.excerpt import excerpt
from stoker.feed.meter import Meter
from stoker.feed.patience import Stage
from stoker.feed.plight import FRESH, Plight, diagnose, likely, seconds
from stoker.feed.probation import Probation
from stoker.workers.pulse import Pulse, pulse

_log = logging.getLogger("stoker")
_ANSWER_S = 1.0


class NothingMade(Exception):
    """Forked workers were given up, and others, or the main process, are to go on.

    Attributes:
        why: In words.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Held(NamedTuple):
    """What is going on, as far as it matters here.

    Attributes:
        crew: The workers.
        dispatcher: Who holds what.
        give_up: Kills workers, and puts back what they held; False where that may not be.
    """

    crew: Crew
    dispatcher: Dispatcher
    give_up: Callable[[Collection[int], str], bool]


class Unproven:
    """See the module.

    Args:
        meter: Knows how long a batch takes in the main process.

    Attributes:
        first_look_s: How long a wait lasts at least before `overdue` has anything to do.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._probation = Probation()
        self._first: Pulse | None = None
        self.first_look_s = self._probation.first_look_s

    def overdue(self, held: Held, now: float) -> float:
        """Looks at a wait that lasts; returns when to look again.

        Raises:
            NothingMade: Workers were given up.
        """
        found, totals = _awaited(held), self._meter.totals
        if found is None or not totals.loaded:
            return now + self.first_look_s
        worker, pid = found
        probation, since = self._probation, held.crew.men[worker].busy_since
        stage = probation.due(pid, since, now, totals.loading_s / totals.loaded)
        if stage is Stage.NOTHING:
            return probation.next_at()
        before, self._first = self._first, pulse(pid)
        if stage is Stage.END:
            between_s = probation.limit_s / 2
            condition, signs = diagnose(before, self._first, between_s, starting=False)
            if probation.is_over(condition, now):
                batch = held.dispatcher.running(worker)[0]
                stack, lost = _stack(held.crew, worker, pid), tuple(held.crew.threads)
                for_s = now - since
                plight = Plight(worker, pid, batch, None, for_s, condition, signs, stack, lost)
                self._give_up(plight, held, totals.loading_s / totals.loaded)
        return probation.next_at()

    def _give_up(self, plight: Plight, held: Held, usual_s: float) -> None:
        crew = held.crew
        given_up = [worker for worker, man in crew.men.items() if not man.batches]
        what = (
            f"Workers that were forked made no batch within {seconds(plight.for_s)}, and one takes "
            f"{seconds(usual_s)} in the main process"
        )
        why = what[:1].lower() + what[1:]
        if not held.give_up(given_up, why):
            return
        others = crew.staying
        goes_on = f"{others} other worker{'s go' if others > 1 else ' goes'}"
        goes_on = goes_on if others else "the main process goes"
        error = ForkUnsafe(
            f"{what}. They were ended, what they had begun is made again, and {goes_on} on; no "
            "other worker is forked for this loader",
            doing=f"waiting for batch {plight.batch}\n{indent(str(plight), '    ')}",
            likely=likely(plight),
            change=f"{FRESH}; or num_workers=0",
        )
        _log.warning("%s", error)
        self._meter.no_forks = why
        raise NothingMade(why)


def _awaited(held: Held) -> tuple[int, int] | None:
    """The worker that is waited for, and its process id, if it is a copy and has made nothing."""
    crew, running = held.crew, held.dispatcher.running
    busy = [worker for worker in crew.men if running(worker)]
    if held.dispatcher.in_order:
        head = held.dispatcher.head
        busy = [worker for worker in busy if head in running(worker)]
    if not busy or any(crew.men[each].batches or crew.men[each].starting for each in busy):
        return None
    worker = min(busy, key=lambda each: crew.men[each].busy_since)
    pid = crew.pid_of(worker)
    if pid is None or worker in crew.pool.deaths or not is_copy(crew.pool.process(worker)):
        return None
    return worker, pid


def is_copy(process: Any) -> bool:
    """Whether a worker was forked from this process."""
    return getattr(getattr(process, "_popen", None), "method", "") == "fork"


def _stack(crew: Crew, worker: int, pid: int) -> str:
    box = crew.pool.boxes[worker]
    if not box.request(pid):
        return ""
    return excerpt(box.answer(_ANSWER_S))
