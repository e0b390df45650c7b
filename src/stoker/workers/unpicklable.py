"""Words for what does not pickle: which field of what, of which type, and of which sample."""

from __future__ import annotations

import contextlib
import multiprocessing.context
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from types import FunctionType
from typing import Any

from stoker.errors import NotPicklable
from stoker.host.arriving import classes
from stoker.transport import parcel
from stoker.transport.fields import Found, innermost, kind_of, samples_at, sent_of
from stoker.transport.layout import Packing
from stoker.workers import by_value
from stoker.workers.advice import FRESH, or_forked
from stoker.workers.bound import Bound, bound

_LIKELY = (
    "something of this process alone, such as an open file or connection, a lock or a generator; "
    "a function or class defined inside a function; or a type that does not say how it is pickled"
)
_IS_DEEP = Bound(
    "it is nested too deep, such as a list in a list, or an object that refers to the next, "
    "hundreds of times",
    "pickle goes down all the way, and Python limits how deep",
    "{path}, to be flatter"
    + ", or sys.setrecursionlimit() with a larger number" * (sys.version_info < (3, 12)),
)
_PARTS = ("dataset", "collate_fn", "worker_init_fn", "on_error")
_MADE_THERE = "{path}, to be made in the worker when it is first needed"
_LEFT_OUT = "{path}, to hold nothing that does not pickle, or to leave it out by __getstate__"
# As torch's warning begins, for the same misuse. The error that follows says what to do.
_PICKLE_WARNING = (
    "Got pickle error when attempting to start a worker Process. "
    "This might be because the worker Process arguments are not picklable."
)


def pack_batch(batch: object) -> None:
    """Pickles a batch as a worker does; raises what that raises."""
    Packing(batch, None, 0)


def pack_argument(argument: object) -> None:
    """Pickles what a fresh process is sent, or nearly; raises what that raises.

    Nothing is copied: not what is large, and not the memory of tensors, which is shared.
    """
    with _as_if_starting():
        _Sent(_Nowhere(), 5, True, lambda _: False).dump(argument)


def pack_by_value(argument: object) -> None:
    """Pickles what a fresh worker is sent; raises what that raises. What is large isn't copied."""
    with _as_if_starting():
        by_value.dumps(argument, parcel.Packing())


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Nobody:
    """Stands for a process that is about to start, for what pickles only then."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor

    DupFd = duplicate_for_child


@contextlib.contextmanager
def _as_if_starting() -> Iterator[None]:
    place: Any = multiprocessing.context
    before = place.get_spawning_popen()
    place.set_spawning_popen(before or _Nobody())
    try:
        yield
    finally:
        place.set_spawning_popen(before)


class _Sent(ForkingPickler):
    def persistent_id(self, thing: Any) -> str | None:
        tensors: Any = classes("torch.Tensor")
        is_shared = isinstance(thing, tensors) and (thing.is_leaf or not thing.requires_grad)
        return "shared" if is_shared else None


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


def cannot_be_started(
    job: Any, why: Exception, pack: Callable[[object], None] = pack_argument
) -> NotPicklable | None:
    """What of a worker's job keeps it from being sent to a new process; None if nothing does.

    Args:
        job: A `stoker.workers.job.Job`.
        why: What pickling it raised.
        pack: Pickles a part of the job as the job was pickled; raises what that raises.
    """
    for name in _PARTS:
        part = getattr(job, name, None)
        if part is not None and _fails(pack, part):
            return _unsendable(_found(part, name, pack), name, pack, why, _elsewhere(job))
    return None


def cannot_be_sent_to(method: str, job: Any, why: Exception, *, quiet: bool) -> None:
    """Raises what `cannot_be_started` finds, if anything; warns as torch does.

    Args:
        method: The start method.
        job: As there.
        why: As there; its type stays where it is one of the user's, and what was found is its
            cause.
        quiet: Whether not to warn.

    Raises:
        NotPicklable: A part of the job does not pickle.
        Exception: What the user's own code raised while it was pickled.
    """
    is_torch_s = isinstance(why, (TypeError, AttributeError, PicklingError)) and method != "fresh"
    if is_torch_s and not quiet:
        warnings.warn(_PICKLE_WARNING, stacklevel=8)
    found = cannot_be_started(job, why, pack_by_value if method == "fresh" else pack_argument)
    if found is not None and _is_of_pickling(why):
        raise found from why
    if found is not None:
        raise why from found


def _is_of_pickling(why: Exception) -> bool:
    own = type(why).__module__ in ("builtins", "_pickle", "pickle")
    return own and isinstance(why, NotPicklable.__mro__[2:-3])


def _elsewhere(job: Any) -> str:
    """What mends it without a change to the parts of a job; "" where nothing does.

    What fresh workers are sent is asked for in any case: where they were to be fresh, it fails.
    """
    parts = (getattr(job, name, None) for name in _PARTS)
    return "" if any(_fails(pack_by_value, part) for part in parts) else FRESH


def _unsendable(
    found: Found, name: str, pack: Callable[[object], None], why: Exception, elsewhere: str
) -> NotPicklable:
    own = _raised_by(pack, found.thing) or why
    known = _IS_DEEP if _is_of_depth(own) else bound(found.thing)
    change = known.change if known else _MADE_THERE if found.steps else _LEFT_OUT
    if found.steps and found.steps[-1].label.startswith(".globals["):
        change += ", or in a module that the program imports, and each worker for itself"
    change = change.replace("{path}", found.path)
    return NotPicklable(
        f"A worker can't be sent {name}: {_words(found, own)}",
        doing="starting it, before there was a process",
        likely=f"{known.name}: {known.why}" if known else _LIKELY,
        change=f"{elsewhere}; or {change}" if elsewhere else change + or_forked(),
    )


def _is_of_depth(why: Exception | None) -> bool:
    """Pickle's own error, or what cloudpickle makes of it."""
    return isinstance(why, RecursionError) or (
        why is not None and isinstance(why.__cause__, RecursionError)
    )


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
    by_value = not _fails(pack, lambda: None)

    def is_far_enough(inner: object) -> bool:
        if isinstance(inner, (FunctionType, type)):
            return not by_value
        is_deep = inner is not thing and _is_of_depth(_raised_by(pack, inner))
        return is_deep or bound(inner) is not None

    def fails(inner: object) -> bool:
        return _fails(pack, inner)

    return innermost(thing, name, fails, ends=is_far_enough, fields=sent_of)


def _told(found: Found, pack: Callable[[object], None], why: Exception) -> str:
    return _words(found, _raised_by(pack, found.thing) or why)


def _words(found: Found, why: Exception) -> str:
    return f"{found.path} is a {kind_of(found.thing)} ({said(why)})"


def _which_samples(found: Found, indices: Any) -> str:
    samples = samples_at(found.steps, indices) if indices is not None else []
    if len(samples) == 1:
        return f", at sample index {samples[0]!r}"
    if samples:
        return f", at one of the sample indices {samples!r}"
    return f", of sample indices {indices!r}" if indices is not None else ""


def _fails(pack: Callable[[object], None], thing: object) -> bool:
    return _raised_by(pack, thing) is not None


def _raised_by(pack: Callable[[object], None], thing: object) -> Exception | None:
    try:
        pack(thing)
    except Exception as error:
        return error
    return None
