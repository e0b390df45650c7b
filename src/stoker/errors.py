"""Stoker's exceptions: what happened, what was being done, the likely cause, the change.

Every class is also a subclass of what ``torch.utils.data.DataLoader`` raises in the
same place, so that programs which catch torch's exceptions keep working.
"""

from __future__ import annotations


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


class WorkerDied(StokerError, RuntimeError):
    """A worker process ended without being asked to.

    Attributes:
        pid: Process id of the worker.
        exitcode: As ``multiprocessing.Process.exitcode``: negative is a signal's number;
            None when it could not be learnt.
        batch: Number of the batch in the epoch that it was making; None when idle.
        indices: The sample indices of that batch; None when idle or for an iterable dataset.
    """

    pid: int | None = None
    exitcode: int | None = None
    batch: int | None = None
    indices: object = None


class ProgramUnguarded(StokerError, RuntimeError):
    """Workers that are started afresh would each run the whole program again."""


class WaitTimeout(StokerError, RuntimeError, TimeoutError):
    """No batch came within ``timeout`` seconds."""


class IteratorStopped(StokerError, RuntimeError):
    """An iterator that cannot go on: an error has stopped it, or it is a forked copy."""


class TransportError(StokerError, RuntimeError):
    """A batch could not be carried from its worker to the main process."""


class BatchTooLarge(StokerError, RuntimeError):
    """One batch alone takes more than ``memory_limit``."""


class TargetError(StokerError):
    """What ``stoker tune`` was pointed at is not a loader that can be measured."""


class ProgramError(StokerError):
    """The program that was to be run can't be found or started."""


class RecordError(StokerError):
    """A file is no result of ``stoker tune`` that this version can read."""
