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
import signal
import time
from collections.abc import Iterator
from typing import Any

from stoker.errors import IteratorStopped, WaitTimeout, WorkerDied
from stoker.feed.dispatch import BURST_S, Dispatcher, nap_s, queue_depth
from stoker.feed.pinning import Pinner
from stoker.order.epoch import EpochPlan, Task
from stoker.workers.messages import BeginEpoch, Failed, Made, ShardEnded
from stoker.workers.process import Died, ProcessPool

_RUN_AHEAD_BYTES = 256 * 1024 * 1024
_RUN_AHEAD_PER_WORKER = 64
_SMOOTHING = 0.2


class _Raises:
    """Stands for a batch that could not be made; re-raised like torch's ExceptionWrapper."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def reraise(self) -> None:
        raise self._error


class Feed:
    """Batches of one epoch after another, from a pool of workers.

    Args:
        pool: The workers; the feed closes it.
        prefetch: Batches in advance per worker.
        in_order: Whether batches come by number.
        sharded: Whether the data set is iterable.
        timeout_s: How long `next` may wait for a batch; 0 means for ever.
        pinner: What pins batches, or None.

    Attributes:
        closed: Whether the workers have been stopped.
    """

    def __init__(
        self,
        pool: ProcessPool,
        *,
        prefetch: int,
        in_order: bool,
        sharded: bool,
        timeout_s: float,
        pinner: Pinner | None,
    ) -> None:
        self._pool = pool
        self._prefetch = prefetch
        self._in_order = in_order
        self._sharded = sharded
        self._timeout_s = timeout_s
        self._pinner = pinner
        if pinner is not None:
            pool.watch(pinner.connection)
        self.closed = False
        self._owner_pid = os.getpid()
        self._epoch = -1
        self._service_s: list[float | None] = [None] * len(pool.processes)
        self._away_s = 0.0
        self._left_at: float | None = None
        self._waited_at = -BURST_S
        self._answers: dict[int, Any] = {}

    def begin_epoch(self, plan: EpochPlan, message: BeginEpoch) -> None:
        """Starts an epoch; what is left of the one before is dropped.

        Args:
            plan: Its batches.
            message: What workers were, or are to be, told of it.
        """
        for death in self._pool.deaths.values():  # It had no work left when it died.
            self.close()
            raise _worker_died(death, None, self._sharded)
        if self._epoch >= 0:
            self._pool.begin_epoch(message)
        for answer in self._answers.values():
            self._drop(answer)
        self._answers = {}
        self._epoch = message.epoch
        self._plan = plan
        self._left_at = None
        self._waited_at = -BURST_S
        self._tasks: dict[int, Task] = {}
        self._dispatcher = Dispatcher(
            len(self._pool.processes),
            self._prefetch,
            in_order=self._in_order,
            sharded=self._sharded,
        )
        self._assign()

    def next(self) -> Any:
        """The next batch.

        Raises:
            StopIteration: The epoch is over.
            WorkerDied: A worker is dead.
            WaitTimeout: Nothing came in time.
            Exception: What the data set, collate function or sampler raised for this batch.
        """
        try:
            number = self._wait_for_batch()
        except StopIteration:
            raise
        except BaseException:
            if os.getpid() == self._owner_pid:
                self.close()
            raise
        answer = self._answers.pop(number)
        self._dispatcher.delivered(number)
        self._tasks.pop(number, None)
        batch = self._open(answer)
        self._assign()
        self._left_at = time.perf_counter()
        return batch

    def _wait_for_batch(self) -> int:
        if os.getpid() != self._owner_pid:
            raise _in_a_copy(self._owner_pid)
        if self.closed:
            raise StopIteration if self._dispatcher.done() else self._was_closed()
        entered = time.perf_counter()
        if self._left_at is not None:
            self._away_s += _SMOOTHING * (entered - self._left_at - self._away_s)
        self._handle(self._pool.wait(0))
        deadline = entered + self._timeout_s if self._timeout_s > 0 else None
        while (number := self._dispatcher.deliverable()) is None:
            if self._dispatcher.done():
                raise StopIteration
            self._waited_at = time.perf_counter()
            self._assign()
            left_s = None if deadline is None else deadline - time.perf_counter()
            if left_s is not None and left_s <= 0:
                raise self._timed_out()
            time.sleep(nap_s(self._held()))
            self._handle(self._pool.wait(left_s))
        return number

    def _open(self, answer: Any) -> Any:
        if isinstance(answer, tuple):
            worker, message = answer
            if isinstance(message, Failed):
                message.error.reraise()
            return self._pool.open(worker, message.shipment)
        if hasattr(answer, "reraise"):
            answer.reraise()
        return answer.batch

    def _assign(self) -> None:
        """Sends workers all they may have now."""
        waiting = time.perf_counter() - self._waited_at < BURST_S
        depths = [
            queue_depth(self._prefetch, self._away_s, service_s, waiting=waiting)
            for service_s in self._service_s
        ]
        run_ahead = min(
            _RUN_AHEAD_PER_WORKER * self._dispatcher.workers,
            _RUN_AHEAD_BYTES // max(1, self._pool.largest_bytes),
        )
        handfuls: dict[int, list[Task]] = {}
        while command := self._dispatcher.next_assignment(
            waiting=waiting, depths=depths, run_ahead=run_ahead
        ):
            worker, number = command
            task = self._planned(number)
            if task is None:
                break
            self._tasks[number] = task
            self._dispatcher.assigned(worker, number)
            handfuls.setdefault(worker, []).append(task)
        for worker, tasks in handfuls.items():
            try:
                self._pool.make(worker, self._epoch, tasks)
            except Exception as error:  # Indices that do not pickle.
                for task in tasks:
                    self._dispatcher.finished(worker, task.number)
                    self._answers[task.number] = _Raises(error)

    def _held(self) -> Iterator[tuple[int, float | None]]:
        for worker, service_s in enumerate(self._service_s):
            yield len(self._dispatcher.running(worker)), service_s

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
            elif message is None:
                self._handle_pinned()
            elif message.epoch != self._epoch:
                self._drop((worker, message))
            else:
                self._handle_answer(worker, message)

    def _handle_answer(self, worker: int, message: Any) -> None:
        if isinstance(message, ShardEnded):
            self._dispatcher.shard_ended(worker, message.number)
            return
        if isinstance(message, Made):
            self._note_service(worker, message.seconds)
            if self._pinner is not None:
                self._dispatcher.made(worker, message.number)
                self._pinner.submit(worker, message)
                return
        self._answers[message.number] = (worker, message)
        self._dispatcher.finished(worker, message.number)

    def _note_service(self, worker: int, seconds: float) -> None:
        """Takes a slow batch at its word, and forgets it slowly: queueing behind it is dear."""
        known = self._service_s[worker]
        if known is not None and seconds < known:
            seconds = known + _SMOOTHING * (seconds - known)
        self._service_s[worker] = seconds

    def _handle_pinned(self) -> None:
        assert self._pinner is not None
        for pinned in self._pinner.collect():
            if pinned.epoch == self._epoch:
                self._answers[pinned.number] = pinned
                self._dispatcher.finished(pinned.worker, pinned.number)

    def _drop(self, answer: Any) -> None:
        if isinstance(answer, tuple) and isinstance(answer[1], Made):
            self._pool.discard(answer[0], answer[1].shipment)

    def _handle_death(self, worker: int, death: Died) -> None:
        if self._dispatcher.has_ended(worker):
            return
        held = self._dispatcher.running(worker)
        task = self._tasks.get(held[0]) if held else None
        starting = self._service_s[worker] is None
        raise _worker_died(death, task, self._sharded, starting=starting)

    def _timed_out(self) -> WaitTimeout:
        making = {
            worker: held[0]
            for worker in range(self._dispatcher.workers)
            if (held := self._dispatcher.running(worker))
        }
        held_text = ", ".join(
            f"worker {worker} (pid {self._pool.processes[worker].pid}) batch {number}"
            for worker, number in making.items()
        )
        return WaitTimeout(
            f"DataLoader timed out after {self._timeout_s} seconds",
            doing=f"waiting for batch {self._dispatcher.head}, while these are being made: "
            + (held_text or "none"),
            likely="a sample that takes longer than the time-out",
            change="timeout=, or fewer samples a batch",
        )

    def _was_closed(self) -> IteratorStopped:
        return IteratorStopped(
            "This iterator was stopped before the epoch was over",
            likely="an earlier error, time-out or Ctrl-C inside it, which stopped its workers",
            change="iter(loader) begins a new epoch",
        )

    def close(self) -> None:
        """Stops the workers, in less than a second. Batches handed out stay valid."""
        self.closed = True
        self._pool.close()
        if self._pinner is not None:
            self._pinner.close()


def _in_a_copy(owner_pid: int) -> IteratorStopped:
    return IteratorStopped(
        f"This iterator belongs to process {owner_pid}; this is a forked copy, {os.getpid()}",
        likely="os.fork(), or a process started by fork, after iter(loader)",
        change="iter(loader) in the new process makes an iterator of its own",
    )


def _worker_died(
    death: Died, task: Task | None, sharded: bool, *, starting: bool = False
) -> WorkerDied:
    """The error for a dead worker; begins with torch's words for it."""
    code = death.exitcode
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        how = f"killed by signal {name} ({-code})"
    else:
        how = f"exit code {code}"
    doing = "waiting for work"
    if task is not None:
        doing = (
            f"starting, or making batch {task.number}"
            if starting
            else f"making batch {task.number}"
        )
        if not sharded:
            doing += f", sample indices {task.index!r}"
    error = WorkerDied(
        f"DataLoader worker (pid(s) {death.pid}) exited unexpectedly: {how}",
        doing=doing,
        likely=_LIKELY.get(code or 0, "code that ends the process, in the data set or a library"),
        change="num_workers=0 shows the fault in the main process",
    )
    error.pid, error.exitcode = death.pid, code
    if task is not None:
        error.batch, error.indices = task.number, None if sharded else task.index
    return error


_LIKELY = {
    -9: "the system ran out of memory and killed it (its log tells), or somebody did",
    -7: "a file that shrank while it was mapped, or a full disk or shared memory behind it",
    -11: "a fault in a compiled library that the data set uses",
    -6: "a compiled library that the data set uses gave up",
    -15: "somebody, or the system's manager, asked the process to end",
}
