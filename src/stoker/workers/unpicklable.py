"""Words for what does not pickle: which field of what, of which type, and of which sample."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from stoker.errors import NotPicklable
from stoker.host.arriving import is_here
from stoker.transport.fields import Found, innermost, kind_of, samples_at
from stoker.transport.layout import Packing

_LIKELY = (
    "an open file or connection, a lock, a generator, or a function or class defined inside "
    "a function, which cannot leave the process it was made in"
)


def pack_batch(batch: object) -> None:
    """Pickles a batch as a worker does; raises what that raises."""
    Packing(batch, None, 0)


def pack_argument(argument: object) -> None:
    """Pickles what a fresh process is sent, or nearly; raises what that raises.

    Nothing is copied: not what is large, and not what multiprocessing hands over in its own way.
    """
    _Sent(_Nowhere(), protocol=5, buffer_callback=lambda _: False).dump(argument)


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Sent(pickle.Pickler):
    def persistent_id(self, thing: Any) -> str | None:
        own_way = type(thing).__module__.startswith("multiprocessing.")
        return "sent" if own_way or _is_tensor(thing) else None


def _is_tensor(thing: object) -> bool:
    if not is_here("torch"):
        return False
    import torch

    return isinstance(thing, torch.Tensor)


def cannot_be_sent(
    batch: object, why: Exception, *, indices: Any, doing: str
) -> NotPicklable | None:
    """The error for a batch that its worker cannot pickle; None where that is not the reason.

    Args:
        batch: The batch.
        why: What sending it raised.
        indices: The sample indices of the batch; None when unknown.
        doing: What was being done.
    """
    if not _fails(pack_batch, batch):
        return None
    found = _found(batch, "batch", pack_batch)
    return NotPicklable(
        f"A batch does not pickle: {_told(found, pack_batch, why)}",
        doing=doing + _which_samples(found, indices),
        likely=_LIKELY,
        change="collate_fn=, or the data set, to return tensors, arrays and plain values; "
        "or num_workers=0",
    )


def cannot_be_started(job: Any, why: Exception) -> NotPicklable | None:
    """What of a worker's job keeps it from being sent to a new process; None if nothing does.

    Args:
        job: A `stoker.workers.job.Job`.
        why: What starting the process raised.
    """
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        part = getattr(job, name)
        if _fails(pack_argument, part):
            found = _found(part, name, pack_argument)
            return NotPicklable(
                f"A worker can't be sent {name}: {_told(found, pack_argument, why)}",
                doing="starting it, before there was a process",
                likely=_LIKELY,
                change=f"{found.path}, to be made in the worker when it is first needed; "
                "or multiprocessing_context='fork', where there is fork",
            )
    return None


def why_not(thing: object, name: str) -> str:
    """What in a batch, or its indices, does not pickle, in words; empty when it does."""
    try:
        pack_batch(thing)
    except Exception as why:
        return _told(_found(thing, name, pack_batch), pack_batch, why)
    return ""


def said(why: BaseException | None) -> str:
    """An exception in one line, whatever its own code does."""
    try:
        return f"{type(why).__name__}: {why}"
    except Exception:
        return type(why).__name__


def _found(thing: object, name: str, pack: Callable[[object], None]) -> Found:
    return innermost(thing, name, lambda inner: _fails(pack, inner))


def _told(found: Found, pack: Callable[[object], None], why: Exception) -> str:
    try:
        pack(found.thing)
    except Exception as own:
        why = own
    return f"{found.path} is a {kind_of(found.thing)} ({said(why)})"


def _which_samples(found: Found, indices: Any) -> str:
    samples = samples_at(found.steps, indices) if indices is not None else []
    if len(samples) == 1:
        return f", at sample index {samples[0]!r}"
    if samples:
        return f", at one of the sample indices {samples!r}"
    return f", of sample indices {indices!r}" if indices is not None else ""


def _fails(pack: Callable[[object], None], thing: object) -> bool:
    try:
        pack(thing)
    except Exception:
        return True
    return False
