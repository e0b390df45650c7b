"""Data sets and collate functions for the contract; importable, as fresh processes need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from tests.datasets import Plain, draw_all


def collate_drawing(samples: list[Any]) -> Any:
    """Adds random numbers from all three generators to the collated batch."""
    return default_collate(samples), draw_all()


class Augmented(Plain):
    """Images noised with torch, flipped with `random`, and shifted with numpy."""

    def __getitem__(self, index: int) -> Any:
        image = super().__getitem__(index) + torch.rand(self.shape)
        flipped = random.random() < 0.5
        image = image.flip(0) if flipped else image
        return image + float(np.random.normal()), index, flipped


class DrawingUnseen(Plain):
    """Draws under a guard that puts the generators back, so that nothing seems drawn."""

    def __getitem__(self, index: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            first = torch.rand(1)
        state = random.getstate()
        second = random.random()
        random.setstate(state)
        return index, first, second


class InTurns(Plain):
    """The first batches, one for each worker, finish in reverse order.

    Batch k waits until batch k + 1 is done, for all k below `workers` - 1.
    """

    def __init__(
        self, length: int, size: int, workers: int, context: Any, shape: tuple[int, ...]
    ) -> None:
        super().__init__(length, shape)
        self.size = size
        self.workers = workers
        self.done = [context.Event() for _ in range(workers)]

    def __getitem__(self, index: int) -> Any:
        batch = index // self.size
        if batch < self.workers - 1 and not self.done[batch + 1].wait(20):
            raise TimeoutError(f"batch {batch + 1} was never made beside batch {batch}")
        if batch < self.workers and index % self.size == self.size - 1:
            self.done[batch].set()
        return super().__getitem__(index), draw_all(), index


class HeldBack(Plain):
    """Index `at` is read once `gate` is set; every other read adds one to `made`."""

    def __init__(self, length: int, at: int, context: Any, shape: tuple[int, ...] = (3,)) -> None:
        super().__init__(length, shape)
        self.at = at
        self.gate = context.Event()
        self.made = context.Semaphore(0)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            if not self.gate.wait(30):
                raise TimeoutError("nobody opened the gate")
        else:
            self.made.release()
        return super().__getitem__(index)


class Reporting(Dataset[Any]):
    """Each sample tells who made it: pid, and what `get_worker_info` says."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.mark = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        import os

        info = get_worker_info()
        if info is None:
            return os.getpid(), None
        known = (info.id, info.num_workers, info.seed, info.dataset is self)
        return os.getpid(), known, self.mark, torch.initial_seed(), torch.get_num_threads()


class Parts(IterableDataset[Any]):
    """Worker w yields (w, 0), (w, 1), ... as many as `lengths[w]` says."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        part = info.id if info is not None else 0
        for step in range(self.lengths[part]):
            yield part, step


class EndsOnce(IterableDataset[int]):
    """Its iterator fails the epoch when it is asked again after its end."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return _EndsOnce(self.length)


class _EndsOnce(Iterator[int]):
    def __init__(self, length: int) -> None:
        self.left = length
        self.ended = False

    def __next__(self) -> int:
        if self.ended:
            raise AssertionError("next() was called after StopIteration")
        if not self.left:
            self.ended = True
            raise StopIteration
        self.left -= 1
        return self.left


class SwappingBits(Plain):
    """Replaces numpy's global bit generator while a sample is read."""

    def __getitem__(self, index: int) -> Any:
        np.random.set_bit_generator(np.random.PCG64(index))
        return index, float(np.random.rand())
