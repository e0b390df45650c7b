"""What is done about a batch that does not come: telling, giving up, trying again.

Runs in the consumer's thread while it waits, so no thread is needed; a wait that ends in time
pays for one comparison.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any, Literal, Protocol

from stoker.errors import WaitTimeout, WorkerDied
from stoker.feed.crew import Crew
from stoker.feed.dispatch import Dispatcher
from stoker.feed.excerpt import excerpt
from stoker.feed.faults import WaitedFor, late_batch, timed_out
from stoker.feed.meter import Meter
from stoker.feed.patience import Patience, Stage
from stoker.feed.plight import Plight, diagnose
from stoker.feed.unproven import Held, NothingMade, Unproven, is_copy
from stoker.order.epoch import Task
from stoker.workers.pulse import Pulse, pulse

__all__ = ["NothingMade", "OnTimeout", "Scene", "Vigil"]
_log = logging.getLogger("stoker")

OnTimeout = Literal["raise", "retry", "skip"]

START_S = 60.0
"""How long a worker may take to come up before it counts as hung; at least the time-out."""
_ANSWER_S = 1.0
_TRIES = 2
_NOT_OF_A_STREAM = "a batch of an iterable data set can't be left out, as its iterator hangs"


class Replace(Protocol):
    """Kills a worker and has another take its place; see `Feed.replace`."""

    def __call__(self, worker: int, why: str, batch: int, *, leave_out: bool) -> bool:
        """Tells whether the worker had not made the batch."""
        ...


@dataclass(frozen=True)
class Scene:
    """What is going on.

    Attributes:
        crew: The workers.
        dispatcher: Who holds what.
        tasks: What is to be made, by number.
        replace: Replaces a worker.
        give_up: Kills workers that nobody replaces; see `Unproven`.
    """

    crew: Crew
    dispatcher: Dispatcher
    tasks: Mapping[int, Task]
    replace: Replace
    give_up: Callable[[Collection[int], str], bool]


@dataclass
class _Look:
    """The workers' signs of life at one moment, by process id."""

    at: float = 0.0
    pulses: dict[int, Pulse | None] = field(default_factory=dict)


class Vigil:
    """See the module.

    Args:
        timeout_s: How long a wait may last; 0 means for ever.
        on_timeout: What happens then: "raise" an error; "retry": the worker is replaced and its
            batch made again, once; "skip": the batch is left out.
        meter: Takes note of it.
        unproven: Looks after workers that have made nothing yet; or None.

    Attributes:
        replaces: Whether workers are replaced on a time-out.
        first_look_s: How long a wait lasts at least before `overdue` has anything to do.
    """

    def __init__(
        self,
        timeout_s: float,
        on_timeout: OnTimeout,
        meter: Meter,
        unproven: Unproven | None = None,
    ) -> None:
        self._patience = Patience(timeout_s)
        self._on_timeout = on_timeout
        self._meter = meter
        self.replaces = timeout_s > 0 and on_timeout != "raise"
        self._first = _Look()
        self._tried: dict[int, int] = {}
        self._unproven = unproven
        self.first_look_s = self._patience.first_look_s
        if unproven is not None:
            self.first_look_s = min(self.first_look_s, unproven.first_look_s)

    def begin_epoch(self) -> None:
        """Other batches from now on."""
        self._tried.clear()

    def overdue(self, asked: float, scene: Scene) -> float:
        """Looks at a wait that lasts, and does what is due about it.

        All that workers have sent is to be taken in before. May take a second, when workers are
        asked for stacks, and half a second for each that is replaced.

        Args:
            asked: When the batch was asked for, by `time.perf_counter`.
            scene: What is going on.

        Returns:
            When to look again.

        Raises:
            WaitTimeout: Nothing came in time, and nothing else can be done about it.
            NothingMade: Workers that have made nothing yet were given up.
        """
        now, again_at = time.perf_counter(), float("inf")
        if self._unproven is not None:
            again_at = self._unproven.overdue(
                Held(scene.crew, scene.dispatcher, scene.give_up), now
            )
        stage = self._patience.due(asked, now, _usual_s(scene.crew))
        if stage is Stage.LOOK:
            self._first = _Look(now, {pid: pulse(pid) for pid in _pids(scene).values()})
        elif stage is Stage.TELL:
            _log.warning("%s", self._late(now, scene))
        elif stage is Stage.END:
            self._end(now, scene)
            self._patience.begin_anew(time.perf_counter())
        return min(self._patience.next_at(), again_at)

    def _late(self, now: float, scene: Scene) -> str:
        waited_s, usual_s = self._patience.waited_s(now), _usual_s(scene.crew)
        return late_batch(waited_s, _awaited(scene), usual_s, self._plights(now, scene))

    def _end(self, now: float, scene: Scene) -> None:
        plights = self._plights(now, scene)
        if not self.replaces:
            raise self._error(scene, plights)
        blamed = self._blamed(scene, plights)
        starting = [p for p in blamed or plights if p.condition == "starting"]
        if starting and min(p.for_s for p in starting) < max(START_S, self._patience.timeout_s):
            return  # Another would have to start as well.
        if not blamed:
            raise self._error(scene, plights)
        for plight in blamed:
            if plight.for_s >= self._patience.timeout_s:
                self._give_up(plight, scene, plights)

    def _error(self, scene: Scene, plights: list[Plight], why: str = "") -> WaitTimeout:
        others = ["retry"] * (self._on_timeout != "retry")
        others += ["skip"] * (self._on_timeout != "skip" and not scene.dispatcher.sharded)
        told = " or ".join(map(repr, others))
        goes_on = f"on_timeout={told} goes on" if others else ""
        return timed_out(self._patience.timeout_s, _awaited(scene), plights, why, goes_on)

    def _blamed(self, scene: Scene, plights: list[Plight]) -> list[Plight]:
        """The workers that are waited for: one, or where any batch will do, all of them."""
        if scene.dispatcher.in_order:
            head = scene.dispatcher.head
            return [p for p in plights if head in scene.dispatcher.running(p.worker)]
        return [p for p in plights if p.batch is not None]

    def _give_up(self, plight: Plight, scene: Scene, plights: list[Plight]) -> None:
        batch, skip = plight.batch, self._on_timeout == "skip" and plight.condition != "starting"
        assert batch is not None
        if skip and scene.dispatcher.sharded:
            raise self._error(scene, plights, _NOT_OF_A_STREAM)
        self._tried[batch] = self._tried.get(batch, 0) + 1
        if not skip and self._tried[batch] >= _TRIES:
            raise self._error(scene, plights, f"batch {batch} was tried {_TRIES} times")
        why = f"it was at batch {batch} for longer than timeout="
        try:
            late = scene.replace(plight.worker, why, batch, leave_out=skip)
        except WorkerDied as died:
            why = "the worker that is waited for can't be replaced"
            raise self._error(scene, plights, why) from died
        if late:
            self._meter.gave_up(skipped=skip)
        then = "left out" if skip else "made again by another worker"
        _log.warning(
            "batch %d did not come within %s s (timeout=); it is %s (on_timeout=%r)\n%s",
            batch,
            self._patience.timeout_s,
            then if late else "there now, and its worker is replaced",
            self._on_timeout,
            indent(str(plight), "    "),
        )

    def _plights(self, now: float, scene: Scene) -> list[Plight]:
        """Of all workers but idle ones; the one that is waited for comes first."""
        pids = _pids(scene)
        pulses = {worker: pulse(pid) for worker, pid in pids.items()}
        stacks = _stacks(pids, scene.crew)
        found = [
            self._plight(worker, pid, now, pulses[worker], stacks.get(worker, ""), scene)
            for worker, pid in pids.items()
        ]
        head, running = _awaited(scene).batch, scene.dispatcher.running
        return sorted(found, key=lambda p: (head not in running(p.worker), -p.for_s))

    def _plight(
        self, worker: int, pid: int, now: float, after: Pulse | None, stack: str, scene: Scene
    ) -> Plight:
        man = scene.crew.men[worker]
        batch = next(iter(scene.dispatcher.running(worker)), None)
        before = self._first.pulses.get(pid)
        condition, signs = diagnose(before, after, now - self._first.at, starting=man.starting)
        task = None if batch is None or scene.dispatcher.sharded else scene.tasks.get(batch)
        indices = None if task is None else task.index
        for_s = now - man.busy_since
        copied = not man.batches and is_copy(scene.crew.pool.process(worker))
        lost = tuple(scene.crew.threads) if copied else None
        return Plight(worker, pid, batch, indices, for_s, condition, signs, stack, lost)


def _pids(scene: Scene) -> dict[int, int]:
    """Of the workers that hold something, or are starting, and live."""
    crew, running = scene.crew, scene.dispatcher.running
    held = (w for w, man in crew.men.items() if man.starting or running(w))
    living = (w for w in held if w not in crew.pool.deaths and crew.pool.process(w).is_alive())
    return {w: pid for w in living if (pid := crew.pid_of(w)) is not None}


def _awaited(scene: Scene) -> WaitedFor:
    dispatcher = scene.dispatcher
    if not dispatcher.in_order:
        return WaitedFor(None)
    return WaitedFor(dispatcher.head, dispatcher.is_pinned(dispatcher.head))


def _usual_s(crew: Crew) -> float | None:
    known = [man.service_s for man in crew.men.values() if man.service_s is not None]
    return max(known, default=None)


def _stacks(pids: Mapping[int, int], crew: Crew) -> dict[int, str]:
    """Asks all at once, so that those who can't answer cost one second together."""
    boxes: dict[int, Any] = crew.pool.boxes
    asked = [worker for worker, pid in pids.items() if boxes[worker].request(pid)]
    deadline = time.perf_counter() + _ANSWER_S
    return {
        worker: excerpt(boxes[worker].answer(deadline - time.perf_counter())) for worker in asked
    }
