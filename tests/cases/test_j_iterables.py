"""Public cases of group J that the engine answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import IterableDataset

import stoker


class _Caching(IterableDataset[int]):
    """Goes over its source again when it is asked after its end, as a caching stage does."""

    def __iter__(self) -> Iterator[int]:
        return _Again()


class _Again(Iterator[int]):
    def __init__(self) -> None:
        self.source = iter(range(5))

    def __next__(self) -> int:
        try:
            return next(self.source)
        except StopIteration:
            self.source = iter(range(5))
            raise


@pytest.mark.parametrize("batch_size", [None, 1, 2, 5, 8])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_c099_a_finished_iterator_is_not_asked_again(
    num_workers: int, batch_size: int | None
) -> None:
    """Each item comes once a worker, however many batches were asked for in advance."""
    options = {"multiprocessing_context": "fork", "prefetch_factor": 4} if num_workers else {}
    made = stoker.DataLoader(_Caching(), batch_size=batch_size, num_workers=num_workers, **options)
    items = [int(x) for batch in made for x in (batch.flatten() if batch_size else [batch])]
    assert sorted(items) == sorted(list(range(5)) * max(1, num_workers))
