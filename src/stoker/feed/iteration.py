"""The iterators that ``iter(loader)`` returns: torch's own base, Stoker's way to make batches.

Both take the epoch's base seed and then the sampler's first batch from the generators, in
this order and at once, as torch's iterator with workers does. So the caller's random state,
and the batches, are the same for any number of workers.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _sharding_worker_init_fn,
)
from torch.utils.data.graph_settings import apply_sharding

from stoker.feed.feed import Feed
from stoker.feed.pinning import Pinner
from stoker.order.epoch import EpochPlan, PrivateSampling
from stoker.order.keys import EpochKey
from stoker.transport.arena import PrivateArena
from stoker.transport.shm import kind_here
from stoker.workers.collating import DefaultCollate, Stacking
from stoker.workers.job import Job
from stoker.workers.making import Draws, Ended, IterableMaker, MapMaker
from stoker.workers.messages import BeginEpoch
from stoker.workers.process import ProcessPool

_LEAST_RECYCLED_BYTES = 1024 * 1024
_KEPT_SLOTS = 16


class _Iterator(_BaseDataLoaderIter):
    """What both iterators share.

    Args:
        loader: The loader, as torch's iterator takes it.
        private_sampling: Whether the sampler must not draw from the global generators.
        draws: What the loader knows about its data set.
    """

    def __init__(self, loader: Any, *, private_sampling: bool, draws: Draws) -> None:
        super().__init__(loader)
        self._private_sampling = private_sampling
        self._draws = draws
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        self._epoch = 0
        self._draw_seed(loader, first=True)

    def _draw_seed(self, loader: Any, *, first: bool) -> None:
        """Sets the key of the epoch.

        torch's persistent workers keep their base seed, and the generator gives the next
        epoch's order alone; so does this. A loader with a seed of its own draws one for
        every epoch, so that its epochs are the same with persistent workers and without.
        """
        if first or getattr(loader, "seed", None) is None:
            self._key = EpochKey(int(self._base_seed), self._epoch)
            return
        drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        self._key = EpochKey(int(drawn.item()))

    def _new_plan(self) -> EpochPlan:
        plan = EpochPlan(
            self._sampler_iter,
            batched=self._auto_collation,
            private=PrivateSampling(self._key) if self._private_sampling else None,
        )
        plan.hold_first()
        return plan

    def __next__(self) -> Any:
        # torch's own __next__ costs 5 us for a profiler's mark that is seldom wanted.
        if self._iterable or torch._C._autograd._profiler_enabled():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        raise AssertionError("a subclass makes the batches")


class InlineIterator(_Iterator):
    """Makes batches in the main process (``num_workers=0``)."""

    def __init__(self, loader: Any, *, private_sampling: bool, draws: Draws) -> None:
        super().__init__(loader, private_sampling=private_sampling, draws=draws)
        # torch's own checks, in its words.
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            apply_sharding(self._dataset, self._world_size, self._rank)
        self._plan = self._new_plan()
        self._maker = self._new_maker()

    def _new_maker(self) -> MapMaker | IterableMaker:
        collate = self._collate_fn
        if collate is torch_collate.default_collate:
            collate = DefaultCollate(Stacking(PrivateArena().allocate, _LEAST_RECYCLED_BYTES))
        if self._iterable:
            return IterableMaker(
                self._dataset,
                batched=self._auto_collation,
                collate=collate,
                drop_last=self._drop_last,
                key=self._key,
                shard=0,
            )
        return MapMaker(
            self._dataset,
            batched=self._auto_collation,
            collate=collate,
            key=self._key,
            draws=self._draws,
        )

    def _next_data(self) -> Any:
        task = self._plan.next()
        if task is None:
            raise StopIteration
        try:
            data = self._maker.make(task)
        except Ended:
            raise StopIteration from None
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data


class WorkerIterator(_Iterator):
    """Has batches made by worker processes.

    Attributes:
        _workers: The process objects, as torch's iterator has them.
    """

    def __init__(self, loader: Any, *, private_sampling: bool, draws: Draws) -> None:
        super().__init__(loader, private_sampling=private_sampling, draws=draws)
        # None when num_workers was 0 in the constructor and has been set since.
        self._prefetch_factor = 2 if loader.prefetch_factor is None else loader.prefetch_factor
        self._in_order = loader.in_order
        self._start(loader, self._new_plan())

    def _start(self, loader: Any, plan: EpochPlan) -> None:
        """Starts workers, and the epoch."""
        message = self._begin_message()
        context = loader.multiprocessing_context or torch.multiprocessing
        pool = ProcessPool(self._new_job(loader), context, message, _KEPT_SLOTS)
        self._workers = pool.processes
        self._feed = Feed(
            pool,
            prefetch=self._prefetch_factor,
            in_order=self._in_order,
            sharded=self._iterable,
            timeout_s=self._timeout,
            pinner=Pinner(pool, self._pin_memory_device) if self._pin_memory else None,
        )
        self._close = weakref.finalize(self, self._feed.close)
        self._feed.begin_epoch(plan, message)

    def _new_job(self, loader: Any) -> Job:
        init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            init_fn = functools.partial(
                _sharding_worker_init_fn, init_fn, self._world_size, self._rank
            )
        return Job(
            dataset=self._dataset,
            iterable=self._iterable,
            batched=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            worker_init_fn=init_fn,
            base_seed=int(self._base_seed),
            num_workers=self._num_workers,
            segments=kind_here(),
            draws=self._draws,
        )

    def _begin_message(self) -> BeginEpoch:
        return BeginEpoch(self._epoch, (self._key.base_seed, self._key.epoch), self._shared_seed)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins another epoch with the same workers; torch's loader calls it."""
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._draw_seed(loader, first=False)
        plan = self._new_plan()
        if self._feed.closed:  # An error or Ctrl-C has stopped the workers.
            self._start(loader, plan)
        else:
            self._feed.begin_epoch(plan, self._begin_message())

    def _next_data(self) -> Any:
        try:
            return self._feed.next()
        except StopIteration:
            if not self._persistent_workers:
                self._shutdown_workers()
            raise

    def _shutdown_workers(self) -> None:
        """Stops the workers; libraries that know torch's iterator call it."""
        self._close()
