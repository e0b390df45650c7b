"""The iterators that ``iter(loader)`` returns: torch's own base, Stoker's way to make batches.

Both take the epoch's base seed and then the sampler's first batch from the generators, in
this order and at once, as torch's iterator with workers does. So the caller's random state,
and the batches, are the same for any number of workers.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _sharding_worker_init_fn,
)
from torch.utils.data.graph_settings import apply_sharding

from stoker.feed.adaptive import AdaptiveFeed, Epoch, Governor
from stoker.feed.crew import Crew
from stoker.feed.faults import stands_for_a_batch, was_closed
from stoker.feed.feed import Feed
from stoker.feed.meter import Meter
from stoker.feed.pinning import Pinner
from stoker.feed.restarts import Restarts
from stoker.feed.room import Room
from stoker.feed.unproven import Unproven
from stoker.feed.vigil import Vigil
from stoker.host.interrupts import undisturbed
from stoker.order.broken import Damage
from stoker.order.epoch import EpochPlan, PrivateSampling, Task
from stoker.order.keys import EpochKey
from stoker.transport.arena import PrivateArena, check_size
from stoker.transport.layout import size_bytes
from stoker.transport.shm import kind_here
from stoker.workers.collating import DefaultCollate, Stacking
from stoker.workers.job import Job
from stoker.workers.likeness import likeness
from stoker.workers.making import Draws, Ended, IterableMaker, Maker, MapMaker
from stoker.workers.messages import BeginEpoch
from stoker.workers.methods import context_of
from stoker.workers.process import ProcessPool
from stoker.workers.tolerance import LEFT_OUT, OnError

_LEAST_RECYCLED_BYTES = 1024 * 1024
_KEPT_SLOTS = 16
_FIRST_TELL_S = 0.25


@dataclass
class Lasting:
    """The base seed that all epochs of a loader share, as with torch's persistent workers.

    Attributes:
        base_seed: None before the first epoch.
        epochs: Epochs begun after the first.
    """

    base_seed: int | None = None
    epochs: int = 0


@dataclass
class Setting:
    """What a loader adds to torch's arguments for its iterators.

    Attributes:
        private_sampling: Whether the sampler must not draw from the global generators.
        draws: What the loader knows about its data set.
        meter: Takes note of what happens.
        room: The memory for batches in flight.
        restarts: How many workers that died may be replaced.
        generator: What the sampler draws from, where that is not a global one; or None.
        length: How many batches an epoch has; None when unknown.
        begun: Told of the plan of each epoch.
        tell: Lets the outside know how it goes; returns when to do so next, as
            `time.perf_counter` counts.
        lasting: Where each epoch has an iterator of its own and yet no seed; else None.
        on_error: What is to become of samples that can't be read; None: their error is raised.
    """

    private_sampling: bool
    draws: Draws
    meter: Meter
    room: Room
    restarts: Restarts
    generator: Any
    length: int | None
    begun: Callable[[EpochPlan], None]
    tell: Callable[[], float]
    lasting: Lasting | None = None
    on_error: OnError | None = None


class _Iterator(_BaseDataLoaderIter):
    """What all iterators share.

    Args:
        loader: The loader, as torch's iterator takes it.
        setting: What torch's does not take.
    """

    def __init__(self, loader: Any, setting: Setting) -> None:
        lasting = setting.lasting
        if lasting is None or lasting.base_seed is None:
            super().__init__(loader)
        else:
            self._go_on(loader)
        self._setting = setting
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        self._epoch = 0
        if lasting is not None:
            self._last(lasting)
        self._tell_at = perf_counter() + _FIRST_TELL_S
        self._draw_seed(loader, first=True)

    def _go_on(self, loader: Any) -> None:
        """As torch's persistent workers begin another epoch: no seed is drawn for it."""
        generator = torch.default_generator if loader.generator is None else loader.generator
        state = generator.get_state()
        super().__init__(loader)
        generator.set_state(state)
        self._sampler_iter = iter(self._index_sampler)

    def _last(self, lasting: Lasting) -> None:
        if lasting.base_seed is None:
            lasting.base_seed = int(self._base_seed)
        else:
            lasting.epochs += 1
        self._base_seed, self._epoch = lasting.base_seed, lasting.epochs

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
            private=PrivateSampling(self._key) if self._setting.private_sampling else None,
            generator=self._setting.generator,
            length=self._setting.length,
        )
        plan.hold_first()
        self._setting.begun(plan)
        self._leave = weakref.finalize(self, undisturbed, plan.leave)
        self._leave.atexit = False
        self._plan = plan
        return plan

    def _collate_here(self) -> Callable[[Any], Any]:
        """The collate function for batches that are made in the main process."""
        if self._collate_fn is torch_collate.default_collate:
            return DefaultCollate(Stacking(PrivateArena().allocate, _LEAST_RECYCLED_BYTES))
        collate: Callable[[Any], Any] = self._collate_fn
        return collate

    def _map_maker(self) -> MapMaker:
        return MapMaker(
            self._dataset,
            batched=self._auto_collation,
            collate=self._collate_here(),
            key=self._key,
            draws=self._setting.draws,
            on_error=self._setting.on_error,
        )

    def _iterable_maker(self) -> IterableMaker:
        return IterableMaker(
            self._dataset,
            batched=self._auto_collation,
            collate=self._collate_here(),
            drop_last=self._drop_last,
            key=self._key,
            shard=0,
            on_error=self._setting.on_error,
        )

    def _new_job(self, loader: Any) -> Job:
        """What its workers do."""
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
            num_workers=0 if isinstance(self, AutoIterator) else self._num_workers,
            segments=kind_here(),
            draws=self._setting.draws,
            batch_limit_bytes=self._setting.room.batch_limit_bytes,
            on_error=self._setting.on_error,
        )

    def _begin_message(self) -> BeginEpoch:
        return BeginEpoch(self._epoch, (self._key.base_seed, self._key.epoch), self._shared_seed)

    def __next__(self) -> Any:
        try:
            # torch's own __next__ costs 5 us for a profiler's mark that is seldom wanted.
            if self._iterable or torch._C._autograd._profiler_enabled():
                return super().__next__()
            data = self._next_data()
        except StopIteration:
            self._plan.reached()
            self._setting.meter.ended()
            raise
        except Exception:
            raise
        except BaseException as error:
            if not stands_for_a_batch(error):
                self._break_off()
            raise
        self._num_yielded += 1
        if self._setting.meter.left_at >= self._tell_at:
            self._tell_at = self._setting.tell()
        return data

    def _break_off(self) -> None:
        """Ctrl-C, or an exit in the sampler or by a signal: what was under way may be lost.

        So nobody is to go on as if it had never been.
        """
        vars(self)["_next_data"] = _is_broken_off

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        vars(self).pop("_next_data", None)
        super()._reset(loader, first_iter)

    def _next_data(self) -> Any:
        raise AssertionError("a subclass makes the batches")


def _is_broken_off() -> Any:
    raise was_closed()


class MadeHere(_Iterator):
    """What iterators share that make batches in the main process."""

    def _made(self, task: Task) -> tuple[Any, Damage | None]:
        """A batch, or `LEFT_OUT`, and what is broken in it; raises `Ended`."""
        raise NotImplementedError

    def _next_data(self) -> Any:
        while (data := self._next_or_none_left()) is LEFT_OUT:
            pass
        return data

    def _next_or_none_left(self) -> Any:
        meter, entered = self._setting.meter, perf_counter()
        meter.entered(entered)
        task = self._plan.next()
        if task is None:
            raise StopIteration
        try:
            data, damage = self._made(task)
        except Ended:
            raise StopIteration from None
        if damage is not None:
            meter.lost(task.number, damage, left_out=data is LEFT_OUT)
            if data is LEFT_OUT:
                meter.left_out(entered, perf_counter())
                return data
        limit_bytes = self._setting.room.batch_limit_bytes
        if limit_bytes is not None:
            check_size(size_bytes(data), limit_bytes)
        if self._pin_memory:
            data = pin_memory(data, self._pin_memory_device)
        meter.loaded(entered, perf_counter())
        return data


class InlineIterator(MadeHere):
    """Makes batches in the main process (``num_workers=0``)."""

    def __init__(self, loader: Any, setting: Setting) -> None:
        super().__init__(loader, setting)
        # torch's own checks, in its words.
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            apply_sharding(self._dataset, self._world_size, self._rank)
        self._new_plan()
        self._maker: Maker = self._iterable_maker() if self._iterable else self._map_maker()
        setting.meter.begin_epoch()

    def _made(self, task: Task) -> tuple[Any, Damage | None]:
        return self._maker.make(task), self._maker.damage


class _WithWorkers(_Iterator):
    """What iterators share that can have workers."""

    def __init__(self, loader: Any, setting: Setting) -> None:
        super().__init__(loader, setting)
        # None when num_workers was 0 in the constructor and has been set since.
        self._prefetch_factor = 2 if loader.prefetch_factor is None else loader.prefetch_factor
        self._in_order = loader.in_order

    def _feeds(self, loader: Any, *, adaptive: bool) -> Callable[[], Feed]:
        """What makes a feed without workers; it does not keep the iterator alive."""
        job, meter, room = self._new_job(loader), self._setting.meter, self._setting.room
        context = context_of(loader)
        device, pinned = self._pin_memory_device, self._pin_memory
        prefetch, in_order, sharded = self._prefetch_factor, self._in_order, self._iterable
        timeout_s, on_timeout = self._timeout, loader.on_timeout
        restarts = self._setting.restarts
        made_of = functools.partial(likeness, job.dataset, job.collate_fn, job.worker_init_fn)

        def new_feed() -> Feed:
            known = replace(job, needs_torch=meter.needs_torch)
            pool = ProcessPool(known, context, _KEPT_SLOTS, quiet=adaptive)
            new_pinner = functools.partial(Pinner, device=device) if pinned else None
            return Feed(
                Crew(pool, new_pinner, meter, patient=adaptive),
                prefetch=prefetch,
                in_order=in_order,
                sharded=sharded,
                vigil=Vigil(timeout_s, on_timeout, meter, Unproven(meter) if adaptive else None),
                meter=meter,
                room=room,
                restarts=restarts,
                likeness=None if adaptive else made_of,
            )

        return new_feed


class WorkerIterator(_WithWorkers):
    """Has batches made by a fixed number of worker processes.

    Attributes:
        _workers: The process objects, as torch's iterator has them.
    """

    def __init__(self, loader: Any, setting: Setting) -> None:
        super().__init__(loader, setting)
        self._start(loader, self._new_plan())

    def _start(self, loader: Any, plan: EpochPlan) -> None:
        """Starts workers, and the epoch."""
        message = self._begin_message()
        self._feed = self._feeds(loader, adaptive=False)()
        try:
            self._feed.crew.resize(self._num_workers, message)
        except BaseException:
            self._feed.close()
            raise
        self._workers = self._feed.processes
        self._close = weakref.finalize(self, self._feed.close)
        self._begin_epoch(plan, message)

    @property
    def feed(self) -> Feed:
        """Where the batches come from."""
        return self._feed

    def _begin_epoch(self, plan: EpochPlan, message: BeginEpoch) -> None:
        self._setting.meter.begin_epoch()
        try:
            self._feed.begin_epoch(plan, message)
        except BaseException:  # Ctrl-C: a worker may have been sent half a message.
            self._shutdown_workers()
            raise

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins another epoch with the same workers; torch's loader calls it."""
        self._leave()
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._draw_seed(loader, first=False)
        plan = self._new_plan()
        if self._feed.closed:  # An error or Ctrl-C has stopped the workers.
            self._start(loader, plan)
        else:
            self._begin_epoch(plan, self._begin_message())

    def _next_data(self) -> Any:
        try:
            while (data := self._feed.next()) is LEFT_OUT:
                pass
            return data
        except StopIteration:
            if self._persistent_workers:
                self._feed.rest()
            else:
                self._shutdown_workers()
            raise

    def _break_off(self) -> None:
        super()._break_off()
        self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        """Stops the workers; libraries that know torch's iterator call it."""
        self._close()


class AutoIterator(_WithWorkers):
    """Has batches made by as many workers as a governor finds best, or in the main process.

    Args:
        loader: The loader, as torch's iterator takes it.
        setting: What torch's does not take.
        governor: Decides how many workers there are.
        spare: Workers of an earlier epoch of this loader, to go on with; or None.
        done: Called when the epoch is over, or the iterator dropped, with what has workers
            for the next.
        likeness: Tells what workers that are started now are made from.

    Attributes:
        _workers: The process objects there are now, as torch's iterator has them.
    """

    def __init__(
        self,
        loader: Any,
        setting: Setting,
        governor: Governor,
        spare: AdaptiveFeed | None,
        done: Callable[[AdaptiveFeed], None],
        likeness: Callable[[], Any],
    ) -> None:
        super().__init__(loader, setting)
        plan = self._new_plan()
        self._feed = spare or AdaptiveFeed(governor, setting.meter)
        pin = functools.partial(pin_memory, device=self._pin_memory_device)
        self._over = False
        self._close = weakref.finalize(self, undisturbed, done, self._feed)
        self._close.atexit = False
        adaptive = governor.least == 0
        self._feed.begin_epoch(
            Epoch(
                plan,
                self._map_maker(),
                self._begin_message(),
                setting.length,
                self._feeds(loader, adaptive=adaptive),
                likeness,
                setting.room.batch_limit_bytes,
                pin if self._pin_memory else None,
            )
        )

    @property
    def feed(self) -> AdaptiveFeed:
        """Where the batches come from."""
        return self._feed

    @property
    def _workers(self) -> list[Any]:
        feed = self._feed.feed
        return feed.processes if feed is not None else []

    def _next_data(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            return self._feed.next()
        except StopIteration:
            self._over = True
            self._close()
            raise

    def _break_off(self) -> None:
        super()._break_off()
        self._feed.close()  # A worker may have been sent half a message.
        self._close()
