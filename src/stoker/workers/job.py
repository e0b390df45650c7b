"""The only code that runs inside a worker process.

Guarantees
    - The worker ends when it is told to, or when its pipe does because the main process is
      gone. On Linux the system ends it with the main process, in the middle of a batch too.
      While it waits it also looks every second whether it has been orphaned, since a
      process forked in between may hold the other end of its pipe open.
    - Whatever making a batch raises is sent back in its place; the worker goes on.
    - Ctrl-C is left to the main process: the terminal sends SIGINT to the worker too.

Life of a worker::

    started -> seeded, worker_init_fn -> says Started -> waiting <--> making a batch
                                                            |
                                                            +--> told to stop, or pipe ended: exit 0
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from stoker.errors import StokerError
from stoker.host.arriving import is_here, when_imported
from stoker.host.cpus import mask_now
from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.per_process import close_all
from stoker.transport.arena import NewSlot, Shipment, WorkerArena
from stoker.transport.shm import Kind
from stoker.workers.accelerated import advised
from stoker.workers.blackbox import BlackBox
from stoker.workers.building import Sealed, build
from stoker.workers.clocks import cpu_wait_s
from stoker.workers.descriptors import Position, open_again
from stoker.workers.digest import RunningDigest
from stoker.workers.etiquette import settle
from stoker.workers.growth import GrowthWatch
from stoker.workers.last_words import keep_last_words
from stoker.workers.lean import resolved
from stoker.workers.likeness import likeness
from stoker.workers.making import AT_NO_SAMPLE, Draws, Ended, IterableMaker, MapMaker
from stoker.workers.messages import (
    BeginEpoch,
    Failed,
    LeftOut,
    Made,
    Make,
    Repeat,
    Repeated,
    Repeating,
    ShardEnded,
    Started,
    dumps,
    loads,
)
from stoker.workers.raised import Raised
from stoker.workers.repeating import repeat
from stoker.workers.signals import leave_to_the_parent
from stoker.workers.speaking import Speaker
from stoker.workers.starting import end_with, let_have_children
from stoker.workers.telling import Wanted, tell_of_this_process
from stoker.workers.tolerance import LEFT_OUT, OnError
from stoker.workers.torch_side import settle_numpy, settle_torch, with_shared_seed
from stoker.workers.unpicklable import cannot_be_sent
from stoker.workers.waiting import Waiter

_ORPHAN_CHECK_S = 1.0


@dataclass(frozen=True)
class Job:
    """What a worker needs to know: the same for all workers of a loader, but for its number.

    Attributes:
        dataset: The data set.
        iterable: Whether it is iterable-style.
        batched: Whether a task's index is a list of indices.
        collate_fn: The user's, or torch's.
        drop_last: For iterable data sets.
        worker_init_fn: Called with the worker's number before the first batch.
        base_seed: The iterator's base seed (64 bits).
        num_workers: As `get_worker_info` tells it; 0: as many as there are then.
        forked: Whether the worker is a forked copy of a process that has done other things.
        batch_limit_bytes: Larger batches are refused; None: there is no limit.
        segments: The kind of slot to make.
        draws: What is known about whether samples draw.
        wanted: Which log records and warnings the main process wants; None where workers know.
        on_error: What is to become of samples that can't be read; None: their error is raised.
        needs_torch: Whether workers are known, or likely, to need torch that the job refers to
            nowhere: a template imports it once for all of them.
    """

    dataset: Any
    iterable: bool
    batched: bool
    collate_fn: Any
    drop_last: bool
    worker_init_fn: Any
    base_seed: int
    num_workers: int
    segments: Kind
    draws: Draws
    forked: bool = False
    batch_limit_bytes: int | None = None
    wanted: Wanted | None = None
    on_error: OnError | None = None
    needs_torch: bool = False


def run(
    sealed: Sealed,
    worker: int,
    connection: Connection,
    inherited: list[Connection | BlackBox],
    first: BeginEpoch,
    parent_pid: int | None,
    box: BlackBox,
    files: Sequence[Position] = (),
) -> None:
    """Serves batches until the pipe ends.

    Args:
        sealed: What to do, a `Job`.
        worker: Number of this worker, from 0.
        connection: To the main process.
        inherited: What is for other workers and came along by fork, to be closed.
        first: The epoch to begin with.
        parent_pid: The process to end with, whatever happens to it, where the system can
            see to that; None where it can't.
        box: What it is to write its stacks into.
        files: Files that came along by fork, each to be opened anew where it was.
    """
    leave_to_the_parent()
    if parent_pid is not None and not end_with(parent_pid):
        return
    let_have_children()
    for other in inherited:
        other.close()
    open_again(files)
    box.install()
    keep_last_words(box)
    try:
        job = build(sealed.open, worker, connection)
        _Worker(job, worker, connection, first, box).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The main process has closed the pipe, or is gone.
    finally:
        close_all()


class _Worker:
    def __init__(
        self, job: Job, worker: int, connection: Connection, first: BeginEpoch, box: BlackBox
    ) -> None:
        self._job = job
        self._box = box
        self._number = worker
        self._connection = connection
        self._speaker = Speaker(connection, worker)
        self._parent_pid = os.getppid()
        self._waiter = Waiter()
        self._waiter.add(connection, None)
        self._epoch = first
        self._arena = WorkerArena(job.segments, job.batch_limit_bytes)
        self._dataset = job.dataset
        self._maker: MapMaker | IterableMaker | None = None
        self._init_failure: Raised | None = None
        self._is_up = False
        self._digest = RunningDigest() if job.iterable else None
        self._starved_before_s = cpu_wait_s()
        if job.wanted is not None:
            job.wanted.apply()
        tell_of_this_process(self._speaker)
        self._settle()
        self._growth = GrowthWatch(
            {"dataset": self._dataset, "collate_fn": job.collate_fn},
            forked=job.forked,
            tell=functools.partial(self._speaker.tell, "memory"),
        )
        self._began_as = likeness(self._dataset) if job.iterable else None
        self._speaker.answer(dumps(Started(_affinity())))
        self._is_up = True

    def _settle(self) -> None:
        """Does what torch does in a new worker, in the same order.

        What concerns torch and numpy waits for them, where they are not there: see `arriving`.
        """
        settle(forked=self._job.forked)
        random.seed(self._job.base_seed + self._number)
        when_imported("torch", self._torch_came, first=True)
        when_imported("numpy", self._numpy_came, first=True)
        try:
            if self._job.worker_init_fn is not None:
                self._job.worker_init_fn(self._number)
            self._maker = self._new_maker()
        except BaseException as error:  # Its SystemExit too: the worker goes on.
            raised = Raised.of(error, self._where("in worker_init_fn"))
            self._init_failure = advised(raised, error, self._dataset)

    def _torch_came(self) -> None:
        self._share_seed(self._epoch)
        settle_torch(
            self._arena,
            worker=self._number,
            base_seed=self._job.base_seed,
            num_workers=self._job.num_workers,
            dataset=self._dataset,
        )

        if self._is_up:
            self._speaker.tell("torch", {})

    def _numpy_came(self) -> None:
        settle_numpy(worker=self._number, base_seed=self._job.base_seed)

    def _new_maker(self) -> MapMaker | IterableMaker:
        job, key = self._job, EpochKey(*self._epoch.key)
        collate = resolved(job.collate_fn)
        if job.iterable:
            return IterableMaker(
                self._dataset,
                batched=job.batched,
                collate=collate,
                drop_last=job.drop_last,
                key=key,
                shard=self._number,
                on_error=job.on_error,
            )
        return MapMaker(
            self._dataset,
            batched=job.batched,
            collate=collate,
            key=key,
            draws=job.draws,
            on_error=job.on_error,
        )

    def serve(self) -> None:
        while True:
            while not self._waiter.wait(_ORPHAN_CHECK_S):
                self._speaker.catch_up()
                if os.getppid() != self._parent_pid:
                    return
            message = loads(self._connection.recv_bytes())
            if isinstance(message, Make):
                self._arena.release(message.released)
                self._arena.forget(message.forgotten)
                for task in message.tasks:
                    if task.number in message.careful:
                        self._make_carefully(message.epoch, task)
                    else:
                        self._make(message.epoch, task)
                    self._growth.made()
            elif isinstance(message, BeginEpoch):
                self._begin_epoch(message)
            elif isinstance(message, Repeat):
                self._repeat(message)
            else:
                return

    def _begin_epoch(self, message: BeginEpoch) -> None:
        self._epoch = message
        self._digest = RunningDigest() if self._job.iterable else None
        self._share_seed(message)
        if self._maker is not None:
            self._maker.begin_epoch(EpochKey(*message.key))

    def _share_seed(self, message: BeginEpoch) -> None:
        if message.shared_seed is not None and is_here("torch"):
            self._dataset = with_shared_seed(self._dataset, message.shared_seed)

    def _repeat(self, message: Repeat) -> None:
        if not isinstance(self._maker, IterableMaker) or self._digest is None:
            return  # Each task will tell of the failure in `worker_init_fn`.

        def tell(steps: int) -> None:
            self._speaker.answer(dumps(Repeating(message.epoch, steps)))

        differs = repeat(self._maker, self._digest, message, tell)
        self._speaker.answer(dumps(Repeated(message.epoch, differs)))

    def _make_carefully(self, epoch: int, task: Task) -> None:
        """Makes a batch that a worker has died at: should this one die, it is known where."""
        place = self._maker.place if self._maker is not None else None
        if place is not None:
            self._box.note(task.number, AT_NO_SAMPLE)
            place.note = functools.partial(self._box.note, task.number)
        try:
            self._make(epoch, task)
        finally:
            if place is not None:
                place.note = None

    def _make(self, epoch: int, task: Task) -> None:
        number = task.number
        if self._maker is None:
            assert self._init_failure is not None
            self._fail(Failed(epoch, number, self._init_failure))
            return
        started, cpu_s = time.perf_counter(), time.process_time()
        self._arena.begin()
        place: object = self._maker.place
        digest: int | None = None
        try:
            batch = self._maker.make(task)
            damage = self._maker.damage
            place = "on packing the result"
            digest = self._digest.add(batch) if self._digest is not None else 0
            if batch is LEFT_OUT and damage is not None:
                self._arena.abort()
                self._speaker.answer(dumps(LeftOut(epoch, number, damage, digest)))
                return
            shipment = self._packed(batch, task)
            del batch
            cpu_s, seconds = time.process_time() - cpu_s, time.perf_counter() - started
            starved_s = self._starved_s()
            made = Made(epoch, number, shipment, seconds, cpu_s, starved_s, digest, damage)
            answer = dumps(made)
        except Ended:
            self._arena.abort()
            changed = self._began_as != likeness(self._dataset)
            self._speaker.answer(dumps(ShardEnded(epoch, number, changed)))
        except BaseException as error:  # A sample's SystemExit too: the worker goes on.
            self._arena.abort()
            where = self._where(f"{place} of batch {number}")
            if digest is None:
                digest = self._digest.add_error(error) if self._digest is not None else 0
            raised = advised(Raised.of(error, where), error, self._dataset)
            self._fail(Failed(epoch, number, raised, digest))
        else:
            new = shipment.new
            self._speaker.answer(answer, then=None if new is None else lambda: self._hand_over(new))

    def _hand_over(self, new: NewSlot) -> None:
        self._arena.hand_over(new, self._connection, self._parent_pid)

    def _packed(self, batch: object, task: Task) -> Shipment:
        try:
            return self._arena.commit(batch)
        except (StokerError, MemoryError):
            raise
        except Exception as error:
            doing = self._where(f"sending batch {task.number}")
            indices = None if self._job.iterable else task.index
            unsent = cannot_be_sent(batch, error, indices=indices, doing=doing)
            if unsent is None:
                raise
            raise unsent from error

    def _starved_s(self) -> float | None:
        """How long this thread could have run since the last call, and had no CPU."""
        before, self._starved_before_s = self._starved_before_s, cpu_wait_s()
        if self._starved_before_s is None or before is None:
            return None
        return self._starved_before_s - before

    def _where(self, place: str) -> str:
        return f"in DataLoader worker process {self._number}, {place}"

    def _fail(self, message: Failed) -> None:
        self._speaker.answer(dumps(message))


def _affinity() -> tuple[int, ...] | None:
    mask = mask_now()
    return None if mask is None else tuple(sorted(mask))
