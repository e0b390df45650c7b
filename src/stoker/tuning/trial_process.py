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
import signal
import sys
import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stoker.errors import TargetError
from stoker.tuning.failing import failure_of, no_batch, target_failure
from stoker.tuning.loading import Step, load
from stoker.tuning.meter import Meter, Plan
from stoker.tuning.wording import count_of, workers

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

PROGRESS_EVERY_S = 0.2


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
        loader = load(request["target"], request["seed"], batch_size=request["batch_size"])
        step = Step(request["step"], request["step_ms"])
    except TargetError as error:
        channel.send("failed", failure=asdict(target_failure(error)))
        return
    from stoker.tuning.loader_facts import facts_of  # imports torch, which loading has done

    channel.send("loaded", loader=asdict(facts_of(loader)))
    try:
        from stoker.tuning.rebuild import with_workers

        loader = with_workers(loader, count)
    except Exception as error:
        doing = f"making the loader again with {workers(count)}"
        channel.send("failed", failure=asdict(failure_of(error, count, doing, 0)))
        return
    _measure(loader, step, Plan(request["batches"], request["seconds"]), count, channel)


def _measure(loader: DataLoader[Any], step: Step, plan: Plan, count: int, channel: Channel) -> None:
    persistent = count > 0 and bool(loader.persistent_workers)
    meter = Meter(plan, count, prefetch=loader.prefetch_factor or 2, persistent=persistent)
    from stoker.tuning.loader_facts import length_of

    length = length_of(loader)
    try:
        _run_epochs(loader, step, meter, length, channel)
    except (Exception, SystemExit) as error:
        _let_no_worker_interrupt()
        partial = meter.observation(length, complete=False)
        came = count_of(meter.batches, "batch")
        doing = f"reading batches with {workers(count)}, after {came}"
        failure = failure_of(error, count, step.doing(doing, meter.batches), meter.batches)
        channel.send("failed", failure=asdict(failure), observation=partial and asdict(partial))
        return
    observation = meter.observation(length, complete=True)
    if observation is None:
        channel.send("failed", failure=asdict(no_batch(count)))
        return
    channel.send("observed", observation=asdict(observation))


def _let_no_worker_interrupt() -> None:
    """Torch raises out of its SIGCHLD handler, so a second dead worker would cut off the report."""
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _run_epochs(
    loader: DataLoader[Any], step: Step, meter: Meter, length: int | None, channel: Channel
) -> None:
    """Epochs until the meter has enough; a batch's time is that from batch to batch."""
    clock = time.perf_counter
    enough, report_at = False, 0.0
    while not enough:
        meter.start_epoch(clock())
        for batch in loader:
            now = clock()
            if meter.batch(now):
                enough = True
                break
            if now >= report_at:
                report_at = now + PROGRESS_EVERY_S
                so_far = meter.observation(length, complete=False)
                told = so_far and asdict(so_far)
                channel.send("progress", batches=meter.batches, observation=told)
            step(batch)
        else:
            enough = meter.end_epoch(clock())


if __name__ == "__main__":
    main()
