"""The program that uses one loader, for ``stoker tune TARGET``: a step for every batch, over and
over, until it is stopped from within. It is watched as every other program is.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import threading
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stoker.errors import TargetError
from stoker.tuning.failing import failure_of, no_batch, target_failure
from stoker.tuning.loading import Step, load
from stoker.tuning.result import Failure
from stoker.tuning.wording import count_of
from stoker.watch.settings import Settings

FAILED = "target-failed.json"
SEED = 0
INSIST_S = 1.0
NOT_SAID = (
    "This DataLoader will create",
    "'pin_memory' argument is set as true but no accelerator",
)
"""Warnings of PyTorch's: more workers than CPUs are tried on purpose, and again for each epoch."""


def main() -> None:
    """Use the loader that the first argument tells of, until the program is stopped."""
    request: dict[str, Any] = json.loads(sys.argv[1])
    settings = Settings.here()
    folder = settings.folder if settings else ""
    try:
        loader = load(request["target"], SEED, batch_size=request["batch_size"])
        step = Step(request["step"], request["step_ms"])
    except TargetError as error:
        _tell(folder, target_failure(error))
        sys.exit(1)
    for message in NOT_SAID:
        warnings.filterwarnings("ignore", message=message)
    batches = 0
    signal.signal(signal.SIGINT, _interrupted)
    try:
        while True:
            before = batches
            for batch in loader:
                batches += 1
                step(batch)
            if batches == before:
                _tell(folder, no_batch(int(loader.num_workers)))
                sys.exit(1)
    except KeyboardInterrupt:
        _ending.set()
        sys.exit(130)  # the command was interrupted, and tells what was seen
    except Exception as error:
        count = int(loader.num_workers)
        doing = f"reading batches, after {count_of(batches, 'batch')}"
        _tell(folder, failure_of(error, count, step.doing(doing, batches), batches))
        sys.exit(1)


_ending = threading.Event()


def _interrupted(number: int, frame: object) -> None:
    """Python loses an interrupt that comes while it forks: it is repeated until it is heeded."""
    if not _ending.is_set():
        threading.Thread(target=_insist, daemon=True).start()
        raise KeyboardInterrupt


def _insist() -> None:
    if not _ending.wait(INSIST_S):
        _thread.interrupt_main()


def _tell(folder: str, failure: Failure) -> None:
    with contextlib.suppress(OSError):
        target = Path(folder) / FAILED
        part = target.with_suffix(".part")
        part.write_text(json.dumps(asdict(failure)), encoding="utf-8")
        os.replace(part, target)
