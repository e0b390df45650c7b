"""The words for what goes wrong while batches are waited for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from stoker.errors import IteratorStopped, WaitTimeout


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
