"""Workers that are processes, as the main process sees them.

Guarantees
    - Nothing is shared between workers: no queue, no lock, no semaphore. One duplex pipe
      each, so a killed worker can hold nothing that others need.
    - A worker's death is an event, like a batch: its sentinel is waited for together with
      the pipes. What it sent before it died is read first. Should its sentinel be held open
      by a process it started, it is found within half a second all the same.
    - The main process never blocks on sending: a worker is sent more than a few kilobytes
      only when it has nothing else to read, so it is reading. Workers send small messages.
    - `close` takes less than a second, see `stopping`, and does nothing in a forked copy.

States of a worker::

    add --> coming up --Started--> serving --retire--> leaving --> ended, number free again
                |                     |
                +---------------------+-- killed, os._exit --> dead (reported once) --bury--> gone
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from stoker.errors import TransportError
from stoker.host.interrupts import undisturbed
from stoker.order.epoch import Task
from stoker.transport.arena import LentSlots, Shipment
from stoker.transport.pipes import bound_waiting, never_wait
from stoker.transport.shm import prepare_workers
from stoker.workers.blackbox import BlackBox
from stoker.workers.building import Sealed
from stoker.workers.copies import EVERY_POOL
from stoker.workers.death import Died, await_end, died_as, has_ended, keep_peak
from stoker.workers.descriptors import File, files_here, positions
from stoker.workers.etiquette import look_around
from stoker.workers.forking import InsteadOfAFork, forked_all_the_same, safe_context
from stoker.workers.fresh import LOST, FreshContext
from stoker.workers.handles import look_for_handles
from stoker.workers.job import Job, run
from stoker.workers.lacking import what_lacks
from stoker.workers.member import Member, Unread
from stoker.workers.messages import (
    BeginEpoch,
    Made,
    Make,
    Repeat,
    Repeated,
    Repeating,
    Started,
    Stop,
    Told,
    Unbuildable,
    dumps,
    loads,
)
from stoker.workers.starting import starting
from stoker.workers.stopping import stop_all
from stoker.workers.telling import Wanted
from stoker.workers.unpicklable import cannot_be_sent_to
from stoker.workers.waiting import Waiter

# A pipe holds more (Linux: 208 KiB, half of it overhead), but a worker should not wait for room.
_PIPE_BYTES = 32 * 1024
_LIVENESS_CHECK_S = 0.5
_NO_ANSWERS = "it lived on and could answer no more: its pipe had ended, or a message in its middle"

_WATCHED = -(1 << 30)


def _sentinel(worker: int) -> int:
    """The tag of a worker's sentinel; its pipe has the worker's number itself."""
    return -1 - worker


class ProcessPool:
    """Worker processes; some may be added and others retired. For one thread of one process.

    Workers are numbered from 0; the number of one that has ended is given out again.

    Args:
        job: What the workers do.
        context: A multiprocessing context, or the torch.multiprocessing module.
        kept_limit: See `LentSlots`.
        quiet: Whether not to warn of what does not pickle.

    Attributes:
        processes: The process objects of the workers there are.
        deaths: Workers that ended unasked.
        boxes: What each worker writes its stacks into, until it is buried or the pool closed.
        largest_bytes: The largest slot, or batch that came without one, so far.
    """

    def __init__(self, job: Job, context: Any, kept_limit: int, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._job = job
        self._files: list[File] = []
        self._forks_all_the_same = False
        self._context = FreshContext() if isinstance(context, FreshContext) else context
        self.processes: list[Any] = []
        self._connections: list[Connection] = []
        self._waiter = Waiter()
        self.boxes: dict[int, BlackBox] = {}
        self._contexts: list[Any] = []
        lists = self.processes, self._connections, self._contexts
        owned = *lists, self._waiter, self.boxes, os.getpid()
        self.close = weakref.finalize(self, undisturbed, stop_all, *owned)
        EVERY_POOL.add(self)
        self._kept_limit = kept_limit
        self._members: dict[int, Member] = {}
        self.deaths: dict[int, Died] = {}
        self.largest_bytes = 0
        prepare_workers(job.segments)

    def add(self, count: int, first: BeginEpoch) -> list[int]:
        """Starts workers. Each tells with `Started` that it has come up.

        Args:
            count: How many.
            first: The epoch to begin with.

        Returns:
            Their numbers.

        Raises:
            ForkUnsafe: A copy of this process could not do it, and it was not asked for.
            ProgramUnguarded: Each would run the whole program again.
            Exception: What starting a process raises; those started by this call leave then.
        """
        free = (n for n in itertools.count() if n not in self._members)
        numbers = list(itertools.islice(free, count))
        try:
            self.start(numbers, first)
        except BaseException:
            for number in self._members.keys() & numbers:
                self.retire(number)
            raise
        return numbers

    def start(self, numbers: Sequence[int], first: BeginEpoch) -> None:
        """As `add`, with numbers that are free; some may have been started when it raises."""
        if not self._forks_all_the_same:
            self._context = safe_context(self._context, self._job, needed=not self._quiet)
        try:
            self._start_all(numbers, first)
        except Exception as error:
            forked = None if self._quiet else forked_all_the_same(self._context, error)
            if forked is None:
                raise
            self._context, self._forks_all_the_same = forked, True
            self._start_all([each for each in numbers if each not in self._members], first)
        if isinstance(self._context, InsteadOfAFork):
            self._context.tell()

    def _start_all(self, numbers: Sequence[int], first: BeginEpoch) -> None:
        if isinstance(self._context, FreshContext) and not self._contexts:
            self._contexts.append(self._context)
        told = len(self._members) + len(numbers)
        job = replace(
            self._job,
            forked=self._context.get_start_method() != "spawn",
            num_workers=self._job.num_workers or told,
            wanted=None if self._context.get_start_method() == "fork" else Wanted.here(),
        )
        if self._context.get_start_method() == "fork":
            look_around()
            look_for_handles(self._job)
            self._files = files_here()
        for number in numbers:
            try:
                self._start(job, number, first)
            except OSError as error:
                if lack := what_lacks(error, len(self._members)):
                    raise error from lack
                raise

    def _start(self, job: Job, worker: int, first: BeginEpoch) -> None:
        context = self._context
        ours, theirs = context.Pipe(duplex=True)
        bound_waiting(ours)
        method = context.get_start_method()
        box = BlackBox()
        others = [*self._connections, *self.boxes.values(), ours]
        inherited = others if method == "fork" else []
        # The system can end a worker with the thread that started it, which must not be
        # sooner than the process.
        in_main_thread = threading.current_thread() is threading.main_thread()
        parent_pid = os.getpid() if in_main_thread and method != "forkserver" else None
        started: Any = None
        try:
            sent: Any = job if method == "fresh" else Sealed(job)
            given: tuple[Any, ...] = (sent, worker, theirs, inherited, first, parent_pid, box)
            given += (positions(self._files),) if method == "fork" else ()
            started = context.Process(target=run, args=given, daemon=True)
            with starting(context):
                started.start()
                self._enlist(worker, started, ours, box)
        except BaseException as error:
            if worker in self._members:  # Ctrl-C came while it started: it ends like others.
                raise
            if started is not None and started.pid is not None:
                started.kill()
                started.join()
            ours.close()
            box.close()
            if isinstance(error, Exception) and method != "fork":
                cannot_be_sent_to(method, job, error, quiet=self._quiet)
            raise
        finally:
            theirs.close()

    def _enlist(self, worker: int, started: Any, ours: Connection, box: BlackBox) -> None:
        """From now on, `close` ends it, and `wait` tells of it."""
        keep_peak(started)
        self.processes.append(started)
        self._connections.append(ours)
        self.boxes[worker] = box
        self._members[worker] = Member(started, ours, LentSlots(self._kept_limit))
        self._waiter.add(ours, worker)
        self._waiter.add(started.sentinel, _sentinel(worker))

    def retire(self, worker: int) -> None:
        """Lets a worker end. It must hold no task, and no batch of it may be unopened."""
        member = self._members[worker]
        member.leaving = True
        member.post(Unread(dumps(Stop()), 0, 0))

    def process(self, worker: int) -> Any:
        """The process object of a worker."""
        return self._members[worker].process

    @property
    def workers(self) -> list[int]:
        """The numbers of the workers that are not leaving."""
        return [number for number, member in self._members.items() if not member.leaving]

    @property
    def start_method(self) -> str:
        """How workers are started: multiprocessing's name, or "fresh"."""
        method: str = self._context.get_start_method()
        return method

    @property
    def slot_bytes(self) -> int:
        """Memory of all slots."""
        return sum(member.slots.size_bytes for member in self._members.values())

    @property
    def slot_count(self) -> int:
        """How many slots there are."""
        return sum(member.slots.count for member in self._members.values())

    @property
    def lent(self) -> int:
        """How many slots the consumer sees a batch in."""
        return sum(member.slots.lent for member in self._members.values())

    @property
    def slots_to_come(self) -> int:
        """How many slots workers make for what they were sent."""
        return sum(sum(member.free.new) for member in self._members.values())

    def free_slots(self, worker: int) -> int:
        """How many further tasks a worker could be sent for which it needs no new slot."""
        member = self._members[worker]
        return member.free.count + member.slots.to_be_told

    def unread_answers(self, worker: int) -> int:
        """How many answers like its last one a worker can send while nobody reads them."""
        return _PIPE_BYTES // self._members[worker].answer_bytes

    def busy(self, worker: int) -> bool:
        """Whether a worker has yet to answer something, of this epoch or an earlier one."""
        member = self._members[worker]
        return bool(member.outbox) or any(message.tasks for message in member.unread)

    def begin_epoch(self, message: BeginEpoch) -> None:
        """Has workers told with their next tasks; tasks not sent yet are dropped."""
        data = dumps(message)
        for member in self._members.values():
            for message_not_sent in reversed(member.outbox):
                ended = message_not_sent.ended
                member.slots.put_back(ended)
                member.free.not_sent(len(ended[0]), message_not_sent.tasks)
            member.outbox.clear()
            member.begin = data

    def empty(self, worker: int, epoch: int, held: Collection[int | None]) -> None:
        """Gives back the memory of a worker that makes nothing; see `LentSlots.empty`."""
        member = self._members[worker]
        member.slots.empty(held)
        member.free.count = 0
        self.trim(worker, epoch, 0)

    def trim(self, worker: int, epoch: int, excess: int) -> None:
        """Tells a worker at once which slots are free, or to be given back.

        Args:
            worker: Whom.
            epoch: The present one.
            excess: How many slots there are too many, see `LentSlots.take_ended`.
        """
        member = self._members[worker]
        if member.slots.has_news and not member.outbox:
            self.make(worker, epoch, (), excess)

    def make(
        self,
        worker: int,
        epoch: int,
        tasks: Sequence[Task],
        excess: int = 0,
        careful: tuple[int, ...] = (),
    ) -> None:
        """Sends tasks, now or when the worker has read what it was sent before.

        Args:
            worker: To whom.
            epoch: What they belong to.
            tasks: What to make.
            excess: How many slots there are too many, see `LentSlots.take_ended`.
            careful: Of the tasks, the numbers of those at which a worker has died.

        Raises:
            Exception: What pickle raises for indices it cannot carry; nothing is sent then.
        """
        member = self._members[worker]
        ended = member.slots.take_ended(excess)
        try:
            data = dumps(Make(epoch, tuple(tasks), *ended, careful))
        except BaseException:
            member.slots.put_back(ended)
            raise
        member.free.sent(len(ended[0]), len(tasks))
        member.post(Unread(data, len(tasks), len(data), ended))

    def repeat(self, worker: int, message: Repeat) -> None:
        """Has a worker that was just started make again what a dead one had made."""
        self._members[worker].post(Unread(dumps(message), 0, 0))

    def wait(self, timeout_s: float | None) -> list[tuple[int, Any]]:
        """Blocks until something happened, or for `timeout_s` (None: for ever).

        Returns:
            Pairs of a worker and its message, or `Died`; empty after the time-out.

        Raises:
            TransportError: A new slot could not be attached.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            slice_s = _LIVENESS_CHECK_S
            if deadline is not None:
                slice_s = min(slice_s, max(0.0, deadline - time.monotonic()))
            tags = self._waiter.wait(slice_s)
            if not tags and slice_s == _LIVENESS_CHECK_S:
                members = self._members.items()
                tags = [_sentinel(n) for n, member in members if has_ended(member.process)]
            events = [event for tag in tags for event in self._read(tag)]
            if events or (deadline is not None and time.monotonic() >= deadline):
                return events

    def watch(self, connection: Connection) -> None:
        """Lets `wait` also return, with the pair (-1, None), when `connection` can be read."""
        self._waiter.add(connection, _WATCHED)

    def _read(self, tag: int) -> list[tuple[int, Any]]:
        """One message of a living worker; of a dead one, all that is left and its death."""
        if tag == _WATCHED:
            return [(-1, None)]
        worker = tag if tag >= 0 else _sentinel(tag)
        if worker in self.deaths or worker not in self._members:
            return []
        member = self._members[worker]
        if tag >= 0:
            try:
                return [self._receive(worker, member)]
            except (EOFError, OSError):
                # What follows, if anything, may be the rest of a message.
                return self._ended(worker, member, [])
        if not await_end(member.process, 0):
            return []
        return self._ended(worker, member, self._last_words(worker, member))

    def _last_words(self, worker: int, member: Member) -> list[tuple[int, Any]]:
        """What a dead worker had sent, up to where it was cut short."""
        never_wait(member.connection)
        events = []
        with contextlib.suppress(EOFError, OSError):
            while member.connection.poll(0):
                events.append(self._receive(worker, member))
        return events

    def _ended(
        self, worker: int, member: Member, events: list[tuple[int, Any]], why: str = ""
    ) -> list[tuple[int, Any]]:
        """Adds the death of a worker that is of no use any more; kills it if it still lives."""
        asked = bool(why)
        if not await_end(member.process, _LIVENESS_CHECK_S):
            member.process.kill()
            why = _NO_ANSWERS
            await_end(member.process, _LIVENESS_CHECK_S)
        if not why and getattr(member.process, "was_lost", False):
            why, asked = LOST, True  # No batch is to blame, and it is bounded: see `fresh`.
        self._waiter.remove(member.connection)
        self._waiter.remove(member.process.sentinel)
        if member.leaving:
            self._reap(worker)
            return events
        died = died_as(member.process, self.boxes[worker], why, asked=asked)
        self.deaths[worker] = died._replace(unbuildable=member.unbuildable)
        return [*events, (worker, self.deaths[worker])]

    def kill(self, worker: int, why: str) -> list[tuple[int, Any]]:
        """Ends a worker at once; takes half a second at most.

        Args:
            worker: Whom.
            why: What is told of its death, as a clause.

        Returns:
            What `wait` would: the answers it had sent, and its death.
        """
        if worker in self.deaths:
            return []
        member = self._members[worker]
        member.process.kill()
        await_end(member.process, _LIVENESS_CHECK_S)
        return self._ended(worker, member, self._last_words(worker, member), why)

    def bury(self, worker: int) -> None:
        """Forgets a worker that has died, as if it had never been.

        Its slots stay for as long as somebody holds them, see `slots_of`.
        """
        del self.deaths[worker]
        self._reap(worker)

    def slots_of(self, worker: int) -> LentSlots:
        """A worker's slots, to open batches in that it has made."""
        return self._members[worker].slots

    def _reap(self, worker: int) -> None:
        member = self._members.pop(worker)
        self.processes.remove(member.process)
        self._connections.remove(member.connection)
        member.process.join(_LIVENESS_CHECK_S)
        member.connection.close()
        self.boxes.pop(worker).close()

    def _receive(self, worker: int, member: Member) -> tuple[int, Any]:
        data = member.connection.recv_bytes()
        answer = loads(data)
        if isinstance(answer, Unbuildable):
            member.unbuildable = answer.error
            raise EOFError  # It says no more.
        if isinstance(answer, (Started, Told, Repeating, Repeated)):
            return worker, answer
        member.free.answered(answer.shipment if isinstance(answer, Made) else None)
        if isinstance(answer, Made):
            member.answer_bytes = len(data)
            self._accept(member, answer.shipment)
        member.answered()
        return worker, answer

    def _accept(self, member: Member, shipment: Shipment) -> None:
        size_bytes = shipment.size_bytes
        if shipment.new is not None:
            try:
                member.slots.attach(shipment.new, member.connection)
            except TransportError:
                if await_end(member.process, _LIVENESS_CHECK_S):
                    raise EOFError from None  # It died between the message and its descriptor.
                raise
            size_bytes = shipment.new.size_bytes
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        member.slots.retire(shipment.retired)

    def open(self, worker: int, shipment: Shipment, *, copy: bool = False) -> Any:
        """Builds the batch; see `LentSlots.open`."""
        return self._members[worker].slots.open(shipment, copy=copy)

    def discard(self, worker: int, shipment: Shipment) -> None:
        """Drops a batch that nobody wants."""
        self._members[worker].slots.discard(shipment)
