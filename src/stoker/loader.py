"""``stoker.DataLoader``: torch's arguments, and the iterator that fits them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data import MapDataPipe, Sampler

from stoker import arguments, options
from stoker.feed.adaptive import AdaptiveFeed
from stoker.feed.debugging import DebugIterator
from stoker.feed.iteration import AutoIterator, InlineIterator, Setting, WorkerIterator
from stoker.host.families import family_finding
from stoker.host.interrupts import undisturbed
from stoker.order.population import population_of
from stoker.order.samplers import Late, draws_globally
from stoker.tuning.account import Account
from stoker.tuning.governor import Least
from stoker.tuning.snapshot import Identity
from stoker.tuning.statistics import Statistics
from stoker.workers.likeness import likeness
from stoker.workers.methods import context_of
from stoker.workers.tolerance import OnError

T_co = TypeVar("T_co", covariant=True)
WorkerMethod = Literal["auto", "fork", "fresh", "spawn", "forkserver"]
_FROZEN = ("seed", "memory_limit", "max_restarts", "on_timeout", "on_error", "max_errors")
# What a loader without workers has of the arguments that are for workers, whatever was given.
_WITHOUT_WORKERS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "_DataLoader__multiprocessing_context": None,
}
_BY_ITSELF = options.AutoFlag(0)
_ONE_ITERATOR = (
    "an iterable data set has an iterator in each worker, so its batches depend on how many "
    "there are: it has one, and num_workers= gives it more"
)


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
        num_workers: "auto": the loader begins in the main process, measures itself and the
            training step, and takes as many worker processes as keep the step from waiting;
            it may change them at any batch, says why in `statistics`, and keeps them across
            epochs. An int is obeyed exactly; 0 loads in the main process. An iterable data
            set, whose batches depend on the number, is loaded in the main process by "auto".
            The attribute is an int at all times.
        collate_fn: As in torch.
        pin_memory: As in torch: batches are copied into page-locked memory.
        drop_last: As in torch.
        timeout: Longest wait for a batch in seconds; 0 is for ever. Only with workers.
        worker_init_fn: As in torch.
        multiprocessing_context: As in torch.
        generator: As in torch.
        prefetch_factor: Batches in advance per worker, at least 1. While the consumer waits
            for a batch, free workers may run ahead of that, within 256 MiB.
        persistent_workers: As in torch. Where the number of workers is chosen automatically,
            they stay from epoch to epoch unless this is given as False.
        pin_memory_device: As in torch.
        in_order: As in torch.
        seed: None: order and seeds are drawn from `generator` or torch's global generator,
            in the same sequence as torch draws them, so that one ``torch.manual_seed`` gives
            the same indices in the same batches as torch. An int in [0, 2**64): the loader
            has a generator of its own and leaves the global ones alone, whatever the sampler.
        memory_limit: How much memory batches in flight may take, whatever the number of
            workers: bytes, or a string such as "4GB" or "512MiB". A batch that is larger by
            itself is an error. None: a quarter of what is available to this process, shared
            with the other ranks of the node and other live loaders.
        worker_method: How worker processes come up. "fork": as copies of this one. "fresh": as
            new interpreters that do not run the program again, so that it needs no
            ``if __name__ == "__main__"``, and are sent what they need, lambdas and what the
            program itself defines included. "spawn" and "forkserver": as multiprocessing has
            them. "auto": fork where that is Python's default and safe, else fresh; what
            `multiprocessing_context` or ``set_start_method`` says comes first.
        max_restarts: How many workers that died are replaced in an hour; their batches are made
            again, the same. With one more, and where a batch ends two workers, a
            `stoker.errors.WorkerDied` is raised. 0: the first death is the error, as in torch.
        on_timeout: What is done when no batch came within `timeout`. "raise": a
            `stoker.errors.WaitTimeout`, which is a RuntimeError and a TimeoutError. "retry": the
            worker is replaced and its batch made again; where that takes too long as well, the
            error. "skip": the worker is replaced and its batch left out, which depends on time,
            so that another run may have it; of an iterable data set none can be left out, and
            there it is the error.
        on_error: What becomes of a sample that raises an exception when it is read. "raise": it
            is raised. "skip": the sample is left out; its batch is smaller, and one that nothing
            is left of is skipped, while ``len(loader)`` stays what it is. "replace": another
            index is read in its place, drawn by seed and position from those that the sampler
            draws from; of its own batch, where the sampler is not one of torch's. A function of
            the index and the exception: it returns a value to take in its place,
            ``stoker.SKIP`` or ``stoker.REPLACE``, or raises; it runs where the sample is read,
            twice at times. The batches are the same for any number of workers. A process that
            has run out of memory or descriptors is an error all the same. What has been let
            pass is in `statistics`.
        max_errors: How many samples of an epoch may be broken: an int, or a share of them as a
            float between 0 and 1. The batch with one more is an error. None: any number, but
            not 1,000 in a row, nor all.
        debug: Whether the batches that workers would make are made in the main process, so that
            ``breakpoint()`` and debuggers work. None: as the variable ``STOKER_DEBUG`` says.

    Raises:
        ValueError: Arguments that exclude each other or are out of range; torch's words
            where torch refuses them too.
        TypeError: An argument of a wrong type.
    """

    seed: int | None
    memory_limit: int | str | None
    on_error: Any
    max_errors: int | float | None

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = "auto",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = _BY_ITSELF,  # type: ignore[assignment]
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        memory_limit: int | str | None = None,
        worker_method: WorkerMethod = "auto",
        max_restarts: int = 3,
        on_timeout: Literal["raise", "retry", "skip"] = "raise",
        on_error: Literal["raise", "skip", "replace"] | Callable[[Any, Exception], Any] = "raise",
        max_errors: int | float | None = None,
        debug: bool | None = None,
    ) -> None:
        policy = options.on_error(on_error)
        most_errors = options.max_errors(max_errors, policy)
        if policy is options.REPLACE and _is_stream(dataset):
            raise options.replacing_in_a_stream()
        seed = options.seed(seed)
        on_timeout = options.on_timeout(on_timeout)
        worker_method = options.worker_method(worker_method, multiprocessing_context)
        debug = options.debug(debug)
        if isinstance(persistent_workers, options.WouldPersist):
            persistent_workers = True
        workers = options.num_workers(num_workers)
        automatic = isinstance(workers, options.AutoWorkers)
        arguments.check(
            dataset,
            {
                "batch_size": batch_size,
                "shuffle": shuffle,
                "sampler": sampler,
                "batch_sampler": batch_sampler,
                "num_workers": workers,
                "collate_fn": collate_fn,
                "pin_memory": pin_memory,
                "drop_last": drop_last,
                "timeout": timeout,
                "worker_init_fn": worker_init_fn,
                "generator": generator,
                "prefetch_factor": prefetch_factor,
                "persistent_workers": persistent_workers,
                "pin_memory_device": pin_memory_device,
                "in_order": in_order,
            },
            iterable=isinstance(dataset, torch.utils.data.IterableDataset),
        )
        if prefetch_factor == 0:
            raise options.prefetch_of_zero()
        restarts = options.max_restarts(max_restarts)
        account = Account(options.memory_limit(memory_limit), restarts, most_errors)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            # So that torch checks the arguments for workers.
            1 if automatic or workers == 0 else workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            options.own_generator(seed, generator),
            prefetch_factor=prefetch_factor,
            persistent_workers=bool(persistent_workers),
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self.seed = seed
        self.memory_limit = memory_limit
        self.worker_method = worker_method
        self.max_restarts = max_restarts
        self.on_timeout = on_timeout
        self.on_error = on_error
        self.max_errors = max_errors
        self.debug = debug
        self._take(account)
        if not automatic and workers == 0:
            vars(self).update(_WITHOUT_WORKERS)
            if persistent_workers:
                vars(self)["persistent_workers"] = options.WouldPersist(False)
        elif isinstance(persistent_workers, options.AutoFlag):
            vars(self)["persistent_workers"] = persistent_workers
        if automatic:
            # Another library may take the attributes as arguments for a loader without workers.
            vars(self).update(
                num_workers=workers,
                prefetch_factor=prefetch_factor,
                persistent_workers=persistent_workers,
            )

    def __setattr__(self, attr: str, val: Any) -> None:
        if attr in _FROZEN and attr in vars(self):
            # As torch refuses its own frozen attributes.
            raise ValueError(
                f"{attr} attribute should not be set after {type(self).__name__} is initialized"
            )
        if attr == "multiprocessing_context" and self._automatic:
            # torch looks whether there are workers that it could be for.
            chosen = vars(self)["num_workers"]
            vars(self)["num_workers"] = 1
            try:
                super().__setattr__(attr, val)
            finally:
                vars(self)["num_workers"] = chosen
            return
        if attr == "num_workers":
            val = options.num_workers(val)
        if attr == "debug":
            val = options.debug(val)
        super().__setattr__(attr, val)

    def __iter__(self) -> Any:
        """A new iterator; torch's persistent workers have one that begins again."""
        if self._automatic and not _any_worker_serves(self.dataset):
            vars(self)["num_workers"] = options.AutoWorkers(self._least().workers)
            return super().__iter__()
        if not self._automatic:
            return super().__iter__()
        self._iterator = None  # Persistent workers of a number that was given before.
        return self._get_iterator()

    def statistics(self) -> Statistics:
        """What this loader has seen and done since it was made, over all its epochs.

        Returns:
            A frozen snapshot, with units in the names; `print` shows it as a table. It does
            not change what the loader does.
        """
        self._account.automatic = self._automatic
        told = self._account.statistics()
        family = family_finding([each.pid for each in told.workers if each.pid is not None])
        return replace(told, remarks=(*told.remarks, family)) if family else told

    @property
    def _lasts(self) -> bool:
        """Whether epochs share a base seed although each has an iterator: persistent workers that
        were asked for draw none for a second epoch, and so does a number that is chosen, or none.
        """
        kept: Any = self.persistent_workers
        if self.seed is not None or isinstance(kept, options.AutoFlag):
            return False
        return isinstance(kept, options.WouldPersist) or (self._automatic and bool(kept))

    @property
    def _automatic(self) -> bool:
        return isinstance(vars(self).get("num_workers"), options.AutoWorkers)

    def _get_iterator(self) -> Any:
        """What ``iter(loader)`` returns, made anew; torch's `__iter__` calls it."""
        account = self._account
        account.leave()
        identity = self._identity()
        account.begin_epoch(identity, automatic=self._automatic)
        setting = Setting(
            private_sampling=self.seed is not None and draws_globally(super()._index_sampler),
            draws=account.draws,
            meter=account.meter,
            room=account.room,
            restarts=account.restarts,
            generator=self.generator,
            length=identity.length,
            begun=account.begun,
            tell=account.tell,
            lasting=account.lasting if self._lasts else None,
            on_error=self._on_error(),
        )
        if options.debugs(self.debug):
            return self._debug_iterator(setting)
        if self._automatic:
            return self._automatic_iterator(setting)
        account.drop_spare()
        if vars(self)["num_workers"] == 0:
            return InlineIterator(self, setting)
        self.check_worker_number_rationality()
        iterator = WorkerIterator(self, setting)
        account.serves(iterator.feed)
        return iterator

    def _automatic_iterator(self, setting: Setting) -> Any:
        account, least = self._account, self._least()
        if not _any_worker_serves(self.dataset):
            # Each worker would have an iterator of its own, so there is one, here or in a worker.
            account.note_fixed(least.workers, _ONE_ITERATOR)
            if not least.workers:
                return InlineIterator(self, setting)
            iterator = WorkerIterator(self, setting)
            account.serves(iterator.feed)
            return iterator
        made_of = _ingredients(self)
        spare = account.take_spare(made_of())
        governor = account.governor
        if governor is not None and governor.least != least.workers:
            governor = None
        if governor is None or spare is None:
            if spare is not None:
                spare.close()
                spare = None
            method = context_of(self).get_start_method()
            governor = account.new_governor(least, method, account.known(self))
        governor.changed = functools.partial(_now_has, weakref.ref(self))
        done = functools.partial(
            _give_back,
            weakref.ref(self),
            account,
            self.persistent_workers or isinstance(self.persistent_workers, options.AutoFlag),
        )
        auto = AutoIterator(self, setting, governor, spare, done, made_of)
        account.serves(auto.feed)
        return auto

    def _on_error(self) -> OnError | None:
        policy = options.on_error(self.on_error)
        if policy is None:
            return None
        if policy is options.SKIP or _is_stream(self.dataset):
            return OnError(policy)
        batched = self.batch_sampler is not None
        return OnError(policy, population_of(super()._index_sampler, batched=batched))

    def _debug_iterator(self, setting: Setting) -> Any:
        """What makes the same batches here."""
        self._account.drop_spare()
        if not self._automatic:
            return DebugIterator(self, setting, self.num_workers)
        self._account.note_fixed(0, "debug=True, or STOKER_DEBUG, loads in the main process")
        return DebugIterator(self, setting, self._least().workers)

    def _least(self) -> Least:
        """Whether something that was asked for needs a worker."""
        if self.worker_init_fn is not None:
            return Least(1, "worker_init_fn runs in workers only")
        if self.timeout > 0:
            return Least(1, "timeout= can only be kept by workers")
        return Least(0, "")

    def _identity(self) -> Identity:
        length, count = _length(super()._index_sampler), _length(self.dataset)
        kind = type(self.dataset).__name__
        samples = "" if count is None else f", {count:,} samples"
        batch = f", batch {self.batch_size}" if self.batch_size is not None else ""
        return Identity(f"{kind}{samples}{batch}", self.batch_size, length)

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins with an account of its own: workers cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_account"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        most_errors = options.max_errors(self.max_errors, options.on_error(self.on_error))
        limit_bytes = options.memory_limit(self.memory_limit)
        self._take(Account(limit_bytes, self.max_restarts, most_errors))
        self.num_workers = vars(self)["num_workers"]

    def _take(self, account: Account) -> None:
        self._account = account
        # Its workers end with the loader, and not when garbage is collected next.
        weakref.finalize(self, undisturbed, account.drop_spare).atexit = False

    @property
    def _index_sampler(self) -> Any:
        """torch's; with a seed, one that is not even iterated before its first batch is wanted."""
        sampler = super()._index_sampler
        return sampler if self.seed is None else Late(sampler)


def _now_has(loader: weakref.ref[DataLoader[Any]], workers: int) -> None:
    held = loader()
    if held is not None:
        vars(held)["num_workers"] = options.AutoWorkers(workers)


def _give_back(
    loader: weakref.ref[DataLoader[Any]], account: Account, persistent: bool, feed: AdaptiveFeed
) -> None:
    account.take_back(persistent and loader() is not None, feed)


def _any_worker_serves(dataset: Any) -> bool:
    """Whether a batch does not depend on how many workers there are."""
    return not isinstance(dataset, (torch.utils.data.IterableDataset, MapDataPipe))


def _is_stream(dataset: Any) -> bool:
    return isinstance(dataset, torch.utils.data.IterableDataset)


def _length(sized: Any) -> int | None:
    """How long something is; None where it can't tell, for whatever reason."""
    try:
        return len(sized)
    except Exception:
        return None


def _ingredients(loader: DataLoader[Any]) -> Callable[[], Any]:
    """Tells what workers are made from: when it changes, new ones are needed."""
    on_error = loader._on_error()
    population = on_error.population if on_error is not None else None
    return functools.partial(
        likeness,
        loader.on_error,
        *(population.parts if population is not None else ()),
        loader.dataset,
        loader.collate_fn,
        loader.worker_init_fn,
        loader.multiprocessing_context,
        loader.worker_method,
        loader.pin_memory,
        loader.prefetch_factor,
        loader.in_order,
        loader.timeout,
        loader.on_timeout,
    )
