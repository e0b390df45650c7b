"""What went wrong in a process that measures, in the four parts of every Stoker error."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from stoker.errors import StokerError, TargetError
from stoker.tuning.named import summary_of
from stoker.tuning.result import Failure, FailureKind
from stoker.tuning.wording import workers

DETAIL_LINES = 20
TORCH_FOLDER = os.path.join("torch", "utils", "data", "")
OWN_FOLDER = str(Path(__file__).parents[1])


def no_batch(count: int) -> Failure:
    """An epoch without a batch."""
    return Failure(
        kind="empty",
        num_workers=count,
        what="The loader gave no batch at all.",
        doing=f"reading an epoch with {workers(count)}",
        likely="its data set or sampler is empty, or drop_last drops the only batch",
        change="name a loader with at least one batch",
        batches=0,
    )


def target_failure(error: TargetError) -> Failure:
    """There is no loader to measure."""
    cause = error.__cause__
    detail = "" if cause is None or isinstance(cause, SystemExit) else _traceback(cause)
    return Failure(
        "target", None, error.what, error.doing, error.likely, error.change, detail=detail
    )


def failure_of(error: BaseException, count: int, doing: str, batches: int) -> Failure:
    """The user's code raised, or a worker died, after so many batches."""
    kind: FailureKind = "died" if _is_death(error) else "raised"
    if isinstance(error, StokerError):
        doing = f"{doing}; {error.doing}" if error.doing else doing
        parts = (error.what, doing, error.likely, error.change)
    elif kind == "died":
        likely = "memory ran out, or code of the data set ended or crashed the process"
        parts = (f"A worker died: {error}".splitlines()[0], doing, likely, "")
    else:
        parts = (summary_of(error), doing, "", "")
    detail = "" if kind == "died" else _traceback(error)
    return Failure(kind, count, *parts, detail=detail, batches=batches)


def _is_death(error: BaseException) -> bool:
    from stoker.errors import WorkerDied

    text = str(error)
    by_torch = text.startswith("DataLoader worker (pid") and isinstance(error, RuntimeError)
    return (by_torch and "Original Traceback" not in text) or isinstance(error, WorkerDied)


def _traceback(error: BaseException) -> str:
    """The end of the user's traceback, without the frames of Stoker, torch's loader and imports."""
    told = traceback.TracebackException.from_exception(error)
    foreign = [frame for frame in told.stack if not _is_ours(frame.filename)]
    told.stack = traceback.StackSummary.from_list(foreign)
    lines = "".join(told.format()).rstrip().splitlines()
    return "\n".join(lines[-DETAIL_LINES:])


def _is_ours(filename: str) -> bool:
    return filename.startswith((OWN_FOLDER, "<frozen importlib")) or TORCH_FOLDER in filename
