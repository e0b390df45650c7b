"""What the programs of this folder are made of, and how they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 100.0

DATA = """
import torch
from torch.utils.data import Dataset
from stoker import DataLoader

def doubled(x):
    return x * 2 + torch.rand(1)

class Noisy(Dataset):
    # Large enough for slots, and with random numbers.
    def __init__(self, length=24, transform=doubled):
        self.length = length
        self.transform = transform
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return self.transform(torch.full((64, 64), float(index)))

def epoch(loader):
    return torch.stack(list(loader))

def check(dataset, **options):
    # Workers make what the main process makes.
    options = {"batch_size": 4, "seed": 1, **options}
    made = epoch(DataLoader(dataset, **options))
    for name in ("multiprocessing_context", "num_workers", "worker_method"):
        options.pop(name, None)
    assert torch.equal(made, epoch(DataLoader(dataset, num_workers=0, **options)))
"""


def write(folder: Path, body: str, name: str = "program.py") -> None:
    """A program with `DATA` and `check`, and what it does below its guard."""
    guarded = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (folder / name).write_text(f'{DATA}\nif __name__ == "__main__":\n{guarded}')


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program of this Python, which has to end well."""
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended
