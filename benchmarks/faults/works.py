"""The data set that is loaded: it draws, takes a little time, and fills slots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Work(Dataset[Any]):
    """Sample i is i and random numbers.

    Args:
        length: Samples.
        seconds: How long each takes.
        width: Numbers in each.
    """

    def __init__(self, length: int, seconds: float, width: int) -> None:
        self.length = length
        self.seconds = seconds
        self.width = width

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return index, torch.rand(self.width), float(np.random.rand())


class Stream(IterableDataset[Any]):
    """The same numbers, shared among workers by stride."""

    def __init__(self, length: int, width: int) -> None:
        self.length = length
        self.width = width

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for number in range(first, self.length, step):
            yield number, torch.rand(self.width), float(np.random.rand())


def checksum(batch: Any) -> int:
    """Of every bit of a batch."""
    index, numbers, drawn = batch
    value = crc32(index.numpy().tobytes())
    flat: Any = np.ascontiguousarray(numbers.numpy())
    value = crc32(flat, value)
    return crc32(drawn.numpy().tobytes(), value)
