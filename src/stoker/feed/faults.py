"""The words for what goes wrong while batches are waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stoker.errors import IteratorStopped, NotPicklable, TransportError, WaitTimeout, WorkerDied
from stoker.order.epoch import Task
from stoker.transport.fields import samples_at
from stoker.transport.unbuilt import Unbuilt
from stoker.workers.process import Died
from stoker.workers.unpicklable import said, why_not


def timed_out(timeout_s: float, number: int, making: Sequence[tuple[int, int, int]]) -> WaitTimeout:
    """The error for a batch that did not come in time; begins with torch's words.

    Args:
        timeout_s: How long was waited.
        number: The batch that is missing.
        making: Of each worker that makes one: its number, its pid, the number of the batch.
    """
    held = ", ".join(f"worker {worker} (pid {pid}) batch {batch}" for worker, pid, batch in making)
    return WaitTimeout(
        f"DataLoader timed out after {timeout_s} seconds",
        doing=f"waiting for batch {number}, while these are being made: {held or 'none'}",
        likely="a sample that takes longer than the time-out",
        change="timeout=, or fewer samples a batch",
    )


def was_closed() -> IteratorStopped:
    """The error for asking on after the workers have been stopped."""
    return IteratorStopped(
        "This iterator was stopped before the epoch was over",
        likely="an earlier error, time-out or Ctrl-C inside it, which stopped its workers",
        change="iter(loader) begins a new epoch",
    )


def in_a_copy(owner_pid: int) -> IteratorStopped:
    """The error for asking in a forked copy of the process that owns the workers."""
    return IteratorStopped(
        f"This iterator belongs to process {owner_pid}; this is a forked copy, {os.getpid()}",
        likely="os.fork(), or a process started by fork, after iter(loader)",
        change="iter(loader) in the new process makes an iterator of its own",
    )


def worker_died(
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


def cannot_be_built(broken: Unbuilt, task: Task | None, sharded: bool) -> TransportError:
    """The error for a batch that arrived, and whose own types fail to be built again."""
    cause = broken.__cause__
    doing = "opening a batch of a worker"
    if task is not None:
        doing = f"opening batch {task.number}"
        samples = [] if sharded else samples_at(broken.steps, task.index)
        if len(samples) == 1:
            doing += f", at sample index {samples[0]!r}"
        elif not sharded:
            doing += f", of sample indices {samples or task.index!r}"
    return TransportError(
        f"A batch can't be built again in the main process: {broken} ({said(cause)})",
        doing=doing,
        likely="a type whose __reduce__, __setstate__ or constructor does not take back what "
        "pickle has kept of it",
        change="collate_fn=, or the data set, to return tensors, arrays and plain values; "
        "or num_workers=0",
    )


def indices_not_sent(task: Task, why: Exception) -> NotPicklable:
    """The error for a sampler's indices that do not pickle."""
    error = NotPicklable(
        f"The indices of a batch do not pickle: {why_not(task.index, 'index') or said(why)}",
        doing=f"sending batch {task.number} to a worker",
        likely="a sampler that yields more than numbers and strings",
        change="sampler= or batch_sampler=, to yield what pickles; or num_workers=0",
    )
    error.__cause__ = why
    return error


_LIKELY = {
    -9: "the system ran out of memory and killed it (its log tells), or somebody did",
    -7: "a file that shrank while it was mapped, or a full disk or shared memory behind it",
    -11: "a fault in a compiled library that the data set uses",
    -6: "a compiled library that the data set uses gave up",
    -15: "somebody, or the system's manager, asked the process to end",
}
