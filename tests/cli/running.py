"""Programs that are run under ``stoker run``, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PACKAGE

DATA = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Items(Dataset):
    def __init__(self, length=24, fault=None):
        self.length, self.fault = length, fault
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if self.fault is not None and index == 5:
            self.fault()
        return torch.rand(2) + index

"""


@dataclass
class Ended:
    code: int
    out: bytes
    err: str

    @property
    def summary(self) -> list[str]:
        """The lines of Stoker's; nothing of the program's may come after them."""
        lines = self.err.splitlines()
        starts = [n for n, line in enumerate(lines) if line.startswith("stoker run:")]
        assert len(starts) == 1, self.err
        return lines[starts[0] :]

    @property
    def loaders(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["loaders"]
        return found


class Folder:
    """Where scripts are written and run."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self.path = path
        self.temporary = temporary

    def write(self, source: str, name: str = "train.py") -> str:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(source)
        return name

    def line(self, code: str, name: str = "train.py") -> int:
        """The number of the line with this code."""
        lines = (self.path / name).read_text().splitlines()
        (number,) = (n for n, line in enumerate(lines, 1) if code in line)
        return number

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, *words], **environment)

    def _start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        paths = [PACKAGE, os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        return subprocess.Popen(
            words,
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.temporary), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def plain(self, *words: str, stdin: bytes = b"", **environment: str) -> Ended:
        with self.start(*words, **environment) as process:
            out, err = process.communicate(stdin, timeout=100)
        return Ended(process.returncode, out, err.decode())

    def shell(self, line: str) -> Ended:
        """What a shell makes of a line."""
        with self._start(["sh", "-c", line]) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err.decode())

    def run(self, *words: str, stdin: bytes = b"", **environment: str) -> Ended:
        """`stoker run`; nothing of it is left in the temporary folder."""
        ended = self.plain("-m", "stoker", "run", *words, stdin=stdin, **environment)
        assert list(self.temporary.glob("stoker-*")) == []
        return ended


@pytest.fixture
def folder(tmp_path: Path, short_path: Path) -> Folder:
    return Folder(tmp_path, short_path)
