"""Batches that are kept for a while, to be handed out again as if they had been ready."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import torch

KEPT, KEPT_BYTES = 4, 512 * 1024 * 1024


class Kept:
    """The last few batches.

    The consumer may take a batch apart: containers are copied, tensors are not.
    """

    def __init__(self) -> None:
        self._batches: deque[Any] = deque(maxlen=KEPT)
        self._next = 0

    def keep(self, batch: Any, size_bytes: int) -> None:
        """Keeps a batch; one only where they are large."""
        if size_bytes * KEPT > KEPT_BYTES:
            self._batches.clear()
        self._batches.append(shell_of(batch))

    def __bool__(self) -> bool:
        return bool(self._batches)

    def again(self) -> Any:
        """One of them, in turn."""
        self._next += 1
        return shell_of(self._batches[self._next % len(self._batches)])

    def clear(self) -> None:
        """They are no longer wanted."""
        self._batches.clear()


def shell_of(batch: Any) -> Any:
    """A batch with containers of its own around the same tensors."""
    if isinstance(batch, torch.Tensor):
        return batch
    if type(batch) is dict:
        return {key: shell_of(value) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)([shell_of(value) for value in batch])
    try:
        return copy.copy(batch)
    except Exception:  # something that can't be copied is handed out as it is
        return batch


def size_of(batch: Any, depth: int = 4) -> int:
    """Bytes of the tensors and arrays in a batch, as far as one can see."""
    size = getattr(batch, "nbytes", None)
    if isinstance(size, int):
        return size
    if depth and isinstance(batch, (list, tuple)):
        return sum(size_of(each, depth - 1) for each in batch[:64])
    values = getattr(batch, "values", None)
    if depth and callable(values) and not isinstance(batch, type):
        try:
            return sum(size_of(each, depth - 1) for each in list(values())[:64])
        except Exception:
            return 0
    return 0
