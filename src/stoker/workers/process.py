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
                +---------------------+-- killed, os._exit --> dead (reported once)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import process as multiprocessing_process
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pickle import PicklingError
from typing import Any, NamedTuple

from stoker.errors import ProgramUnguarded, TransportError
from stoker.host import rerun
from stoker.host.interrupts import undisturbed
from stoker.order.epoch import Task
from stoker.transport.arena import LentSlots, Shipment
from stoker.workers.accounting import FreeSlots
from stoker.workers.etiquette import look_around, quiet_fork
from stoker.workers.job import Job, run
from stoker.workers.messages import (
    BeginEpoch,
    Made,
    Make,
    Started,
    Stop,
    dumps,
    loads,
)
from stoker.workers.stopping import stop_all
from stoker.workers.waiting import Waiter

_UNREAD_LIMIT_BYTES = 4096
# A pipe holds more (Linux: 208 KiB, half of it overhead), but a worker should not wait for room.
_PIPE_BYTES = 32 * 1024
_LIVENESS_CHECK_S = 0.5

# torch's words, for the same misuse.
_PICKLE_WARNING = (
    "Got pickle error when attempting to start a worker Process. "
    "This might be because the worker Process arguments are not picklable. "
    "Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms "
    "to 'forkserver', which requires the worker Process arguments to be picklable. "
    "You can also try multiprocessing.set_start_method('fork')."
)


_WATCHED = -(1 << 30)


def _sentinel(worker: int) -> int:
    """The tag of a worker's sentinel; its pipe has the worker's number itself."""
    return -1 - worker


class Died(NamedTuple):
    """A worker ended unasked; `exitcode` as multiprocessing has it."""

    pid: int | None
    exitcode: int | None


@dataclass
class _Unread:
    """A message that its worker may not have read yet, and how many tasks of it are open."""

    data: bytes
    tasks: int
    size_bytes: int
    ended: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@contextlib.contextmanager
def _interrupts_held_back(context: Any) -> Iterator[None]:
    """Keeps Ctrl-C back while a process starts, and from it until it can ignore it.

    A new process begins with the signals blocked that its parent has blocked; `job.run`
    ignores SIGINT before it unblocks it. Here it is only late, not lost.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # multiprocessing's own helpers come first: one would keep the signal blocked for all it
    # ever starts, the other unblocks it when it has come up.
    if context.get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on every system

        forkserver.ensure_running()
    elif context.get_start_method() == "spawn":
        resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_EVERY_POOL: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """In a forked copy, multiprocessing would ask after the original's workers at exit."""
    children: Any = getattr(multiprocessing_process, "_children", set())
    for pool in list(_EVERY_POOL):
        children.difference_update(pool.processes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@dataclass
class _Member:
    """One worker, and what lies between it and the main process."""

    process: Any
    connection: Connection
    slots: LentSlots
    free: FreeSlots = field(default_factory=FreeSlots)
    unread: deque[_Unread] = field(default_factory=deque)
    outbox: deque[_Unread] = field(default_factory=deque)
    begin: bytes = b""
    leaving: bool = False
    answer_bytes: int = 1


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
        largest_bytes: The largest slot, or batch that came without one, so far.
    """

    def __init__(self, job: Job, context: Any, kept_limit: int, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._job = job
        self._context = context
        self.processes: list[Any] = []
        self._connections: list[Connection] = []
        self._waiter = Waiter()
        owned = self.processes, self._connections, self._waiter, os.getpid()
        self.close = weakref.finalize(self, undisturbed, stop_all, *owned)
        _EVERY_POOL.add(self)
        self._kept_limit = kept_limit
        self._members: dict[int, _Member] = {}
        self.deaths: dict[int, Died] = {}
        self.largest_bytes = 0
        if job.segments == "named" and os.name == "posix":
            resource_tracker.ensure_running()  # One for all: each worker would start its own.

    def add(self, count: int, first: BeginEpoch) -> list[int]:
        """Starts workers. Each tells with `Started` that it has come up.

        Args:
            count: How many.
            first: The epoch to begin with.

        Returns:
            Their numbers.

        Raises:
            ProgramUnguarded: Each would run the whole program again.
            Exception: What starting a process raises; those started by this call leave then.
        """
        free = (n for n in itertools.count() if n not in self._members)
        numbers = list(itertools.islice(free, count))
        told = len(self._members) + count
        job = replace(
            self._job,
            forked=self._context.get_start_method() != "spawn",
            num_workers=self._job.num_workers or told,
        )
        method = self._context.get_start_method()
        if method == "fork":
            look_around()
        elif rerun.would_run_again():
            raise ProgramUnguarded(
                what=f"no worker was started by {method}: {rerun.WHY}",
                doing=f"starting workers by {method}: {count} more",
                likely="processes that are started afresh import the program's main module",
                change=rerun.CHANGE,
            )
        try:
            for number in numbers:
                self._start(job, number, first)
        except BaseException:
            for number in self._members.keys() & numbers:
                self.retire(number)
            raise
        return numbers

    def _start(self, job: Job, worker: int, first: BeginEpoch) -> None:
        context = self._context
        ours, theirs = context.Pipe(duplex=True)
        method = context.get_start_method()
        inherited = [*self._connections, ours] if method == "fork" else []
        # The system can end a worker with the thread that started it, which must not be
        # sooner than the process.
        in_main_thread = threading.current_thread() is threading.main_thread()
        parent_pid = os.getpid() if in_main_thread and method != "forkserver" else None
        started = context.Process(
            target=run, args=(job, worker, theirs, inherited, first, parent_pid), daemon=True
        )
        try:
            with _interrupts_held_back(context), quiet_fork():
                started.start()
        except BaseException as error:
            ours.close()
            if isinstance(error, (TypeError, AttributeError, PicklingError)) and not self._quiet:
                warnings.warn(_PICKLE_WARNING, stacklevel=7)
            raise
        finally:
            theirs.close()
        self.processes.append(started)
        self._connections.append(ours)
        self._members[worker] = _Member(started, ours, LentSlots(self._kept_limit))
        self._waiter.add(ours, worker)
        self._waiter.add(started.sentinel, _sentinel(worker))

    def retire(self, worker: int) -> None:
        """Lets a worker end. It must hold no task, and no batch of it may be unopened."""
        member = self._members[worker]
        member.leaving = True
        self._post(member, _Unread(dumps(Stop()), 0, 0))

    def process(self, worker: int) -> Any:
        """The process object of a worker."""
        return self._members[worker].process

    @property
    def workers(self) -> list[int]:
        """The numbers of the workers that are not leaving."""
        return [number for number, member in self._members.items() if not member.leaving]

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

    def make(self, worker: int, epoch: int, tasks: Sequence[Task], excess: int = 0) -> None:
        """Sends tasks, now or when the worker has read what it was sent before.

        Args:
            worker: To whom.
            epoch: What they belong to.
            tasks: What to make.
            excess: How many slots there are too many, see `LentSlots.take_ended`.

        Raises:
            Exception: What pickle raises for indices it cannot carry; nothing is sent then.
        """
        member = self._members[worker]
        ended = member.slots.take_ended(excess)
        try:
            data = dumps(Make(epoch, tuple(tasks), *ended))
        except BaseException:
            member.slots.put_back(ended)
            raise
        member.free.sent(len(ended[0]), len(tasks))
        self._post(member, _Unread(data, len(tasks), len(data), ended))

    def _post(self, member: _Member, message: _Unread) -> None:
        member.outbox.append(message)
        self._flush(member)

    def _flush(self, member: _Member) -> None:
        outbox, unread = member.outbox, member.unread
        while outbox:
            size_bytes = outbox[0].size_bytes + len(member.begin)
            if unread and sum(u.size_bytes for u in unread) + size_bytes > _UNREAD_LIMIT_BYTES:
                return
            message = outbox.popleft()
            begin, member.begin = member.begin, b""
            if begin:
                self._write(member, begin)
            self._write(member, message.data)
            unread.append(_Unread(b"", message.tasks, size_bytes))

    def _answered(self, member: _Member) -> None:
        """A worker has answered a task, so it has read all messages before that one."""
        unread = member.unread
        while not unread[0].tasks:
            unread.popleft()
        unread[0].tasks -= 1
        if not unread[0].tasks:
            unread.popleft()
        self._flush(member)

    def _write(self, member: _Member, data: bytes) -> None:
        with contextlib.suppress(OSError):  # It is dead, which `wait` will tell.
            member.connection.send_bytes(data)

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
                tags = [_sentinel(n) for n, member in members if not member.process.is_alive()]
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
        events: list[tuple[int, Any]] = []
        try:
            if tag >= 0:
                return [self._receive(worker, member)]
            while member.connection.poll(0):
                events.append(self._receive(worker, member))
        except (EOFError, OSError):
            member.process.join(_LIVENESS_CHECK_S)
        if member.process.is_alive():
            return events
        self._waiter.remove(member.connection)
        self._waiter.remove(member.process.sentinel)
        if member.leaving:
            self._reap(worker)
            return events
        self.deaths[worker] = Died(member.process.pid, member.process.exitcode)
        return [*events, (worker, self.deaths[worker])]

    def bury(self, worker: int) -> None:
        """Forgets a worker that has died, as if it had never been."""
        del self.deaths[worker]
        self._reap(worker)

    def _reap(self, worker: int) -> None:
        member = self._members.pop(worker)
        self.processes.remove(member.process)
        self._connections.remove(member.connection)
        member.process.join()
        member.connection.close()
        member.slots.close()

    def _receive(self, worker: int, member: _Member) -> tuple[int, Any]:
        data = member.connection.recv_bytes()
        answer = loads(data)
        if isinstance(answer, Started):
            return worker, answer
        member.free.answered(answer.shipment if isinstance(answer, Made) else None)
        if isinstance(answer, Made):
            member.answer_bytes = len(data)
            self._accept(member, answer.shipment)
        self._answered(member)
        return worker, answer

    def _accept(self, member: _Member, shipment: Shipment) -> None:
        size_bytes = shipment.size_bytes
        if shipment.new is not None:
            try:
                member.slots.attach(shipment.new, member.connection)
            except TransportError:
                member.process.join(_LIVENESS_CHECK_S)
                if not member.process.is_alive():
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
