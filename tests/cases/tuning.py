"""Runs ``stoker tune`` on a loader or a whole program, and reads its report.

Samples sleep: how fast they come does not depend on the CPUs that a test happens to get.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import start

PATIENCE_S = 110.0  # on a machine that has much else to do; alone it is some seconds

HEADER = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Sleeping(Dataset):
    def __init__(self, length, sample_s):
        self.length, self.sample_s = length, sample_s
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return torch.zeros(4)
"""


@dataclass(frozen=True)
class Told:
    """What the command wrote.

    Attributes:
        code: Exit code.
        record: The JSON report.
        out: Standard output.
        error: Standard error.
    """

    code: int
    record: dict[str, Any]
    out: str
    error: str

    @property
    def only(self) -> dict[str, Any]:
        """The answer for the only loader."""
        [answer] = self.record["loaders"]
        found: dict[str, Any] = answer
        return found

    def at(self, code: str) -> dict[str, Any]:
        """The answer for the loader that a line with this text made."""
        [found] = [each for each in self.record["loaders"] if code in each["site"]["code"]]
        answer: dict[str, Any] = found
        return answer


def tune(folder: Path, body: str, *arguments: str, name: str = "", seconds: float = 15) -> Told:
    """``stoker tune`` for a file with `body`, as a program or as a target.

    Args:
        folder: Where the file is written, and the command runs.
        body: What follows `HEADER`.
        arguments: Options of the command.
        name: A loader in the file; empty for the whole program.
        seconds: Of watching.
    """
    (folder / "train.py").write_text(HEADER + body)
    what = f"train.py:{name}" if name else "train.py"
    given = ("--no-cache", "--seconds", f"{seconds:g}", "--json", "result.json", *arguments)
    with start(folder, "tune", *given, what) as process:
        try:
            out, error = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
    text = (folder / "result.json").read_text("utf-8")
    return Told(process.returncode, json.loads(text), out, error)


def rate_of(answer: dict[str, Any], count: int) -> dict[str, Any]:
    """What was measured with so many workers of PyTorch's loader."""
    [rate] = [
        each
        for each in answer["rates"]
        if (each["num_workers"], each["engine"], each["prefetch_factor"]) == (count, "torch", None)
    ]
    found: dict[str, Any] = rate
    return found


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Programs that are started meanwhile may use one CPU, as under ``taskset``."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
