"""Runs the real command on small loaders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import stoker.errors

PACKAGE = str(Path(stoker.errors.__file__).parents[1])

HEADER = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Items(Dataset):
    def __init__(self, fault=None, at=20, length=80):
        self.fault, self.at, self.length = fault, at, length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if index == self.at and self.fault is not None:
            self.fault()
        return torch.zeros(2)
"""


def write_target(folder: Path, body: str) -> Path:
    """A file ``target.py`` with a small data set and ``body``."""
    path = folder / "target.py"
    path.write_text(HEADER + body)
    return path


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """``stoker ARGUMENTS`` in ``folder``, as a user's shell would start it."""
    paths = [PACKAGE, os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", "stoker", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with start(folder, *arguments) as process:
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err
