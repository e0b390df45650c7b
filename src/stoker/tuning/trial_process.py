"""What runs inside a trial's own interpreter: load the target, measure, tell the parent.

The process's standard output becomes the channel: one JSON object a line, "loaded", then
"progress" at most five times a second, then "observed" or "failed". Whatever the user's
code prints goes to standard error. When the channel breaks, the parent is gone, and the
process ends together with its workers.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import StokerError, TargetError
from stoker.tuning import target as targets
from stoker.tuning.meter import Meter, Plan
from stoker.tuning.result import Failure, FailureKind
from stoker.tuning.wording import count_of, workers

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

PROGRESS_EVERY_S = 0.2
DETAIL_LINES = 20
TORCH_FOLDER = os.path.join("torch", "utils", "data", "")
OWN_FOLDER = str(Path(__file__).parents[1])


class Channel:
    """Events to the parent, over what was standard output."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, event: str, **fields: object) -> None:
        """Send one event; ends the process group when nobody listens any more."""
        try:
            self._stream.write(json.dumps({"event": event, **fields}) + "\n")
            self._stream.flush()
        except BrokenPipeError:
            if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)
            os._exit(1)


def main() -> None:
    """Run the trial that the first command line argument asks for, as JSON."""
    request = json.loads(sys.argv[1])
    channel = Channel()
    faulthandler.enable()
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=False)
    # Trying more workers than CPUs is meant here, even where warnings are errors.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    count: int = request["num_workers"]
    try:
        loader = _load(request["target"], request["seed"])
    except TargetError as error:
        channel.send("failed", failure=asdict(_target_failure(error)))
        return
    from stoker.tuning.loader_facts import facts_of  # imports torch, which loading has done

    channel.send("loaded", loader=asdict(facts_of(loader)))
    try:
        from stoker.tuning.rebuild import with_workers

        loader = with_workers(loader, count)
    except Exception as error:
        doing = f"making the loader again with {workers(count)}"
        channel.send("failed", failure=asdict(_failure(error, count, doing, 0)))
        return
    _measure(loader, Plan(request["batches"], request["seconds"]), count, channel)


def _load(target: str, seed: int) -> DataLoader[Any]:
    """The target's loader; seeded, so that the trials of one round read the same samples."""
    place, name = targets.parse_target(target)
    if targets.is_file(place):
        targets.check_file(target, place)
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    found = targets.find_name(target, targets.import_place(target, place), name)
    loader: DataLoader[Any] = targets.make_loader(target, found)
    return loader


def _measure(loader: DataLoader[Any], plan: Plan, count: int, channel: Channel) -> None:
    persistent = count > 0 and bool(loader.persistent_workers)
    meter = Meter(plan, count, prefetch=loader.prefetch_factor or 2, persistent=persistent)
    from stoker.tuning.loader_facts import length_of

    length = length_of(loader)
    try:
        _run_epochs(loader, meter, length, channel)
    except (Exception, SystemExit) as error:
        _let_no_worker_interrupt()
        partial = meter.observation(length, complete=False)
        came = count_of(meter.batches, "batch")
        doing = f"reading batches with {workers(count)}, after {came}"
        failure = _failure(error, count, doing, meter.batches)
        channel.send("failed", failure=asdict(failure), observation=partial and asdict(partial))
        return
    observation = meter.observation(length, complete=True)
    if observation is None:
        channel.send("failed", failure=asdict(_empty(count)))
        return
    channel.send("observed", observation=asdict(observation))


def _let_no_worker_interrupt() -> None:
    """Torch raises out of its SIGCHLD handler, so a second dead worker would cut off the report."""
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _run_epochs(
    loader: DataLoader[Any], meter: Meter, length: int | None, channel: Channel
) -> None:
    """Epochs until the meter has enough."""
    clock = time.perf_counter
    enough, report_at = False, 0.0
    while not enough:
        meter.start_epoch(clock())
        for _ in loader:
            now = clock()
            if meter.batch(now):
                enough = True
                break
            if now >= report_at:
                report_at = now + PROGRESS_EVERY_S
                so_far = meter.observation(length, complete=False)
                told = so_far and asdict(so_far)
                channel.send("progress", batches=meter.batches, observation=told)
        else:
            enough = meter.end_epoch(clock())


def _empty(count: int) -> Failure:
    return Failure(
        kind="empty",
        num_workers=count,
        what="The loader gave no batch at all.",
        doing=f"reading an epoch with {workers(count)}",
        likely="its data set or sampler is empty, or drop_last drops the only batch",
        change="name a loader with at least one batch",
        batches=0,
    )


def _target_failure(error: TargetError) -> Failure:
    cause = error.__cause__
    detail = "" if cause is None or isinstance(cause, SystemExit) else _traceback(cause)
    return Failure(
        "target", None, error.what, error.doing, error.likely, error.change, detail=detail
    )


def _failure(error: BaseException, count: int, doing: str, batches: int) -> Failure:
    kind: FailureKind = "died" if _is_death(error) else "raised"
    if isinstance(error, StokerError):
        doing = f"{doing}; {error.doing}" if error.doing else doing
        parts = (error.what, doing, error.likely, error.change)
    elif kind == "died":
        likely = "memory ran out, or code of the data set ended or crashed the process"
        parts = (f"A worker died: {error}".splitlines()[0], doing, likely, "")
    else:
        parts = (targets.summary_of(error), doing, "", "")
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


if __name__ == "__main__":
    main()
