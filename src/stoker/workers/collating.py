"""Collation straight into recycled memory.

torch's ``default_collate`` stacks tensors through an entry of ``default_collate_fn_map``.
Here that entry is replaced by one that stacks into memory it is given. Whatever torch would
not simply stack is left to torch, and a map that the user has changed is respected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

Allocate = Callable[[int], "tuple[Any, int] | None"]
"""Gives memory for a number of bytes as (buffer, offset into it), or None."""

_STOCK_STACK: Any = torch_collate.collate_tensor_fn


class Stacking:
    """Replaces torch's stacking of tensors in ``default_collate_fn_map``.

    Args:
        allocate: Where large stacks go.
        least_bytes: Stacks below this size are left to the ordinary allocator.
    """

    def __init__(self, allocate: Allocate, least_bytes: int) -> None:
        self._allocate = allocate
        self._least_bytes = least_bytes

    def __call__(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        if first.is_nested or first.layout is not torch.strided:
            refused: torch.Tensor = _STOCK_STACK(batch, collate_fn_map=collate_fn_map)
            return refused
        size_bytes = first.numel() * first.element_size() * len(batch)
        if size_bytes < self._least_bytes or not _uniform(batch):
            return torch.stack(batch, 0)
        memory = self._allocate(size_bytes)
        if memory is None:
            return torch.stack(batch, 0)
        buffer, offset = memory
        count = first.numel() * len(batch)
        flat = torch.frombuffer(buffer, dtype=first.dtype, count=count, offset=offset)
        try:
            return torch.stack(batch, 0, out=flat.view(len(batch), *first.shape))
        except RuntimeError:  # A tensor needs its gradient, or torch.stack refuses them all.
            return torch.stack(batch, 0)


def _uniform(batch: Any) -> bool:
    """Whether these are plain CPU tensors of one type: no promotion, no subclass."""
    return (
        batch[0].device.type == "cpu"
        and not batch[0].is_quantized
        and set(map(type, batch)) == {torch.Tensor}
        and len({tensor.dtype for tensor in batch}) == 1
    )


class DefaultCollate:
    """``default_collate`` with another way to stack tensors, in a process not our own.

    Unlike `install`, leaves torch's map as it is.
    """

    def __init__(self, stacking: Stacking) -> None:
        self._stacking = stacking
        self._seen: dict[Any, Any] = {}
        self._map: dict[Any, Any] = {}

    def __call__(self, batch: Any) -> Any:
        current = torch_collate.default_collate_fn_map
        if current != self._seen:
            self._seen = dict(current)
            self._map = dict(current)
            if current.get(torch.Tensor) is _STOCK_STACK:
                self._map[torch.Tensor] = self._stacking
        return torch_collate.collate(batch, collate_fn_map=self._map)


def install(stacking: Stacking) -> None:
    """Makes every ``default_collate`` of this process stack that way. For worker processes."""
    current: dict[Any, Any] = torch_collate.default_collate_fn_map
    if current.get(torch.Tensor) is _STOCK_STACK:
        current[torch.Tensor] = stacking


def draws_nothing(collate: Any) -> bool:
    """Whether a collate function is known not to draw random numbers: torch's, unchanged."""
    if collate is torch_collate.default_convert:
        return True
    if collate is not torch_collate.default_collate and not isinstance(collate, DefaultCollate):
        return False
    entries = torch_collate.default_collate_fn_map.values()
    return all(isinstance(f, Stacking) or f.__module__ == torch_collate.__name__ for f in entries)
