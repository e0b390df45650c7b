"""``debug=True``: the batches that workers would make, made in the main process.

So ``breakpoint()``, debuggers and profilers see the data set at work, and an exception comes
with its own traceback. What a worker has, the data set finds here: ``get_worker_info()``,
``worker_init_fn``, and, where it is iterable, one copy of itself and one iterator for each.
The caller's random state stays as it was, whatever ``worker_init_fn`` seeds.

Not as in a worker: ``timeout`` is ignored, and what the data set or ``worker_init_fn`` does to
the process (its threads, its environment, its modules) is done to the main process.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.graph_settings import apply_sharding

from stoker.feed.iteration import MadeHere, Setting
from stoker.order.broken import Damage
from stoker.order.epoch import Task
from stoker.order.streams import GlobalStreams, lending
from stoker.workers.making import Ended, IterableMaker, MapMaker


@contextmanager
def _told(info: Any) -> Iterator[None]:
    """Within it, `get_worker_info` tells what it tells in a worker."""
    module: Any = torch_worker
    before, module._worker_info = module._worker_info, info
    try:
        yield
    finally:
        module._worker_info = before


class _Stand:
    """What stands for one worker: its data set, its maker, and what it knows of itself."""

    def __init__(self, maker: MapMaker | IterableMaker, info: Any) -> None:
        self.maker = maker
        self._info = info

    def make(self, task: Task) -> Any:
        with _told(self._info):
            return self.maker.make(task)


class DebugIterator(MadeHere):
    """See the module.

    Args:
        loader: The loader, as torch's iterator takes it.
        setting: What torch's does not take.
        workers: How many workers there would be; 0: the main process would make the batches.
    """

    def __init__(self, loader: Any, setting: Setting, workers: int) -> None:
        super().__init__(loader, setting)
        self._new_plan()
        self._stands = self._new_stands(loader, workers)
        self._begin()

    def _begin(self) -> None:
        self._turns = deque(self._stands)
        self._setting.meter.begin_epoch()

    def _new_stands(self, loader: Any, workers: int) -> list[_Stand]:
        if not workers:
            if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
                apply_sharding(self._dataset, self._world_size, self._rank)
            return [_Stand(self._maker(self._dataset, 0), None)]
        job = self._new_job(loader)
        shown = self._dataset
        shards = workers if self._iterable else 1
        stands = []
        for number in range(shards):
            dataset = _copied(shown) if self._iterable else shown
            seed = job.base_seed + number
            info = torch_worker.WorkerInfo(
                id=number, num_workers=workers, seed=seed, dataset=dataset
            )
            if job.worker_init_fn is not None:
                with _told(info), _seeded_as_a_worker(job.base_seed, number):
                    job.worker_init_fn(number)
            stands.append(_Stand(self._maker(dataset, number), info))
        return stands

    def _maker(self, dataset: Any, shard: int) -> MapMaker | IterableMaker:
        if not self._iterable:
            return self._map_maker()
        return IterableMaker(
            dataset,
            batched=self._auto_collation,
            collate=self._collate_here(),
            drop_last=self._drop_last,
            key=self._key,
            shard=shard,
            on_error=self._setting.on_error,
        )

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins another epoch, as persistent workers do; torch's loader calls it."""
        self._leave()
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._draw_seed(loader, first=False)
        self._new_plan()
        for stand in self._stands:
            stand.maker.begin_epoch(self._key)
        self._begin()

    def _made(self, task: Task) -> tuple[Any, Damage | None]:
        """By each in turn, as torch hands out an iterable data set's batches."""
        while self._turns:
            stand = self._turns[0]
            try:
                batch = stand.make(task)
            except Ended:
                self._turns.popleft()
            else:
                self._turns.rotate(-1)
                return batch, stand.maker.damage
        raise Ended


def _copied(dataset: Any) -> Any:
    """A copy as a worker has one; the thing itself where it can't be copied."""
    try:
        return copy.deepcopy(dataset)
    except Exception:
        return dataset


@contextmanager
def _seeded_as_a_worker(base_seed: int, number: int) -> Iterator[None]:
    """The generators are seeded as in a new worker, and afterwards what they were before."""
    seed = base_seed + number
    on_device = torch.cuda.is_initialized()
    with torch.random.fork_rng(enabled=on_device), lending(), GlobalStreams().lent(seed):
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        np.random.seed(torch_worker._generate_state(base_seed, number))
        yield
