"""The words for what goes wrong while batches are waited for."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from textwrap import indent
from typing import NamedTuple

from stoker.errors import (
    IteratorStopped,
    NotPicklable,
    RaisedInWorker,
    TransportError,
    WaitTimeout,
)
from stoker.feed.plight import FRESH, Plight, likely, may_miss_threads, seconds, told
from stoker.order.epoch import Task
from stoker.transport.fields import samples_at
from stoker.transport.unbuilt import Unbuilt
from stoker.workers.making import IterableMaker, MapMaker
from stoker.workers.unpicklable import said, why_not

_MAKING = {MapMaker.make.__code__, IterableMaker.make.__code__}


class WaitedFor(NamedTuple):
    """The batch that is missing.

    Attributes:
        batch: Its number; None where any would do.
        pinning: Whether it is made, and being copied to page-locked memory.
    """

    batch: int | None
    pinning: bool = False

    def __str__(self) -> str:
        which = "any batch" if self.batch is None else f"batch {self.batch}"
        return f"{which}, which is made and being copied (pin_memory)" if self.pinning else which


def timed_out(
    timeout_s: float,
    waited_for: WaitedFor,
    plights: Sequence[Plight],
    why: str = "",
    others: str = "on_timeout='retry' or 'skip' goes on",
) -> WaitTimeout:
    """The error for a batch that did not come in time; begins with torch's words.

    Args:
        timeout_s: How long was waited.
        waited_for: What is missing.
        plights: What workers are at, those first that were waited for.
        why: Why nothing else was done about it, as a clause.
        others: What else could be done about it, as a clause; may be empty.
    """
    first = plights[0] if plights and not waited_for.pinning else None
    error = WaitTimeout(
        f"DataLoader timed out after {timeout_s} seconds{why and f'; {why}'}",
        doing=f"waiting for {waited_for}\n{_workers(plights)}",
        likely=likely(first),
        change="; ".join(
            filter(None, [*_fresh(first), "timeout=, or fewer samples a batch", others])
        ),
    )
    error.batch, error.workers = waited_for.batch, tuple(plights)
    return error


def late_batch(
    waited_s: float, waited_for: WaitedFor, usual_s: float | None, plights: Sequence[Plight]
) -> str:
    """What is told while a batch does not come, though there is no time-out.

    Args:
        waited_s: How long was waited until now.
        waited_for: What is missing.
        usual_s: How long a batch takes, at most; None when not known yet.
        plights: What workers are at, those first that are waited for.
    """
    first = plights[0] if plights and not waited_for.pinning else None
    usual = "none has been made yet" if usual_s is None else f"one takes up to {seconds(usual_s)}"
    return (
        f"waiting for {waited_for}, for {seconds(waited_s)} now; {usual}\n"
        f"{_workers(plights)}\n"
        f"  likely cause: {likely(first)}\n"
        f"  to change it: {''.join(each + '; ' for each in _fresh(first))}"
        "timeout= ends such a wait, and on_timeout= says how"
    )


def _fresh(first: Plight | None) -> list[str]:
    return [FRESH] * may_miss_threads(first)


def _workers(plights: Sequence[Plight]) -> str:
    return indent(told(plights), "    ") if plights else "    no worker holds a batch"


def stands_for_a_batch(error: BaseException) -> bool:
    """Whether an error came up where a batch was made, and all but that batch is as it was.

    So it is with what a worker has caught, whatever it is: its cause tells so. And with what
    has come out of a maker in this process, which puts back what it has lent; but a
    `KeyboardInterrupt` here is Ctrl-C, which ends an iteration wherever it comes.
    """
    if isinstance(error.__cause__, RaisedInWorker):
        return True
    if isinstance(error, KeyboardInterrupt):
        return False
    passed = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in _MAKING for frame, _ in passed)


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
