"""``stoker.DataLoader``: torch's arguments, and the iterator that fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from stoker import options
from stoker.feed.iteration import InlineIterator, WorkerIterator
from stoker.workers.making import Draws

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A ``torch.utils.data.DataLoader`` whose batches do not depend on ``num_workers``.

    Every argument of torch's loader is taken and means the same. What differs:

    - Random numbers drawn from torch, ``random`` and numpy's global generators while a
      sample is read, or a batch collated, follow from the epoch's seed and the position of
      the sample, or batch, in the epoch. They are the same for any ``num_workers``, and
      loading in the main process leaves the caller's generators as they were.
    - A batch is given to whichever worker is free. Batches still come in order, unless
      ``in_order=False``.
    - Large tensors come in recycled memory. A batch is yours for as long as you keep it.

    An ``IterableDataset`` keeps torch's meaning: every worker has an iterator of its own.

    Args:
        dataset: As in torch.
        batch_size: As in torch; None turns automatic batching off.
        shuffle: As in torch.
        sampler: As in torch.
        batch_sampler: As in torch.
        num_workers: How many worker processes; 0 loads in the main process.
        collate_fn: As in torch.
        pin_memory: As in torch: batches are copied into page-locked memory.
        drop_last: As in torch.
        timeout: Longest wait for a batch in seconds; 0 is for ever. Only with workers.
        worker_init_fn: As in torch.
        multiprocessing_context: As in torch.
        generator: As in torch.
        prefetch_factor: Batches in advance per worker, at least 1. While the consumer waits
            for a batch, free workers may run ahead of that, within 256 MiB.
        persistent_workers: As in torch.
        pin_memory_device: As in torch.
        in_order: As in torch.
        seed: None: order and seeds are drawn from `generator` or torch's global generator,
            in the same sequence as torch draws them, so that one ``torch.manual_seed`` gives
            the same indices in the same batches as torch. An int in [0, 2**64): the loader
            has a generator of its own and leaves the global ones alone, whatever the sampler.

    Raises:
        ValueError: Arguments that exclude each other or are out of range; torch's words
            where torch refuses them too.
        TypeError: An argument of a wrong type.
    """

    seed: int | None

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
    ) -> None:
        seed = options.seed(seed)
        if prefetch_factor == 0 and num_workers > 0:
            raise options.prefetch_of_zero()
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            options.own_generator(seed, generator),
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self.seed = seed
        self._draws = Draws()

    def __setattr__(self, attr: str, val: Any) -> None:
        if attr == "seed" and "seed" in vars(self):
            # As torch refuses its own frozen attributes.
            raise ValueError(
                f"{attr} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(attr, val)

    def _get_iterator(self) -> Any:
        """What ``iter(loader)`` returns, made anew; torch's `__iter__` calls it."""
        private = self.seed is not None and _draws_globally(super()._index_sampler)
        if self.num_workers == 0:
            return InlineIterator(self, private_sampling=private, draws=self._draws)
        self.check_worker_number_rationality()
        return WorkerIterator(self, private_sampling=private, draws=self._draws)

    @property
    def _index_sampler(self) -> Any:
        """torch's; with a seed, one that is not even iterated before its first batch is wanted."""
        sampler = super()._index_sampler
        return sampler if self.seed is None else _Late(sampler)


class _Late:
    """A sampler whose ``__iter__`` runs only when the first item is asked for."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)


def _draws_globally(sampler: Any) -> bool:
    """Whether a sampler may draw from a global generator: known ones are looked into."""
    kind = type(sampler)
    if kind is BatchSampler:
        return _draws_globally(sampler.sampler)
    if kind in (SequentialSampler, _InfiniteConstantSampler):
        return False
    if kind in (RandomSampler, SubsetRandomSampler, WeightedRandomSampler):
        return sampler.generator is None
    return True
