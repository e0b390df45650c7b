"""Stoker's exceptions: what happened, what was being done, the likely cause, the change.

Every class is also a subclass of what ``torch.utils.data.DataLoader`` raises in the
same place, so that programs which catch torch's exceptions keep working.
"""

from __future__ import annotations

import pickle
from typing import Any


class StokerError(Exception):
    """Base of every exception that is Stoker's own.

    Attributes:
        what: What happened, with the numbers.
        doing: What was being done when it happened; empty when the message says it.
        likely: The likely cause, called likely; empty when nothing is known.
        change: The argument or command that changes it; empty when there is none.
    """

    def __init__(self, what: str, *, doing: str = "", likely: str = "", change: str = "") -> None:
        self.what, self.doing, self.likely, self.change = what, doing, likely, change
        lines = [what]
        if doing:
            lines.append(f"  while: {doing}")
        if likely:
            lines.append(f"  likely cause: {likely}")
        if change:
            lines.append(f"  to change it: {change}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(
    cls: type[StokerError], args: tuple[object, ...], state: dict[str, object]
) -> StokerError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ArgumentError(StokerError, ValueError):
    """An argument that can never work, found in the constructor."""


class ArgumentTypeError(StokerError, TypeError):
    """An argument of a type that can never work, found in the constructor."""


class WorkerDied(StokerError, RuntimeError):
    """A worker process ended without being asked to.

    Attributes:
        pid: Process id of the worker.
        exitcode: As ``multiprocessing.Process.exitcode``: negative is a signal's number;
            None when it could not be learnt.
        batch: Number of the batch in the epoch that it was making; None when idle.
        indices: The sample indices of that batch; None when idle or for an iterable dataset.
        position: Where in the batch the sample is that was being read; known of a batch at
            which a worker had died before, else None.
        sample: The index of that sample; None when not known.
        peak_bytes: The most memory that the worker had at once; None when not known.
        stack: The Python stack of the worker, where a fatal signal ended it; else empty.
        last_words: The end of what its Python code wrote to standard error; empty if nothing.
        oom_kills: Processes of the control group that were killed for lack of memory, before
            and after; None where the system does not tell.
        shared_free_bytes: What was free in /dev/shm afterwards; None when there is none.
    """

    pid: int | None = None
    exitcode: int | None = None
    batch: int | None = None
    indices: object = None
    position: int | None = None
    sample: object = None
    peak_bytes: int | None = None
    stack: str = ""
    last_words: str = ""
    oom_kills: tuple[int | None, int | None] = (None, None)
    shared_free_bytes: int | None = None


class TooManyErrors(StokerError, RuntimeError):
    """More samples could not be read than ``on_error`` and ``max_errors`` let pass.

    Attributes:
        errors: How many there were.
    """

    errors: int = 0


class StreamEnded(StokerError, RuntimeError):
    """An error has ended the iterator of an iterable data set, so ``on_error`` can't go on."""


class ForkUnsafe(StokerError, RuntimeError):
    """Workers that are copies of this process could not use what they need."""


class ProgramUnguarded(StokerError, RuntimeError):
    """Workers that are started afresh would each run the whole program again."""


class WorkerNotStarted(StokerError, RuntimeError):
    """The system has no process or descriptor for one more worker, or a process that imports the
    program could not: it is in no file.
    """


class WaitTimeout(StokerError, RuntimeError, TimeoutError):
    """No batch came within ``timeout`` seconds.

    Attributes:
        batch: Number in the epoch of the batch that was waited for; None where any would do.
        workers: What each worker that held a batch was at, those first that were waited for:
            with ``worker`` (its number), ``pid``, ``batch``, ``indices``, ``for_s``,
            ``condition`` ("slow", "stuck" ...) and ``stack``.
    """

    batch: int | None = None
    workers: tuple[Any, ...] = ()


class IteratorStopped(StokerError, RuntimeError):
    """An iterator that cannot go on: an error has stopped it, or it is a forked copy."""


class TransportError(StokerError, RuntimeError):
    """A batch could not be carried from its worker to the main process."""


class NotPicklable(
    StokerError, pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError
):
    """Something that has to cross between processes does not pickle.

    Which of the other types pickle raises depends on what it is, and on Python's version.
    Its cause is pickle's own error.
    """


class PackIsFixed(StokerError, TypeError):
    """Something was to change in packed records, which do not change."""


class NotBuilt(StokerError, RuntimeError):
    """What a worker was sent could not be built again there. Its cause is what was raised."""


class BatchTooLarge(StokerError, RuntimeError):
    """One batch alone takes more than ``memory_limit``."""


class RaisedInWorker(Exception):
    """The cause of an exception that came from a worker: what the worker knew of it.

    Attributes:
        traceback: Its traceback in the worker, as Python prints it.
        original: The exception with the arguments it had, where that is not the one raised and
            it could be built again; else None.
        left_behind: Attributes of it that do not pickle, and their types.
    """

    def __init__(
        self,
        text: str,
        *,
        traceback: str = "",
        original: BaseException | None = None,
        left_behind: dict[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.traceback, self.original = traceback, original
        self.left_behind = left_behind or {}


class TargetError(StokerError):
    """What ``stoker tune`` was pointed at is not a loader that can be measured."""


class ProgramError(StokerError):
    """The program that was to be run can't be found or started."""


class RecordError(StokerError):
    """A file is no result of ``stoker tune`` that this version can read."""
