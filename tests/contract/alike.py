"""Whether two batches are the same, bit for bit, and deep copies to compare with later."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


def differences(left: Any, right: Any, path: str = "batch") -> list[str]:
    """What differs between two batches, one line each; types count, and so does every bit."""
    if type(left) is not type(right):
        return [f"{path}: {type(left).__name__} and {type(right).__name__}"]
    if isinstance(left, torch.Tensor):
        return _tensor_differences(left, right, path)
    if isinstance(left, np.ndarray):
        same = left.dtype == right.dtype and left.shape == right.shape
        same = same and (left.tobytes() == right.tobytes() if left.dtype != object else True)
        return [] if same else [f"{path}: arrays {left!r} and {right!r}"]
    if isinstance(left, Mapping):
        if list(left) != list(right):
            return [f"{path}: keys {list(left)} and {list(right)}"]
        return [x for key in left for x in differences(left[key], right[key], f"{path}[{key!r}]")]
    if isinstance(left, Sequence) and not isinstance(left, (str, bytes)):
        if len(left) != len(right):
            return [f"{path}: {len(left)} and {len(right)} items"]
        pairs = enumerate(zip(left, right, strict=True))
        return [x for i, (a, b) in pairs for x in differences(a, b, f"{path}[{i}]")]
    if hasattr(left, "__dict__") and not isinstance(left, enum.Enum):
        return differences(vars(left), vars(right), f"{path}.__dict__")
    same = left == right or (left != left and right != right)
    return [] if same else [f"{path}: {left!r} and {right!r}"]


def _tensor_differences(left: torch.Tensor, right: torch.Tensor, path: str) -> list[str]:
    facts = [(x.dtype, tuple(x.shape), x.layout, x.requires_grad) for x in (left, right)]
    if facts[0] != facts[1]:
        return [f"{path}: {facts[0]} and {facts[1]}"]
    left, right = left.detach(), right.detach()
    if left.layout is not torch.strided:
        left, right = left.to_dense(), right.to_dense()
    if left.numel() == 0:
        return []
    one, other = _bits(left), _bits(right)
    if torch.equal(one, other):
        return []
    count = int((one != other).sum())
    shown = [each.flatten()[:3].tolist() for each in (left, right)]  # a whole tensor takes ms
    return [f"{path}: {count} of {one.numel()} bytes, {shown[0]}... and {shown[1]}..."]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def assert_same(left: Any, right: Any) -> None:
    """Fails where two batches, or lists of batches, differ."""
    found = differences(left, right)
    assert not found, "\n".join(found[:5])


def copied(batch: Any) -> Any:
    """A deep copy with memory of its own."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, np.ndarray):
        return batch.copy()
    if isinstance(batch, dict):
        return {key: copied(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(copied, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(copied, batch))
    return batch
