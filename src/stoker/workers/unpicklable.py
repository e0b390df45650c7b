"""Words for what does not pickle: which field of what, of which type, and of which sample."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.context
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from types import FunctionType
from typing import Any

from stoker.errors import NotPicklable
from stoker.host.arriving import classes
from stoker.transport import parcel
from stoker.transport.fields import Found, innermost, kind_of, samples_at
from stoker.transport.layout import Packing
from stoker.workers import by_value
from stoker.workers.bound import bound

_LIKELY = (
    "an open file or connection, a lock, a generator, or a function or class defined inside "
    "a function, which cannot leave the process it was made in"
)
OR_FORK = "; or multiprocessing_context='fork'"


def can_fork() -> bool:
    """Whether the system has fork, so that it can be advised."""
    return "fork" in multiprocessing.get_all_start_methods()


# torch's words, for the same misuse.
_PICKLE_WARNING = (
    "Got pickle error when attempting to start a worker Process. "
    "This might be because the worker Process arguments are not picklable. "
    "Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms "
    "to 'forkserver', which requires the worker Process arguments to be picklable. "
)
_PICKLE_WARNING += "You can also try multiprocessing.set_start_method('fork')." * can_fork()


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
    for name in ("dataset", "collate_fn", "worker_init_fn", "on_error"):
        part = getattr(job, name, None)
        if part is not None and _fails(pack, part):
            return _unsendable(_found(part, name, pack), name, pack, why)
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


def _unsendable(
    found: Found, name: str, pack: Callable[[object], None], why: Exception
) -> NotPicklable:
    known = bound(found.thing)
    told = _told(found, pack, why)
    change = known.change if known else "{path}, to be made in the worker when it is first needed"
    return NotPicklable(
        f"A worker can't be sent {name}: {told}",
        doing="starting it, before there was a process",
        likely=f"{known.name}: {known.why}" if known else _LIKELY,
        change=change.replace("{path}", found.path) + OR_FORK * can_fork(),
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
        by_name = isinstance(inner, (FunctionType, type)) and not by_value
        return by_name or (bound(inner) is not None and not isinstance(inner, (FunctionType, type)))

    return innermost(thing, name, lambda inner: _fails(pack, inner), ends=is_far_enough)


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
