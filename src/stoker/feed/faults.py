"""The words for what goes wrong while batches are waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stoker.errors import IteratorStopped, WaitTimeout, WorkerDied
from stoker.order.epoch import Task
from stoker.workers.death import Died


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


_LIKELY = {
    -9: "the system ran out of memory and killed it (its log tells), or somebody did",
    -7: "a file that shrank while it was mapped, or a full disk or shared memory behind it",
    -11: "a fault in a compiled library that the data set uses",
    -6: "a compiled library that the data set uses gave up",
    -15: "somebody, or the system's manager, asked the process to end",
}
