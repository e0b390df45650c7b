"""The one loop that waits on everything, performs the dispatcher's commands, hands out batches.

It runs in the consumer's thread, inside ``next``: no thread of ours exists unless batches
are pinned. While the consumer is away, workers go on with what they were sent.

Guarantees
    - An error of the data set, the collate function or the sampler is raised in place of the
      batch it belongs to, after the batches before it.
    - A worker that died while there was still something to make is replaced, and its batches
      are made again; or it is an error within a second, see `replacing`. After that, or a
      time-out, or Ctrl-C inside `next`, the workers are stopped.
    - Answers that belong to an earlier epoch (the consumer left in its middle) are dropped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from stoker.errors import IteratorStopped
from stoker.feed.allotting import allotted
from stoker.feed.crew import Crew
from stoker.feed.dispatch import BURST_S, Dispatcher, nap_s, queue_depth
from stoker.feed.faults import in_a_copy, indices_not_sent, was_closed
from stoker.feed.meter import Meter
from stoker.feed.opening import Opening
from stoker.feed.pinning import Pinned
from stoker.feed.replacing import Opened, Raises, Replacing
from stoker.feed.restarts import Restarts
from stoker.feed.room import Room
from stoker.feed.vigil import NothingMade, Scene, Vigil
from stoker.order.epoch import EpochPlan, Task
from stoker.workers.death import Died
from stoker.workers.messages import BeginEpoch, Made, Repeated, Repeating, ShardEnded, Started, Told
from stoker.workers.tolerance import LEFT_OUT


class Feed:
    """Batches of one epoch after another, from a pool of workers.

    Args:
        crew: The workers, none yet; the feed closes it.
        prefetch: Batches in advance per worker.
        in_order: Whether batches come by number.
        sharded: Whether the data set is iterable.
        vigil: What is done about a batch that does not come.
        meter: Takes note of what happens.
        room: How many bytes batches in flight may take.
        restarts: How many workers that died may be replaced.
        likeness: Tells what workers that are started now are made from; None where it does not
            matter whether that has changed.

    Attributes:
        crew: The workers.
        closed: Whether the workers have been stopped.
        opening: Makes batches of answers.
    """

    def __init__(
        self,
        crew: Crew,
        *,
        prefetch: int,
        in_order: bool,
        sharded: bool,
        vigil: Vigil,
        meter: Meter,
        room: Room,
        restarts: Restarts,
        likeness: Callable[[], Any] | None = None,
    ) -> None:
        self.crew = crew
        self._pool = crew.pool
        self._prefetch = prefetch
        self._in_order = in_order
        self._sharded = sharded
        self._vigil = vigil
        self._meter = meter
        self._room = room
        made_of = likeness if restarts.limit or vigil.replaces else None
        self._replacing = Replacing(crew, restarts, sharded=sharded, likeness=made_of)
        self.opening = Opening(crew, room, sharded=sharded)
        self.closed = False
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

        Raises:
            WorkerDied: A worker has died since, and may not be replaced.
        """
        if self._epoch >= 0:
            self._pool.begin_epoch(message)
        self._drop_all()
        self._vigil.begin_epoch()
        self._epoch = message.epoch
        self._plan = plan
        self._waited_at = -BURST_S
        self._tasks: dict[int, Task] = {}
        self._dispatcher = Dispatcher(
            0, self._prefetch, in_order=self._in_order, sharded=self._sharded
        )
        if first:
            self._dispatcher.skip(first - 1)
        try:
            self._take_in(self._pool.wait(0))  # Who has died meanwhile is given no work.
            self._replacing.begin_epoch(message, self._dispatcher, self._tasks)
        except BaseException:
            self.close()
            raise
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
    def restarted(self) -> int:
        """How many workers were started in place of others so far."""
        return self._replacing.started

    @property
    def has_suspects(self) -> bool:
        """Whether a batch is to be made at which a worker has died: in a worker, and not here."""
        return self._replacing.blame.suspects

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
        """The next batch; `LEFT_OUT` in place of one that nobody is to get.

        Raises:
            StopIteration: The epoch is over.
            WorkerDied: A worker is dead and may not be replaced.
            WaitTimeout: Nothing came in time.
            NothingMade: Workers were given up; what they held is for others, or the caller.
            TooManyErrors: More samples could not be read than may be let pass.
            Exception: What the data set, collate function or sampler raised for this batch.
        """
        entered = time.perf_counter()
        self._meter.entered(entered)
        self._waited_s = 0.0
        try:
            number = self._wait_for_batch(entered)
        except StopIteration:
            raise
        except BaseException as error:
            if isinstance(error, IteratorStopped) and self._dispatcher.done():
                raise StopIteration from None  # Another thread took the last batch meanwhile.
            if os.getpid() == self._owner_pid:
                self._meter.failed(self._waited_s)
                if not isinstance(error, NothingMade):
                    self.close()
            raise
        answer = self._answers.pop(number)
        self._dispatcher.delivered(number)
        batch = self.opening.open(answer, self._tasks.pop(number, None))
        if self.opening.reported and (damage := self.opening.reported.take(number)):
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
        self._look()
        look_at = entered + self._vigil.first_look_s
        while (number := self._next_ready()) is None:
            began = time.perf_counter()
            if began >= look_at:
                events = self._pool.wait(0)
                self._handle(events)
                if not events:
                    look_at = self._overdue(entered)
                continue
            out_of_turn, coming_up = bool(self._answers), self.crew.is_still_to_come_up
            time.sleep(nap_s(self._held()))
            self._handle(self._pool.wait(look_at - began))
            slept_s = time.perf_counter() - began
            self._waited_s += slept_s
            self._meter.slept(slept_s, out_of_turn=out_of_turn, coming_up=coming_up)
        return number

    def _overdue(self, asked: float) -> float:
        """Has something done about a batch that does not come; returns when to look again."""
        scene = Scene(self.crew, self._dispatcher, self._tasks, self.replace, self._give_up)
        # What a worker makes a second time takes its time.
        return self._vigil.overdue(max(asked, self._replacing.repeating_at), scene)

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
        self._handle_deaths()
        self._handle(self._pool.wait(0))

    def _look_for_nobody(self) -> None:
        """Takes in what has come; errors, and deaths, are for whoever asks for the next batch."""
        try:
            self._take_in(self._pool.wait(0))
        except Exception as error:
            self._fault = self._fault or error

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
            depths=self._allotted(depths) if self._room.is_scarce else depths,
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
        if self._dispatcher.running(worker)[0] == tasks[0].number:
            self.crew.men[worker].busy_since = time.perf_counter()
        try:
            excess = self._pool.slot_count - self._room.slots if self._room.is_scarce else 0
            self._pool.make(worker, self._epoch, tasks, excess, self._replacing.careful(tasks))
        except Exception as error:  # Indices that do not pickle.
            if len(tasks) > 1:  # Of which of them?
                for task in tasks:
                    self._send(worker, [task])
                return
            self._dispatcher.finished(worker, tasks[0].number)
            self._answers[tasks[0].number] = Raises(indices_not_sent(tasks[0], error))

    def _allotted(self, depths: dict[int, int]) -> dict[int, int]:
        opened = sum(type(answer) is Opened for answer in self._answers.values())
        slots = self._room.slots - opened
        return allotted(depths, self._dispatcher, self._pool, slots, self._empty_slots)

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
            self._answers[self._dispatcher.failed_to_plan()] = Raises(error)
            return None

    def _handle(self, events: list[tuple[int, Any]]) -> None:
        self._take_in(events)
        if events:
            self._handle_deaths()
            self.crew.dismiss()

    def _take_in(self, events: list[tuple[int, Any]]) -> None:
        for worker, message in events:
            if isinstance(message, Died):  # In the pool's `deaths`; an answer may come after it.
                continue
            if isinstance(message, Started):
                self._replacing.blame.came_up()
                self.crew.came_up(worker, message)
            elif isinstance(message, Told):
                self.crew.told(worker, message)
            elif isinstance(message, (Repeating, Repeated)):
                self._replacing.repeats(worker, message)
            elif message is None:
                self._handle_pinned()
            elif message.epoch != self._epoch:
                self._drop((worker, message))
            else:
                self._handle_answer(worker, message)

    def _handle_answer(self, worker: int, message: Any) -> None:
        self._replacing.answered(worker, message)
        if isinstance(message, ShardEnded):
            self._dispatcher.shard_ended(worker, message.number)
            return
        self.crew.men[worker].busy_since = time.perf_counter()
        self.opening.reported.note(message.number, getattr(message, "damage", None))
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
        self.opening.reported.clear()

    def _handle_deaths(self) -> None:
        """Of workers that had something to make, or have now that another's is made again."""
        deaths, has_ended = self._pool.deaths, self._dispatcher.has_ended
        while (worker := next((each for each in deaths if not has_ended(each)), None)) is not None:
            self._replacing.lost(worker, deaths[worker], self._answers)

    def replace(
        self, worker: int, why: str, batch: int | None = None, *, leave_out: bool = False
    ) -> bool:
        """Kills a worker; another takes its place, and makes its batches again.

        Args:
            worker: Its number.
            why: Why, as a clause.
            batch: One that it is making; it may be done before it is killed.
            leave_out: Whether nobody is to get that batch.

        Returns:
            Whether it had not made the batch.

        Raises:
            WorkerDied: Another would not make the same batches.
        """
        self._take_in(self._pool.kill(worker, why))
        was_late = worker in self._pool.deaths and batch in self._dispatcher.running(worker)
        if batch is not None and was_late and leave_out:
            self._dispatcher.left_out(worker, batch)
            self._answers[batch] = LEFT_OUT
        self._handle_deaths()
        return was_late

    def _give_up(self, workers: Collection[int], why: str) -> bool:
        return self._replacing.give_up(workers, why, self._answers, self._take_in)

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
            if made or type(answer) in (Pinned, Opened):
                self._drop(self._answers.pop(number))
                self._dispatcher.put_back(number)
        self.rest()

    def close(self) -> None:
        """Stops the workers, in less than a second. Batches handed out stay valid."""
        self.closed = True
        self.crew.close()
