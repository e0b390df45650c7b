"""Batches that are kept for a while, to be handed out again as if they had been ready."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

KEPT, KEPT_BYTES = 4, 512 * 1024 * 1024
_PLAIN = (str, bytes, int, float, bool, complex, type(None))


class Kept:
    """A few batches, as the loader made them. What is handed out the consumer may take apart."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self._most = KEPT
        self._copied = True
        self._next = 0

    @property
    def full(self) -> bool:
        """Whether there are enough."""
        return len(self._batches) >= self._most

    def keep(self, batch: Any, size_bytes: int) -> None:
        """Keeps a batch, unless there are enough; one only where they are large."""
        if self.full:
            return
        if size_bytes * KEPT > KEPT_BYTES:
            self._most, self._copied = 1, size_bytes <= KEPT_BYTES
        self._batches.append(copy_of(batch) if self._copied else batch)

    def again(self) -> Any:
        """One of them, in turn; a copy, unless one of them is all of `KEPT_BYTES`."""
        self._next += 1
        batch = self._batches[self._next % len(self._batches)]
        return copy_of(batch) if self._copied else batch

    def clear(self) -> None:
        """They are no longer wanted."""
        self._batches.clear()


def copy_of(batch: Any) -> Any:
    """A batch that shares nothing that can be changed; what can't be copied is handed out."""
    try:
        return _copied(batch)
    except Exception:  # the user's own class may refuse it in any way
        return batch


def _copied(batch: Any) -> Any:
    kind = type(batch)
    if kind in _PLAIN:
        return batch
    if isinstance(batch, torch.Tensor):
        return _tensor(batch)
    if isinstance(batch, np.ndarray) and batch.dtype != object:
        return batch.copy()
    if kind is dict:
        return {key: _copied(value) for key, value in batch.items()}
    if kind in (list, tuple):
        return kind([_copied(value) for value in batch])
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*(_copied(value) for value in batch))
    return copy.deepcopy(batch)


def _tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_cpu and tensor.layout is torch.strided and tensor.is_pinned():
        return torch.empty_like(tensor, pin_memory=True).copy_(tensor)
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


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
