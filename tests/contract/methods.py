"""The ways to make and carry batches that the contract holds for."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker.feed import iteration

# Others on this machine make segments too; the conftest looks for names like these.
_NAME_PREFIX = f"/psm_{os.getpid() % 1000:03}"

METHODS = ("inline", "fork", "fresh", "spawn")
PROCESSES = ("fork", "fresh", "spawn")
SEGMENTS = ("memfd", "named")

many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
"""For tests with more workers than this machine has processors."""

every_method = pytest.mark.parametrize("method", METHODS)
every_process = pytest.mark.parametrize("method", PROCESSES)
both_segments = pytest.mark.parametrize("segments", SEGMENTS)


def loader(dataset: Any, method: str, num_workers: int = 2, **options: Any) -> Any:
    """A loader whose batches are made in one of `METHODS`."""
    if method == "inline":
        for name in ("prefetch_factor", "persistent_workers", "timeout", "worker_init_fn"):
            options.pop(name, None)
        return stoker.DataLoader(dataset, num_workers=0, **options)
    return stoker.DataLoader(dataset, num_workers=num_workers, worker_method=method, **options)


def use_segments(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """From now on, new loaders carry large batches in this kind of shared memory."""
    monkeypatch.setattr(iteration, "kind_here", lambda: kind)
    monkeypatch.setattr(shared_memory, "_SHM_NAME_PREFIX", _NAME_PREFIX)


def segments_here() -> set[str]:
    """Segments with a name that this test run has made, and those mapped into this process."""
    shared = Path("/dev/shm")
    names = {path.name for path in shared.iterdir()} if shared.is_dir() else set()
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    marks = ("memfd:stoker (", _NAME_PREFIX)
    mapped = {line.split()[4] for line in lines if any(mark in line for mark in marks)}
    return mapped | {name for name in names if name.startswith(_NAME_PREFIX[1:])}


def seeded_epochs(make: Callable[[], Any], epochs: int = 1, seed: int = 11) -> list[list[Any]]:
    """The batches of some epochs of a new loader, after ``torch.manual_seed``."""
    torch.manual_seed(seed)
    made = make()
    return [list(made) for _ in range(epochs)]


def answers(iterator: Iterator[Any]) -> Iterator[Any]:
    """The batches of an epoch, and in place of one that failed, the error."""
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except Exception as error:
            yield error


class Tabled(Dataset[Any]):
    """Samples from a function of the index; the function has to be importable for spawn."""

    def __init__(self, length: int, sample: Callable[[int], Any]) -> None:
        self.length = length
        self.sample = sample

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)


def fixed_batches(dataset: Any, method: str, **options: Any) -> list[Any]:
    """The batches of one epoch, after the same ``torch.manual_seed``."""
    return seeded_epochs(functools.partial(loader, dataset, method, **options))[0]
