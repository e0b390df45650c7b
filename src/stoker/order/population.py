"""Which indices may take the place of one that can't be read: those its sampler draws from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WHOLE = 1 << 64


class Population:
    """Indices to draw from.

    Args:
        indices: All of them; held, not copied.
        weights: How likely each is, in any unit; None: all the same.
    """

    def __init__(self, indices: Sequence[Any], weights: Any = None) -> None:
        self._indices = indices
        self._weights = weights
        self._sums: Any = None

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def parts(self) -> tuple[Any, ...]:
        """What it is made from: the same objects, or equal numbers, as of one like it."""
        indices = self._indices
        if isinstance(indices, range):
            return indices.start, indices.stop, indices.step, self._weights
        return indices, self._weights

    def draw(self, bits: int) -> Any:
        """The index that 64 random bits choose; there must be one."""
        indices, weights = self._indices, self._weights
        if weights is None:
            return indices[bits * len(indices) // _WHOLE]
        import numpy as np

        if self._sums is None:
            self._sums = np.cumsum(np.asarray(weights, dtype=np.float64))
        aim = bits / _WHOLE * self._sums[-1]
        return indices[min(int(np.searchsorted(self._sums, aim, side="right")), len(indices) - 1)]


def population_of(sampler: Any, *, batched: bool) -> Population | None:
    """The indices that a sampler draws from.

    Only torch's own samplers and plain lists are known: what a class of the user's leaves out,
    such as the samples kept for validation, must not come in by another way.

    Args:
        sampler: What gives the loader its batches of indices, or, if not `batched`, indices.
        batched: See there.

    Returns:
        None where it cannot be known, or there are none.
    """
    from torch.utils.data import BatchSampler

    if batched:
        return population_of(sampler.sampler, batched=False) if _is(sampler, BatchSampler) else None
    try:
        found = _known(sampler)
        return found if found is not None and len(found) else None
    except Exception:  # A data set may have no length.
        return None


def _known(sampler: Any) -> Population | None:
    from torch.utils.data import (
        DistributedSampler,
        RandomSampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )

    if _is(sampler, SequentialSampler, RandomSampler):
        return Population(range(len(sampler.data_source)))
    if _is(sampler, DistributedSampler):
        return Population(range(len(sampler.dataset)))
    if _is(sampler, SubsetRandomSampler):
        return Population(sampler.indices)
    if _is(sampler, WeightedRandomSampler):
        weights: Any = sampler.weights
        return Population(range(len(weights)), weights)
    return Population(sampler) if _is(sampler, list, tuple, range) else None


def _is(value: Any, *kinds: type) -> bool:
    return type(value) in kinds
