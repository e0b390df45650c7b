"""Workers that are processes, as the main process sees them.

Guarantees
    - Nothing is shared between workers: no queue, no lock, no semaphore. One duplex pipe
      each, so a killed worker can hold nothing that others need.
    - A worker's death is an event, like a batch: its sentinel is waited for together with
      the pipes. What it sent before it died is read first. Should its sentinel be held open
      by a process it started, it is found within half a second all the same.
    - The main process never blocks on sending: a worker is sent more than a few kilobytes
      only when it has nothing else to read, so it is reading. Workers send small messages.
    - `close` takes less than a second: workers are asked to stop, then terminated, then
      killed, all at once and with one deadline. It does nothing in a forked copy.

States of a worker::

    started --> serving --Stop--> ended
                   |
                   +-- killed, os._exit --> dead (reported once)
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import process as multiprocessing_process
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pickle import PicklingError
from typing import Any, NamedTuple

from stoker.errors import TransportError
from stoker.order.epoch import Task
from stoker.transport.arena import LentSlots, Shipment
from stoker.transport.shm import discard
from stoker.workers.job import Job, run
from stoker.workers.messages import BeginEpoch, Made, Make, Stop, dumps, loads
from stoker.workers.waiting import Waiter

_UNREAD_LIMIT_BYTES = 4096
_LIVENESS_CHECK_S = 0.5
_STOP_S, _TERMINATE_S, _KILL_S = 0.3, 0.2, 0.2

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


class ProcessPool:
    """A fixed number of worker processes. For one thread of one process.

    Args:
        job: What the workers do.
        context: A multiprocessing context, or the torch.multiprocessing module.
        first: The epoch to begin with.
        kept_limit: See `LentSlots`.

    Raises:
        Exception: What starting a process raises; those started are stopped then.
    """

    def __init__(self, job: Job, context: Any, first: BeginEpoch, kept_limit: int) -> None:
        self.processes: list[Any] = []
        self._connections: list[Connection] = []
        self._waiter = Waiter()
        self.close = weakref.finalize(
            self, _stop, self.processes, self._connections, self._waiter, os.getpid()
        )
        _EVERY_POOL.add(self)
        self._slots = [LentSlots(kept_limit) for _ in range(job.num_workers)]
        self._unread: list[deque[_Unread]] = [deque() for _ in range(job.num_workers)]
        self._outbox: list[deque[_Unread]] = [deque() for _ in range(job.num_workers)]
        self._begin = [b""] * job.num_workers
        self.deaths: dict[int, Died] = {}
        self.largest_bytes = 0
        if job.segments == "named" and os.name == "posix":
            resource_tracker.ensure_running()  # One for all: each worker would start its own.
        try:
            for worker in range(job.num_workers):
                self._start(job, context, worker, first)
        except BaseException:
            self.close()
            raise

    def _start(self, job: Job, context: Any, worker: int, first: BeginEpoch) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self._connections.append(ours)
        method = context.get_start_method()
        inherited = list(self._connections) if method == "fork" else []
        # The system can end a worker with the thread that started it, which must not be
        # sooner than the process.
        in_main_thread = threading.current_thread() is threading.main_thread()
        parent_pid = os.getpid() if in_main_thread and method != "forkserver" else None
        started = context.Process(
            target=run, args=(job, worker, theirs, inherited, first, parent_pid), daemon=True
        )
        try:
            with _interrupts_held_back(context):
                started.start()
        except (TypeError, AttributeError, PicklingError):
            warnings.warn(_PICKLE_WARNING, stacklevel=6)
            raise
        finally:
            theirs.close()
        self.processes.append(started)
        self._waiter.add(ours, worker)
        self._waiter.add(started.sentinel, _sentinel(worker))

    def begin_epoch(self, message: BeginEpoch) -> None:
        """Has workers told with their next tasks; tasks not sent yet are dropped."""
        data = dumps(message)
        for worker, outbox in enumerate(self._outbox):
            for message_not_sent in outbox:
                self._slots[worker].put_back(message_not_sent.ended)
            outbox.clear()
            self._begin[worker] = data

    def make(self, worker: int, epoch: int, tasks: Sequence[Task]) -> None:
        """Sends tasks, now or when the worker has read what it was sent before.

        Raises:
            Exception: What pickle raises for indices it cannot carry; nothing is sent then.
        """
        ended = self._slots[worker].take_ended()
        try:
            data = dumps(Make(epoch, tuple(tasks), *ended))
        except BaseException:
            self._slots[worker].put_back(ended)
            raise
        self._outbox[worker].append(_Unread(data, len(tasks), len(data), ended))
        self._flush(worker)

    def _flush(self, worker: int) -> None:
        outbox, unread = self._outbox[worker], self._unread[worker]
        while outbox:
            size_bytes = outbox[0].size_bytes + len(self._begin[worker])
            if unread and sum(u.size_bytes for u in unread) + size_bytes > _UNREAD_LIMIT_BYTES:
                return
            message = outbox.popleft()
            begin, self._begin[worker] = self._begin[worker], b""
            if begin:
                self._write(worker, begin)
            self._write(worker, message.data)
            unread.append(_Unread(b"", message.tasks, size_bytes))

    def _answered(self, worker: int) -> None:
        """A worker has answered a task, so it has read all messages before that one."""
        unread = self._unread[worker]
        unread[0].tasks -= 1
        if not unread[0].tasks:
            unread.popleft()
            self._flush(worker)

    def _write(self, worker: int, data: bytes) -> None:
        with contextlib.suppress(OSError):  # It is dead, which `wait` will tell.
            self._connections[worker].send_bytes(data)

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
                tags = [_sentinel(w) for w, p in enumerate(self.processes) if not p.is_alive()]
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
        if worker in self.deaths:
            return []
        events: list[tuple[int, Any]] = []
        try:
            if tag >= 0:
                return [self._receive(worker)]
            while self._connections[worker].poll(0):
                events.append(self._receive(worker))
        except (EOFError, OSError):
            self.processes[worker].join(_LIVENESS_CHECK_S)
        process = self.processes[worker]
        if process.is_alive():
            return events
        self.deaths[worker] = Died(process.pid, process.exitcode)
        self._waiter.remove(self._connections[worker])
        self._waiter.remove(process.sentinel)
        return [*events, (worker, self.deaths[worker])]

    def _receive(self, worker: int) -> tuple[int, Any]:
        answer = loads(self._connections[worker].recv_bytes())
        if isinstance(answer, Made):
            self._accept(worker, answer.shipment)
        self._answered(worker)
        return worker, answer

    def _accept(self, worker: int, shipment: Shipment) -> None:
        if shipment.new is not None:
            try:
                self._slots[worker].attach(shipment.new, self._connections[worker])
            except TransportError:
                self.processes[worker].join(_LIVENESS_CHECK_S)
                if not self.processes[worker].is_alive():
                    raise EOFError from None  # It died between the message and its descriptor.
                raise
            self.largest_bytes = max(self.largest_bytes, shipment.new.size_bytes)
        self._slots[worker].retire(shipment.retired)

    def open(self, worker: int, shipment: Shipment) -> Any:
        """Builds the batch; see `LentSlots.open`."""
        return self._slots[worker].open(shipment)

    def discard(self, worker: int, shipment: Shipment) -> None:
        """Drops a batch that nobody wants."""
        self._slots[worker].discard(shipment)


def _stop(
    processes: list[Any], connections: list[Connection], waiter: Waiter, owner_pid: int
) -> None:
    """Ends the workers of a pool that is closed, dropped, or alive at interpreter exit."""
    if os.getpid() != owner_pid:
        return  # A forked copy: the workers are the original's.
    waiter.close()
    try:
        stop = dumps(Stop())
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send_bytes(stop)
        _drain(processes, connections, _STOP_S)
        for process in _living(processes):
            process.terminate()
        _drain(processes, connections, _TERMINATE_S)
    finally:  # Also when a second Ctrl-C comes while we wait.
        for process in _living(processes):
            process.kill()
        _drain(processes, connections, _KILL_S)
        for connection in connections:
            connection.close()


def _living(processes: list[Any]) -> list[Any]:
    return [process for process in processes if process.is_alive()]


def _drain(processes: list[Any], connections: list[Connection], patience_s: float) -> None:
    """Waits until the workers have ended, and takes in what they still have to say.

    A worker may be blocked on saying it; and a slot that it tells of has a name, elsewhere
    than on Linux, which somebody has to take away.
    """
    deadline = time.monotonic() + patience_s
    open_ends = set(connections)
    while open_ends or _living(processes):
        sentinels = [process.sentinel for process in _living(processes)]
        left_s = max(0.0, deadline - time.monotonic()) if sentinels else 0.0
        ready = wait([*open_ends, *sentinels], left_s)
        for connection in open_ends.intersection(ready):
            try:
                answer = loads(connection.recv_bytes())
            except Exception:  # It has ended, perhaps in the middle of a word.
                open_ends.discard(connection)
                continue
            if isinstance(answer, Made) and answer.shipment.new is not None:
                discard(answer.shipment.new.name, connection)
        if not ready:
            return
