"""What a loader has to know of its samplers, and of when they draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler


class Late:
    """A sampler whose ``__iter__`` runs only when the first item is asked for."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)


def draws_globally(sampler: Any) -> bool:
    """Whether a sampler may draw from a global generator: known ones are looked into."""
    kind = type(sampler)
    if kind is BatchSampler:
        return draws_globally(sampler.sampler)
    if kind in (SequentialSampler, _InfiniteConstantSampler):
        return False
    if kind in (RandomSampler, SubsetRandomSampler, WeightedRandomSampler):
        return sampler.generator is None
    return True
