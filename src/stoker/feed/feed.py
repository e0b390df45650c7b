"""The one loop that waits on everything, performs the dispatcher's commands, hands out batches.

It runs in the consumer's thread, inside ``next``: no thread of ours exists unless batches
are pinned. While the consumer is away, workers go on with what they were sent.

Guarantees
    - An error of the data set, the collate function or the sampler is raised in place of the
      batch it belongs to, after the batches before it.
    - A worker that died while there was still something to make is an error within a
      second. After that, or a time-out, or Ctrl-C inside `next`, the workers are stopped.
    - Answers that belong to an earlier epoch (the consumer left in its middle) are dropped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from stoker.errors import WaitTimeout
from stoker.feed.crew import Crew
from stoker.feed.dispatch import BURST_S, Dispatcher, nap_s, queue_depth
from stoker.feed.faults import in_a_copy, timed_out, was_closed, worker_died
from stoker.feed.losses import Reported
from stoker.feed.meter import Meter
from stoker.feed.pinning import Pinned
from stoker.feed.room import Room
from stoker.order.broken import Damage
from stoker.order.epoch import EpochPlan, Task
from stoker.workers.messages import BeginEpoch, Failed, LeftOut, Made, ShardEnded, Started
from stoker.workers.process import Died
from stoker.workers.tolerance import LEFT_OUT


class _Raises:
    """Stands for a batch that could not be made; re-raised like torch's ExceptionWrapper."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def reraise(self) -> None:
        raise self._error


class Feed:
    """Batches of one epoch after another, from a pool of workers.

    Args:
        crew: The workers, none yet; the feed closes it.
        prefetch: Batches in advance per worker.
        in_order: Whether batches come by number.
        sharded: Whether the data set is iterable.
        timeout_s: How long `next` may wait for a batch; 0 means for ever.
        meter: Takes note of what happens.
        room: How many bytes batches in flight may take.

    Attributes:
        crew: The workers.
        closed: Whether the workers have been stopped.
        on_second_try: Called with a task and the answer of a worker that has never read a
            sample, where that is an error or has no sample that could be read; makes the batch,
            or `LEFT_OUT`, in another way, or raises. Tells what is broken in it as well.
    """

    def __init__(
        self,
        crew: Crew,
        *,
        prefetch: int,
        in_order: bool,
        sharded: bool,
        timeout_s: float,
        meter: Meter,
        room: Room,
    ) -> None:
        self.crew = crew
        self._pool = crew.pool
        self._prefetch = prefetch
        self._in_order = in_order
        self._sharded = sharded
        self._timeout_s = timeout_s
        self._meter = meter
        self._room = room
        self.closed = False
        self.on_second_try: Callable[[Task, Any], tuple[Any, Damage | None]] | None = None
        self._reported = Reported()
        self._owner_pid = os.getpid()
        self._epoch = -1
        self._waited_at = -BURST_S
        self._waited_s = 0.0
        self._answers: dict[int, Any] = {}
        self._fault: BaseException | None = None

    def begin_epoch(self, plan: EpochPlan, message: BeginEpoch, first: int = 0) -> None:
        """Starts an epoch; what is left of the one before is dropped.

        Args:
            plan: Its batches.
            message: What workers were, or are to be, told of it.
            first: The number of the first batch that is to be made here.
        """
        for death in self._pool.deaths.values():  # It had no work left when it died.
            self.close()
            raise worker_died(death, None, self._sharded)
        if self._epoch >= 0:
            self._pool.begin_epoch(message)
        self._drop_all()
        self._epoch = message.epoch
        self._plan = plan
        self._waited_at = -BURST_S
        self._tasks: dict[int, Task] = {}
        self._dispatcher = Dispatcher(
            0, self._prefetch, in_order=self._in_order, sharded=self._sharded
        )
        if first:
            self._dispatcher.skip(first - 1)
        self.crew.serve(self._dispatcher)
        self._assign()

    @property
    def processes(self) -> list[Any]:
        """The process objects of the workers there are; always the same list."""
        return self._pool.processes

    @property
    def serving(self) -> int:
        """Workers that make batches now."""
        return self._dispatcher.serving

    @property
    def in_flight(self) -> int:
        """Batches that are being made, or are ready."""
        return self._dispatcher.in_flight

    @property
    def slot_bytes(self) -> int:
        """Memory of all slots."""
        return self._pool.slot_bytes

    @property
    def assigned_so_far(self) -> int:
        """The number after the last one that was given to a worker, or skipped."""
        return self._dispatcher.assigned_so_far

    @property
    def has_losses(self) -> bool:
        """Whether a worker died that had nothing to do."""
        return bool(self._pool.deaths)

    def check(self) -> None:
        """Raises `IteratorStopped` in a forked copy, and after the workers were stopped."""
        if os.getpid() != self._owner_pid:
            raise in_a_copy(self._owner_pid)
        if self.closed:
            raise was_closed()

    @property
    def is_stranded(self) -> bool:
        """Whether only the caller can make the next batch."""
        return self._dispatcher.is_stranded

    def take_over(self) -> Task | None:
        """The next task, to be made by the caller; while nothing is in flight, or stranded.

        Workers that have come up since are given those after it.

        Raises:
            Exception: What the sampler raised.
        """
        self.check()
        if self._pool.processes:
            try:
                self._look()
            except BaseException:
                self.close()
                raise
            self.crew.dismiss()
        number = self._dispatcher.next_to_put_in
        task = self._tasks.pop(number, None) or self._plan.next()
        if task is not None:
            self._dispatcher.skip(task.number)
            self._assign()
        return task

    def next(self) -> Any:
        """The next batch; `LEFT_OUT` in place of one that nothing could be read of.

        Raises:
            StopIteration: The epoch is over.
            WorkerDied: A worker is dead.
            WaitTimeout: Nothing came in time.
            TooManyErrors: More samples could not be read than may be let pass.
            Exception: What the data set, collate function or sampler raised for this batch.
        """
        entered = time.perf_counter()
        self._meter.entered(entered)
        try:
            number = self._wait_for_batch(entered)
        except StopIteration:
            raise
        except BaseException:
            if os.getpid() == self._owner_pid:
                self.close()
            raise
        answer = self._answers.pop(number)
        self._dispatcher.delivered(number)
        batch = self._open(answer, self._tasks.pop(number, None))
        if self._reported and (damage := self._reported.take(number)):
            self._meter.lost(number, damage, left_out=batch is LEFT_OUT)
        self._assign()
        told = self._meter.left_out if batch is LEFT_OUT else self._meter.delivered
        told(entered, time.perf_counter(), self._waited_s)
        return batch

    def _wait_for_batch(self, entered: float) -> int:
        if os.getpid() != self._owner_pid:
            raise in_a_copy(self._owner_pid)
        if self.closed:
            raise StopIteration if self._dispatcher.done() else was_closed()
        self._waited_s = 0.0
        self._look()
        deadline = entered + self._timeout_s if self._timeout_s > 0 else None
        while (number := self._next_ready()) is None:
            began = time.perf_counter()
            left_s = None if deadline is None else deadline - began
            if left_s is not None and left_s <= 0:
                raise self._timed_out()
            out_of_turn = bool(self._answers)
            time.sleep(nap_s(self._held()))
            self._handle(self._pool.wait(left_s))
            slept_s = time.perf_counter() - began
            self._waited_s += slept_s
            if out_of_turn:
                self._meter.totals.order_s += slept_s
        return number

    def _next_ready(self) -> int | None:
        """The number to hand out now; None while something is under way that is waited for.

        Assigning may show that there is nothing left, or put an error in place of a batch: then
        there is nothing to wait for.
        """
        number = self._dispatcher.deliverable()
        if number is None and not self._dispatcher.done():
            self._waited_at = time.perf_counter()
            self._assign()
            number = self._dispatcher.deliverable()
        if number is None and self._dispatcher.done():
            raise StopIteration
        return number

    def _look(self) -> None:
        """Takes in what has come; raises what went wrong while nobody was asking."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        self._handle(self._pool.wait(0))

    def _look_for_nobody(self) -> None:
        """Takes in what has come; what goes wrong is for whoever asks for the next batch."""
        try:
            self._handle(self._pool.wait(0))
        except Exception as error:
            self._fault = self._fault or error

    def _open(self, answer: Any, task: Task | None) -> Any:
        if isinstance(answer, tuple):
            worker, message = answer
            man = self.crew.men.get(worker)
            if not isinstance(message, Made) or (message.damage and message.damage.is_whole):
                if self.on_second_try and task and man is not None and not man.sound:
                    self._drop(answer)
                    batch, damage = self.on_second_try(task, message)
                    self._reported.note(task.number, damage)
                    return batch
                if isinstance(message, LeftOut):
                    return LEFT_OUT
            if isinstance(message, Failed):
                message.error.reraise()
            self._room.learn(self._pool.largest_bytes)
            copy = self._room.is_scarce and self._pool.lent >= self._room.lent_limit
            return self._pool.open(worker, message.shipment, copy=copy)
        if hasattr(answer, "reraise"):
            answer.reraise()
        return answer.batch

    def _assign(self) -> None:
        """Sends workers all they may have now."""
        waiting = time.perf_counter() - self._waited_at < BURST_S
        away_s = self._meter.away_s
        depths = {
            worker: self._prefetch
            if self._sharded
            else queue_depth(self._prefetch, away_s, man.service_s, waiting=waiting)
            for worker, man in self.crew.men.items()
        }
        self._room.learn(self._pool.largest_bytes)
        most = self._room.most_in_flight
        ahead_of_all = self._room.run_ahead_of_each * self._dispatcher.serving
        run_ahead = min(ahead_of_all, self._room.run_ahead)
        handfuls: dict[int, list[Task]] = {}
        while command := self._dispatcher.next_assignment(
            waiting=waiting,
            depths=self._within_room(depths) if self._room.is_scarce else depths,
            run_ahead=run_ahead,
            most=most,
        ):
            worker, number = command
            task = self._tasks.get(number) or self._planned(number)
            if task is None:
                break
            self._tasks[number] = task
            self._dispatcher.assigned(worker, number)
            if self._room.is_scarce:  # What is sent counts for the next.
                self._send(worker, [task])
            else:
                handfuls.setdefault(worker, []).append(task)
        for worker, tasks in handfuls.items():
            self._send(worker, tasks)
        for worker in self.crew.men:
            if not self._room.is_scarce or self._pool.slot_count <= self._room.slots:
                break
            self._pool.trim(worker, self._epoch, self._pool.slot_count - self._room.slots)
        self._meter.note_peaks(self._dispatcher.in_flight, self._pool.slot_bytes)

    def _send(self, worker: int, tasks: list[Task]) -> None:
        try:
            excess = self._pool.slot_count - self._room.slots if self._room.is_scarce else 0
            self._pool.make(worker, self._epoch, tasks, excess)
        except Exception as error:  # Indices that do not pickle.
            for task in tasks:
                self._dispatcher.finished(worker, task.number)
                self._answers[task.number] = _Raises(error)

    def _within_room(self, depths: dict[int, int]) -> dict[int, int]:
        """How many batches each worker may hold so that no more slots are made than fit."""
        dispatcher, pool = self._dispatcher, self._pool
        more = self._fits_another_slot()
        if not more and dispatcher.is_still:
            turn = dispatcher.whose_turn()
            if not any(pool.free_slots(worker) for worker in (depths if turn is None else [turn])):
                # What others have is given back, and one batch at a time goes on in any case.
                self._empty_slots()
                more = True
        return {
            worker: min(depth, len(dispatcher.running(worker)) + max(more, pool.free_slots(worker)))
            for worker, depth in depths.items()
        }

    def _fits_another_slot(self) -> bool:
        return self._pool.slot_count + self._pool.slots_to_come < self._room.slots

    def _held(self) -> Iterator[tuple[int, float | None]]:
        for worker, man in self.crew.men.items():
            held = len(self._dispatcher.running(worker))
            yield min(held, self._pool.unread_answers(worker)), man.service_s

    def _planned(self, number: int) -> Task | None:
        try:
            task = self._plan.next()
            if task is None:
                self._dispatcher.exhausted()
                return None
            return task._replace(number=number)
        except Exception as error:
            self._answers[self._dispatcher.failed_to_plan()] = _Raises(error)
            return None

    def _handle(self, events: list[tuple[int, Any]]) -> None:
        for worker, message in events:
            if isinstance(message, Died):
                self._handle_death(worker, message)
            elif isinstance(message, Started):
                self.crew.came_up(worker, message)
            elif message is None:
                self._handle_pinned()
            elif message.epoch != self._epoch:
                self._drop((worker, message))
            else:
                self._handle_answer(worker, message)
        if events:
            self.crew.dismiss()

    def _handle_answer(self, worker: int, message: Any) -> None:
        if isinstance(message, ShardEnded):
            self._dispatcher.shard_ended(worker, message.number)
            return
        self._reported.note(message.number, getattr(message, "damage", None))
        if isinstance(message, Made):
            self.crew.has_made(worker, message)
            if self.crew.pinner is not None:
                self._dispatcher.made(worker, message.number)
                self.crew.pinner.submit(worker, message)
                return
        self._answers[message.number] = (worker, message)
        self._dispatcher.finished(worker, message.number)

    def _handle_pinned(self) -> None:
        assert self.crew.pinner is not None
        for pinned in self.crew.pinner.collect():
            if pinned.epoch == self._epoch:
                self._answers[pinned.number] = pinned
                self._dispatcher.finished(pinned.worker, pinned.number)

    def _drop(self, answer: Any) -> None:
        if isinstance(answer, tuple) and isinstance(answer[1], Made):
            self._pool.discard(answer[0], answer[1].shipment)

    def _drop_all(self) -> None:
        for answer in self._answers.values():
            self._drop(answer)
        self._answers = {}
        self._reported.clear()

    def _handle_death(self, worker: int, death: Died) -> None:
        man = self.crew.men.get(worker)
        if self.crew.lost_while_starting(worker, death):
            return
        if self._dispatcher.has_ended(worker):
            return
        held = self._dispatcher.running(worker)
        task = self._tasks.get(held[0]) if held else None
        starting = man is not None and man.service_s is None
        raise worker_died(death, task, self._sharded, starting=starting)

    def _timed_out(self) -> WaitTimeout:
        making = [
            (worker, self._pool.process(worker).pid, held[0])
            for worker in self.crew.men
            if (held := self._dispatcher.running(worker))
        ]
        return timed_out(self._timeout_s, self._dispatcher.head, making)

    def rest(self) -> None:
        """Gives back the memory of slots that hold nothing; workers keep nothing but themselves."""
        if self.closed or os.getpid() != self._owner_pid:
            return
        self._look_for_nobody()
        self._empty_slots()

    def _empty_slots(self) -> None:
        """Gives back the memory of unused slots, of workers that make nothing."""
        self._meter.note_peaks(self._dispatcher.in_flight, self._pool.slot_bytes)
        held: dict[int, set[int | None]] = {worker: set() for worker in self.crew.men}
        for answer in self._answers.values():
            if isinstance(answer, tuple) and isinstance(answer[1], Made):
                held[answer[0]].add(answer[1].shipment.slot)
        self.crew.dismiss()
        for worker in self.crew.men:
            if not self._pool.busy(worker) and not self._dispatcher.is_pinning(worker):
                self._pool.empty(worker, self._epoch, held[worker])

    def put_back(self) -> None:
        """Drops batches that are ready, to be made again when they are wanted; then `rest`.

        Those of an iterable data set stay: they cannot be made again.
        """
        if self._sharded or self.closed or os.getpid() != self._owner_pid:
            return
        self._look_for_nobody()
        for number, answer in list(self._answers.items()):
            made = isinstance(answer, tuple) and isinstance(answer[1], Made)
            if made or type(answer) is Pinned:
                self._drop(self._answers.pop(number))
                self._dispatcher.put_back(number)
        self.rest()
        for death in self._pool.deaths.values():  # It had nothing left to do; now it has.
            if not self._dispatcher.has_ended(-1):
                self._fault = self._fault or worker_died(death, None, self._sharded)

    def close(self) -> None:
        """Stops the workers, in less than a second. Batches handed out stay valid."""
        self.closed = True
        self.crew.close()
