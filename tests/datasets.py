"""Small data sets that many tests use; importable, so that any kind of worker can load them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Plain(Dataset[Any]):
    """Sample i is a float tensor full of i; draws nothing."""

    def __init__(self, length: int, shape: tuple[int, ...] = (3,)) -> None:
        self.length = length
        self.shape = shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return torch.full(self.shape, float(index))


def draw_all() -> tuple[torch.Tensor, float, float, float, float]:
    """Random numbers from torch, `random` and numpy; a Gaussian stays pending in each."""
    return (
        torch.cat([torch.rand(2), torch.randn(1)]),
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
    )


class Drawing(Plain):
    """Sample i is i and random numbers from torch, `random` and numpy's global generators."""

    def __getitem__(self, index: int) -> Any:
        return index, *draw_all()


class DrawingFrom(Plain):
    """Draws only for indices from `first` on."""

    def __init__(self, length: int, first: int) -> None:
        super().__init__(length)
        self.first = first

    def __getitem__(self, index: int) -> Any:
        number = float(torch.rand(())) if index >= self.first else 0.0
        return index, number, float(np.random.rand()) if index >= self.first else 0.0


class Counting(Plain):
    """Remembers how often each index was read, in the process that reads."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.reads: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        return super().__getitem__(index)


class Failing(Plain):
    """Raises `error` when index `at` is read."""

    def __init__(self, length: int, at: int, error: BaseException | None = None) -> None:
        super().__init__(length)
        self.at = at
        self.error = error if error is not None else ValueError(f"sample {at} is broken")

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise self.error
        return super().__getitem__(index)


class Gated(Plain):
    """Index `at` is read only once `gate` (an event of multiprocessing or threading) is set."""

    def __init__(self, length: int, at: int, gate: Any) -> None:
        super().__init__(length)
        self.at = at
        self.gate = gate

    def __getitem__(self, index: int) -> Any:
        if index == self.at and not self.gate.wait(30):
            raise TimeoutError("nobody opened the gate")
        return super().__getitem__(index)


class Sleeping(Plain):
    """Every sample takes `seconds`."""

    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return super().__getitem__(index)


class Ragged(Plain):
    """Sample i has i % 7 + 1 rows."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index).expand(index % 7 + 1, *self.shape).clone()


class Nested(Plain):
    """A dict with tensors of several types, an array, numbers and text."""

    def __getitem__(self, index: int) -> Any:
        return {
            "image": torch.full((3, 8, 8), index, dtype=torch.uint8),
            "label": index,
            "weight": index / 7,
            "name": f"sample {index}",
            "pair": (torch.tensor(index), np.full(4, index, dtype=np.int32)),
        }


class Batched(Plain):
    """Has ``__getitems__``."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):
    """The numbers 0 to `length` - 1, shared among workers by stride."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(first, self.length, step))


class DrawingStream(Stream):
    """Each number with random ones beside it."""

    def __iter__(self) -> Iterator[Any]:
        for number in super().__iter__():
            yield number, *draw_all()


class Telling(Plain):
    """Sample i is i, what `mark` was in the process that read it, and whether that is a worker."""

    def __init__(self, length: int, mark: int = 0) -> None:
        super().__init__(length)
        self.mark = mark

    def __getitem__(self, index: int) -> tuple[int, int, bool]:
        return index, self.mark, get_worker_info() is not None


class Slow(Drawing):
    """Waits for each sample, so that workers pay; counts in `by_workers` what workers read."""

    def __init__(self, length: int, seconds: float, by_workers: Any) -> None:
        super().__init__(length)
        self.seconds = seconds
        self.by_workers = by_workers

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        if get_worker_info() is not None:
            self.by_workers.release()
        return super().__getitem__(index)


class OnlyInMain(Plain):
    """A sample can be read in the main process only, as where that holds a connection."""

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None:
            raise ConnectionError("the connection is the main process's")
        return super().__getitem__(index)


class EndsOnArrival(Plain):
    """A process that loads it from a pickle ends at once."""

    def __setstate__(self, state: Any) -> None:
        os._exit(3)
