"""A worker has died: it is buried, its batches are made again, another takes its place.

What becomes of each batch of a dead worker::

    was to be made, or being made          --> made again, before anything new
    made, and waits for its turn           --> opened now: its memory stays with it
    made, and waits to be pinned           --> pinned as ever: the thread holds its memory
    message or descriptor cut short        --> never was: made again

Guarantees
    - A batch that is made again is the same: it depends on the data set, the seed, the epoch and
      its number. Where that can't be known, the death is an error: where the data set of the
      main process is not what it was when the workers were started, and where the iterator of an
      iterable data set does not repeat what it has yielded.
    - It ends: see `restarts`. No worker is started while nothing is left to make.
    - What a worker died at is never made in the main process. So a worker that was told to leave,
      as the last one, and died before it could, is replaced all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from stoker.feed.crew import Crew
from stoker.feed.dispatch import Dispatcher
from stoker.feed.not_built import not_built
from stoker.feed.obituary import Obituary
from stoker.feed.restarts import Blame, Restarts, Verdict
from stoker.host.shortage import Shortage, shortage
from stoker.order.epoch import Task
from stoker.workers.death import Died, has_ended
from stoker.workers.messages import (
    BeginEpoch,
    Failed,
    LeftOut,
    Made,
    Repeat,
    Repeated,
    Repeating,
    ShardEnded,
)
from stoker.workers.tolerance import LEFT_OUT

_log = logging.getLogger("stoker")


@dataclass
class Opened:
    """A batch that was opened before its turn, since its worker has died."""

    batch: Any


class Raises:
    """Stands for a batch that there can't be; re-raised like torch's ExceptionWrapper."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def reraise(self) -> None:
        """Raises why not."""
        raise self._error


@dataclass
class _Shard:
    """How far the iterator of one worker has come in this epoch, as its answers tell.

    Attributes:
        steps: Batches it has sent.
        digest: What they have come to.
        from_start: Whether one that begins with this epoch is sure to begin as it did.
        unchanged: Whether the data set was, at its end, what it had been at the start.
        died: Of the worker before, as long as this one repeats what that had made.
    """

    steps: int = 0
    digest: int = 0
    from_start: bool = True
    unchanged: bool = False
    died: Obituary | None = None


class Replacing:
    """See the module. Part of a feed.

    Args:
        crew: The workers.
        restarts: How many replacements the loader may have.
        sharded: Whether the data set is iterable.
        likeness: Tells what workers that are started now are made from; None where it does not
            matter whether that has changed.

    Attributes:
        blame: What dead workers were at.
        repeating_at: When a worker last told that it repeats what another had made, and goes on,
            as `time.perf_counter` counts.
        started: Workers that were started in place of others, for whatever reason.
    """

    def __init__(
        self, crew: Crew, restarts: Restarts, *, sharded: bool, likeness: Callable[[], Any] | None
    ) -> None:
        self._crew = crew
        self._pool = crew.pool
        self._sharded = sharded
        self._likeness = likeness
        self._made_of = likeness() if likeness else None
        self._before: Shortage = shortage()
        self._shards: dict[int, _Shard] = {}
        self._has_begun = False
        self._missing: set[int] = set()
        self._task: Task | None = None
        self.blame = Blame(restarts)
        self.repeating_at = 0.0
        self.started = 0

    def begin_epoch(
        self, message: BeginEpoch, dispatcher: Dispatcher, tasks: dict[int, Task]
    ) -> None:
        """Another epoch; workers that died since the one before are replaced.

        Raises:
            WorkerDied: One may not be.
        """
        self._message = message
        self._dispatcher = dispatcher
        self._tasks = tasks
        self.blame.begin_epoch()
        ended = {worker for worker, shard in self._shards.items() if shard.unchanged}
        self._shards = {
            worker: _Shard(from_start=worker in ended or not self._has_begun)
            for worker in (self._crew.men if self._sharded else ())
        }
        self._has_begun = True
        for worker, death in list(self._pool.deaths.items()):
            self.lost(worker, death, {})
        while self._missing and self._launch(self._missing.pop()) is None:
            pass  # Until one still can't be started.

    def answered(self, worker: int, message: Made | Failed | LeftOut | ShardEnded) -> None:
        """A worker has answered a task of this epoch."""
        if self.blame.suspects:
            self.blame.answered(message.number)
        if not self._sharded:
            return
        shard = self._shards.setdefault(worker, _Shard())
        if isinstance(message, ShardEnded):
            shard.unchanged = not message.changed
        else:
            shard.steps += 1
            shard.digest = message.digest

    def careful(self, tasks: list[Task]) -> tuple[int, ...]:
        """Of tasks that are sent now, the numbers of those at which a worker has died."""
        self._task = tasks[0]
        if not self.blame.suspects:
            return ()
        return tuple(task.number for task in tasks if self.blame.is_suspect(task.number))

    def lost(self, worker: int, death: Died, answers: dict[int, Any]) -> None:
        """A worker has died that had, or may have, something to make.

        Args:
            worker: Its number.
            death: How it ended.
            answers: What is ready, by number; batches of this worker's are opened.

        Raises:
            WorkerDied: It may not be replaced.
        """
        man = self._crew.men.get(worker)
        held = self._dispatcher.running(worker)
        if man is None or (man.leaving and not held):
            self._keep(worker, answers, may_retry=False)
            self._pool.bury(worker)
            self._crew.men.pop(worker, None)
            return
        if self._dispatcher.shard_is_over(worker):
            self._dispatcher.lost(worker)  # It is missed in the next epoch, if there is one.
            return
        at = None if man.starting or not held else self._begun(held[0], death)
        found = self._obituary(worker, death, held, starting=man.starting)
        verdict = self._verdict(death, at, starting=man.starting)
        if self._crew.patient and man.starting and self._can_do_without(death, verdict):
            self._crew.forget(worker, death)
            return
        if death.unbuildable is not None:
            raise not_built(death.pid, death.unbuildable)
        if verdict is not None:
            raise found.error(self._why_not(verdict))
        if why := self._cannot_be_same(worker):
            raise found.error(why, cause=found.likely)
        self._keep(worker, answers, may_retry=self._crew.patient and not man.batches)
        again = self._dispatcher.lost(worker)
        self._pool.bury(worker)
        if man.leaving and self._crew.staying:
            del self._crew.men[worker]
            self._warn(worker, found, len(again), "another makes them")
            return
        self._warn(worker, found, len(again), "another takes its place")
        self._start(worker, found)

    def give_up(
        self,
        workers: Collection[int],
        why: str,
        answers: dict[int, Any],
        take_in: Callable[[list[tuple[int, Any]]], None],
    ) -> bool:
        """Kills workers, and nobody takes their place: what they held is to be made by others.

        Args:
            workers: Their numbers.
            why: Why, as a clause.
            answers: As `lost` takes them.
            take_in: Takes in what they had sent before.

        Returns:
            False, and nothing is done, where a batch that a worker has died at is still to be
            made: that is done by a worker.
        """
        if self.blame.suspects:
            return False
        for worker in workers:
            if has_ended(self._pool.process(worker)):
                continue  # By itself, which is another matter.
            take_in(self._pool.kill(worker, why))
            self._crew.men[worker].leaving = True
            self._dispatcher.lost(worker)
            self.lost(worker, self._pool.deaths[worker], answers)
        return True

    def _begun(self, number: int, death: Died) -> int | None:
        """The batch, where a worker that held it has, or may have, begun with it."""
        careful = self.blame.is_suspect(number) and death.could_note
        noted = death.noted is not None and death.noted[0] == number
        return None if careful and not noted else number

    def _verdict(self, death: Died, at: int | None, *, starting: bool) -> Verdict | None:
        if death.asked:  # Who wants workers ended says himself how often.
            return None
        if death.unbuildable is not None:  # Another would fail in the same way.
            return Verdict.UNBUILT
        return self.blame.died(time.monotonic(), at, starting=starting)

    def _can_do_without(self, death: Died, verdict: Verdict | None) -> bool:
        """Whether the main process goes on without a worker that did not come up."""
        code, unbuilt = death.exitcode, verdict is Verdict.UNBUILT
        by_itself = unbuilt or (code is not None and code >= 0)
        return not self.blame.suspects and (verdict is not None or by_itself)

    def _obituary(
        self, worker: int, death: Died, held: tuple[int, ...], *, starting: bool
    ) -> Obituary:
        task = self._tasks.get(held[0]) if held else None
        growing = self._crew.growing
        history = growing.of(worker, death.pid)
        before = self._before
        return Obituary(
            death, task, self._sharded, starting, before, shortage(), history, growing.likely
        )

    def _why_not(self, verdict: Verdict) -> str:
        restarts = self.blame.restarts
        if verdict is not Verdict.SPENT:
            return str(verdict.value)
        if not restarts.limit:
            return ""
        return f"it is not replaced: max_restarts={restarts.limit} an hour are used up"

    def _cannot_be_same(self, worker: int) -> str:
        """Why another worker would not make the same batches; empty where it would."""
        if self._likeness is not None and self._likeness() != self._made_of:
            return (
                "it is not replaced: the data set, collate_fn or worker_init_fn has been changed "
                "in the main process since its workers were started"
            )
        shard = self._shards.get(worker)
        if shard is not None and not shard.steps and not shard.from_start:
            return (
                "it is not replaced: the data set may have kept something of the epoch before, "
                "which another worker has not seen"
            )
        return ""

    def _keep(self, worker: int, answers: dict[int, Any], *, may_retry: bool) -> None:
        """Takes what the dead worker has made out of its slots, or errors out of its hands.

        Args:
            worker: Its number.
            answers: What is ready, by number.
            may_retry: Whether what it failed at may need the main process: that is made again.
        """
        slots = self._pool.slots_of(worker)
        for number, answer in list(answers.items()):
            if not isinstance(answer, tuple) or answer[0] != worker:
                continue
            message = answer[1]
            if isinstance(message, Failed) and may_retry:
                del answers[number]
                self._dispatcher.put_back(number)
                continue
            if isinstance(message, (Failed, LeftOut)):
                answers[number] = message.error if isinstance(message, Failed) else LEFT_OUT
                continue
            try:
                answers[number] = Opened(slots.open(message.shipment))
            except Exception as error:
                answers[number] = Raises(error)

    def _start(self, worker: int, found: Obituary) -> None:
        """Has another worker take the place of one that was buried."""
        error = self._launch(worker)
        if error is not None:
            if self._sharded or not self._crew.staying:
                why = f"it is not replaced: another could not be started: {error!r}"
                raise found.error(why) from error
            # In words: a record that is kept would keep all that the error has been through.
            _log.warning("none could be started in its place, others go on: %s", repr(error))
            return
        shard = self._shards.get(worker)
        if shard is None:
            return
        shard.from_start = True
        if shard.steps and self._task is not None:
            shard.died, epoch = found, self._message.epoch
            self._pool.repeat(worker, Repeat(epoch, shard.steps, shard.digest, self._task))

    def _launch(self, worker: int) -> Exception | None:
        """Starts a worker; returns why that could not be."""
        self.started += 1
        try:
            self._crew.replace(worker, self._message, at_once=self._sharded)
        except Exception as error:
            self._crew.men.pop(worker, None)
            if not self._crew.patient:
                self._missing.add(worker)
            return error
        return None

    def repeats(self, worker: int, message: Repeating | Repeated) -> None:
        """A worker makes again what another had made, or has done so.

        Raises:
            WorkerDied: It was not the same.
        """
        self.repeating_at = time.perf_counter()
        shard = self._shards.get(worker)
        if shard is None or isinstance(message, Repeating) or message.epoch != self._message.epoch:
            return
        found, shard.died = shard.died, None
        if message.differs and found is not None:
            raise found.error(
                "it can't be replaced: the iterator of this data set does not repeat itself: "
                f"{message.differs}"
            )

    def _warn(self, worker: int, found: Obituary, again: int, how: str) -> None:
        if found.death.asked:
            return  # Who wanted it has told.
        restarts = self.blame.restarts
        batches = "no batch" if not again else f"{again} batch{'es' if again > 1 else ''}"
        _log.warning(
            "worker %d (pid %s) ended while %s: %s; %s, and %s made again (restart %d of %d "
            "within an hour); likely cause: %s",
            worker,
            found.death.pid,
            found.doing,
            found.how,
            how,
            f"{batches} {'are' if again > 1 else 'is'}",
            restarts.used(time.monotonic()),
            restarts.limit,
            found.likely,
        )
