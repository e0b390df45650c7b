"""The workers of a feed: who is there, who comes, who goes.

States of a worker::

    add --> starting --Started--> serving --told to--> leaving --nothing left--> gone
               |                     ^
               +--- not `patient` ---+    (gets tasks at once, which lie in its pipe)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from stoker.feed.dispatch import Dispatcher
from stoker.feed.growing import Growing
from stoker.feed.meter import Meter
from stoker.feed.pinning import Pinner
from stoker.workers.death import Died
from stoker.workers.hearing import hear
from stoker.workers.messages import BeginEpoch, Made, Started, Told
from stoker.workers.native import native_threads
from stoker.workers.process import ProcessPool

_SMOOTHING = 0.2


@dataclass
class Crewman:
    """What is known of one worker.

    Attributes:
        starting: It has not said yet that it has come up.
        leaving: It was told to leave.
        waits: It is given nothing before it has come up, since others can make it sooner.
        batches: How many it has made.
        sound: Whether it has ever read a sample.
        service_s: How long it takes for a batch; None when not known yet.
        affinity: The CPUs it may run on; None when not known.
        busy_since: When it could begin with what it is making, or was started, by
            `time.perf_counter`.
    """

    starting: bool = True
    leaving: bool = False
    waits: bool = False
    batches: int = 0
    sound: bool = False
    service_s: float | None = None
    affinity: frozenset[int] | None = None
    busy_since: float = field(default_factory=time.perf_counter)


class Crew:
    """See the module.

    Args:
        pool: The processes, none yet; `close` closes it.
        new_pinner: Makes what pins batches, when the first workers have been started; or None.
        meter: Takes note of what happens.
        patient: Whether a worker gets its first task only when it has come up, so that no
            batch waits for that; and one that never comes up is no error.

    Attributes:
        pool: As given.
        patient: As given.
        pinner: What pins batches; None as long as there is nothing to pin.
        men: The workers by number.
        failed_start: What became of a worker that did not come up (when `patient`).
        threads: Native threads that ran when workers were last started, by name.
    """

    def __init__(
        self,
        pool: ProcessPool,
        new_pinner: Callable[[ProcessPool], Pinner] | None,
        meter: Meter,
        *,
        patient: bool,
    ) -> None:
        self.pool = pool
        self.pinner: Pinner | None = None
        self.men: dict[int, Crewman] = {}
        self.failed_start: Died | None = None
        self.threads: list[str] = []
        self._new_pinner = new_pinner
        self._meter = meter
        self.patient = patient
        self._dispatcher: Dispatcher | None = None

    def serve(self, dispatcher: Dispatcher) -> None:
        """Another epoch: those who can take tasks join its dispatcher."""
        self._dispatcher = dispatcher
        for worker, man in self.men.items():
            if not man.leaving and not (man.starting and (self.patient or man.waits)):
                dispatcher.join(worker)
        self.dismiss()

    def resize(self, workers: int, first: BeginEpoch) -> None:
        """Starts workers, or has some leave, until there are `workers` that are to stay.

        Args:
            workers: How many.
            first: What those that are started are told of the epoch.

        Raises:
            Exception: What starting a process raises; those started by this call leave then.
        """
        staying = [worker for worker, man in self.men.items() if not man.leaving]
        if workers != len(staying):
            self._meter.forget_waits()
        for worker in staying[workers:]:
            self.men[worker].leaving = True
            if self._dispatcher is not None:
                self._dispatcher.leave(worker)
        if workers > len(staying):
            self._start(workers - len(staying), first)
        self.dismiss()

    def _start(self, count: int, first: BeginEpoch) -> None:
        began, anew = time.perf_counter(), not self.men
        self.threads = native_threads()
        started = self.pool.add(count, first)
        for worker in started:
            self.men[worker] = Crewman()
        self._meter.peak_workers = max(self._meter.peak_workers, len(self.men))
        for worker in started:
            if not self.patient and self._dispatcher is not None:
                self._dispatcher.join(worker)
        if self.pinner is None and self._new_pinner is not None:
            self.pinner = self._new_pinner(self.pool)
            self.pool.watch(self.pinner.connection)
        self._meter.method = self.pool.start_method
        self._meter.started(time.perf_counter() - began, anew=anew)

    def dismiss(self) -> None:
        """Lets workers end that were told to leave and have nothing left to do.

        While batches are pinned, of this epoch or an earlier one, none ends: its number would
        be another's before its batch is opened.
        """
        if self.pinner is not None and self.pinner.pending:
            return
        for worker in [worker for worker, man in self.men.items() if man.leaving]:
            left = self._dispatcher
            if left and not (left.has_left(worker) and not left.ready_of(worker)):
                continue
            if not self.pool.busy(worker):
                self.pool.retire(worker)
                del self.men[worker]

    def came_up(self, worker: int, message: Started) -> None:
        """A worker has said so."""
        man = self.men.get(worker)
        if man is None:
            return
        man.starting = False
        if message.affinity is not None:
            man.affinity = frozenset(message.affinity)
        if (self.patient or man.waits) and not man.leaving and self._dispatcher is not None:
            self._dispatcher.join(worker)

    def told(self, worker: int, message: Told) -> None:
        """A worker has told something in between."""
        if message.kind == "torch":
            self._meter.needs_torch = True
        elif message.kind != "memory":
            hear(message)
        elif worker in self.men:
            self._meter.growing.take(worker, message.what["look"], self.men)

    def has_made(self, worker: int, message: Made) -> None:
        """A worker has made a batch.

        Takes a slow batch at its word, and forgets it slowly: queueing behind it is dear.
        """
        man, seconds = self.men[worker], message.seconds
        if man.service_s is not None and seconds < man.service_s:
            seconds = man.service_s + _SMOOTHING * (seconds - man.service_s)
        man.service_s = seconds
        man.batches += 1
        man.sound = man.sound or message.damage is None or not message.damage.is_whole
        size_bytes = message.shipment.size_bytes
        self._meter.made(message.seconds, message.cpu_s, message.starved_s, size_bytes)

    def replace(self, worker: int, first: BeginEpoch, *, at_once: bool) -> None:
        """Starts a worker in place of one that was buried, under its number.

        Args:
            worker: The number.
            first: What it is told of the epoch.
            at_once: Whether it has its tasks before it has come up; they lie in its pipe.

        Raises:
            Exception: What starting a process raises.
        """
        began = time.perf_counter()
        self.pool.start([worker], first)
        self.men[worker] = Crewman(waits=not at_once)
        self._meter.started(time.perf_counter() - began, anew=False)

    def forget(self, worker: int, death: Died) -> None:
        """A worker that nobody was waiting for has died while it was starting."""
        self.failed_start = death
        self.pool.bury(worker)
        del self.men[worker]

    @property
    def growing(self) -> Growing:
        """What workers have told of their memory."""
        return self._meter.growing

    @property
    def staying(self) -> int:
        """Workers that were not told to leave."""
        return sum(1 for man in list(self.men.values()) if not man.leaving)

    @property
    def starting(self) -> bool:
        """Whether any worker has not come up yet."""
        return any(man.starting for man in self.men.values())

    @property
    def is_still_to_come_up(self) -> bool:
        """Whether the worker that holds the awaited batch has not come up, or none has."""
        starting = [worker for worker, man in self.men.items() if man.starting]
        if not starting or self._dispatcher is None:
            return False
        if len(starting) == len(self.men):
            return True
        awaited = self._dispatcher
        return awaited.in_order and any(awaited.head in awaited.running(each) for each in starting)

    @property
    def unsettled(self) -> bool:
        """Whether a worker is coming or going, or has not made a batch yet."""
        return any(man.starting or man.leaving or not man.batches for man in self.men.values())

    def state_of(self, worker: int) -> Literal["starting", "idle", "working", "leaving"]:
        """What a worker is doing, in one word."""
        man = self.men[worker]
        if man.leaving:
            return "leaving"
        if man.starting:
            return "starting"
        busy = self._dispatcher is not None and self._dispatcher.running(worker)
        return "working" if busy else "idle"

    def pid_of(self, worker: int) -> int | None:
        """The process id of a worker."""
        pid: int | None = self.pool.process(worker).pid
        return pid

    def close(self) -> None:
        """Stops the workers, in less than a second."""
        self.pool.close()
        if self.pinner is not None:
            self.pinner.close()
