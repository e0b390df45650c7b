"""How one batch is made from a data set, wherever that happens.

The same code runs in the main process and in workers, so that a batch cannot depend on
where it was made: its random numbers follow from the epoch's key and its position alone.

Samples are seeded one by one only where something draws. The first few of the first batch
tell. If none of them drew, later samples are read unseeded and watched; should one turn out
to have drawn after all, its batch is made again with each sample under its seed, and so is
every later one. A batch without draws is the same either way.

Where samples that can't be read are let pass, what takes their place is read under the seed of
their position; a batch that nothing is left of is `LEFT_OUT`.

The user's code runs with one thread a library, see `stoker.workers.one_thread`. Stacking, which
is torch's own, may use all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any, Protocol

from stoker.errors import StreamEnded
from stoker.host.arriving import is_here
from stoker.order.broken import Damage
from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.order.streams import GlobalStreams
from stoker.workers.lean import Lean
from stoker.workers.mending import Mender, Seed
from stoker.workers.one_thread import OneThread, is_copy
from stoker.workers.tables import Rows
from stoker.workers.tolerance import LEFT_OUT, OnError, Stream, Tolerance

_FIRST_LOOK = 8  # samples
_DRAWN = object()


class Ended(Exception):
    """An iterable data set has no more batches."""


class Draws:
    """Whether reading a sample of a data set draws random numbers; None: not known yet."""

    def __init__(self) -> None:
        self.known: bool | None = None


class Maker(Protocol):
    """Makes the batches of one epoch."""

    @property
    def damage(self) -> Damage | None:
        """What could not be read of the last batch, and was let pass; None: nothing."""
        ...

    def make(self, task: Task) -> Any:
        """Makes a batch, or `LEFT_OUT`; raises what the data set raises, or `Ended`."""
        ...


AT_NO_SAMPLE, IN_COLLATE = -1, -2
"""What stands in place of a position while no single sample is read."""


class _Place:
    """What is being done: for the message if it fails.

    Attributes:
        note: Told of the position in the batch before its sample is read; None as long as no
            worker has died at this batch.
    """

    def __init__(self) -> None:
        self.note: Callable[[int], None] | None = None
        self.collating = False
        self._what: Any = None
        self._left: Iterator[Any] | None = None

    @property
    def collating(self) -> bool:
        """Whether the samples have been read."""
        return self._collating

    @collating.setter
    def collating(self, collating: bool) -> None:
        self._collating = collating
        if self.note is not None:
            self.note(IN_COLLATE if collating else AT_NO_SAMPLE)

    def at(self, what: Any) -> None:
        """One index is being read; None: whatever the iterator yields next."""
        self.collating, self._what, self._left = False, what, None

    def __str__(self) -> str:
        if self.collating:
            return "in collate_fn"
        if self._left is None and self._what is None:
            return "in the iterator"
        if self._left is None:
            return f"at sample index {self._what!r}"
        done = len(self._what) - length_hint(self._left)
        return f"at sample index {self._what[max(0, done - 1)]!r}"

    def walk(self, indices: Any) -> Iterator[Any]:
        """Iterates over the indices of a batch, keeping in view which one is being read."""
        known = indices if isinstance(indices, (list, tuple, range)) else list(indices)
        self.collating, self._what, self._left = False, known, iter(known)
        return self._left if self.note is None else self._noted(self._left, self.note)

    def _noted(self, left: Iterator[Any], note: Callable[[int], None]) -> Iterator[Any]:
        for position, index in enumerate(left):
            note(position)
            yield index


class MapMaker:
    """Makes batches from a map-style data set.

    Args:
        dataset: With ``__getitem__``, and ``__getitems__`` where it has one.
        batched: Whether a task's index is a list of indices (else one index).
        collate: Turns the samples, or the one sample, into a batch.
        key: Of the epoch.
        draws: What is known about whether samples draw; learnt here, kept by the caller.
        on_error: What is to become of samples that can't be read; None: their error is raised.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batched: bool,
        collate: Callable[[Any], Any],
        key: EpochKey,
        draws: Draws,
        on_error: OnError | None = None,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._key = key
        self._streams = GlobalStreams()
        self._one_thread = OneThread()
        self._by_sample = batched and not getattr(dataset, "__getitems__", None)
        self._batched = batched
        self._draws = draws
        self._quiet_collate = _draws_nothing(collate)
        stock = batched and self._quiet_collate
        self._rows = Rows(dataset) if stock and Rows.fit(dataset) else None
        self._mender = None
        if on_error is not None:
            self._mender = Mender(dataset, self._streams, on_error, key)
        self.place = _Place()

    def begin_epoch(self, key: EpochKey) -> None:
        """From now on, batches of another epoch."""
        self._key = key
        if self._mender is not None:
            self._mender.begin_epoch(key)

    @property
    def damage(self) -> Damage | None:
        return self._mender.damage if self._mender is not None else None

    def make(self, task: Task) -> Any:
        if self._mender is not None:
            self._mender.begin(0)
        if self._rows is not None and (rows := self._rows.batch(task.index)) is not None:
            return rows
        seed = self._key.batch(task.number)
        try:
            if self._by_sample and self._draws.known is False:
                streams = self._streams.watched(seed)
                batch = streams.to(self._one_thread.run, self._made_unseeded, task, seed)
                if batch is not _DRAWN:
                    return batch
                self._draws.known = True
            streams = self._streams.lent(seed)
            return streams.to(self._one_thread.run, self._made_seeded, task)
        except StopIteration as error:
            raise _no_end(error, self.place) from error

    def _made_unseeded(self, task: Task, seed: int) -> Any:
        """The batch, or `_DRAWN` if reading a sample has drawn."""
        samples = self._unseeded(task)
        if samples is _DRAWN:
            return _DRAWN
        if not self._quiet_collate:
            self._streams.seed(seed)
        return self._collated(samples)

    def _unseeded(self, task: Task) -> Any:
        dataset = self._dataset
        samples: Any
        try:
            if self._mender is None:
                samples = [dataset[index] for index in self.place.walk(task.index)]
            else:
                samples = self._one_by_one(task, _leave_be)
        except Exception:
            if not self._streams.drawn():
                raise
            return _DRAWN
        return _DRAWN if self._streams.drawn() else samples

    def _made_seeded(self, task: Task) -> Any:
        if self._by_sample:
            return self._collated(self._one_by_one(task, self._streams.seed))
        return self._collated(self._whole(task))

    def _whole(self, task: Task) -> Any:
        self.place.at(task.index)
        try:
            if self._batched:
                return self._dataset.__getitems__(task.index)
            return self._dataset[task.index]
        except Exception as error:
            if self._mender is None:
                raise
            mend = self._mender.whole if self._batched else self._mender.alone
            return mend(task, error)

    def _one_by_one(self, task: Task, seed: Seed) -> Any:
        """Reads the samples, each under its seed; then sets the seed of the batch."""
        dataset, key, mender = self._dataset, self._key.sample, self._mender
        looks = _FIRST_LOOK if self._draws.known is None else 0
        if mender is not None:
            mender.begin(len(task.index))
        samples: list[Any] = []
        for position, index in enumerate(self.place.walk(task.index), task.start):
            seed(key(position))
            try:
                samples.append(dataset[index])
            except Exception as error:
                if mender is None:
                    raise
                samples.append(mender.in_place_of(task, position, index, error, seed))
            if looks:
                looks -= 1
                self._draws.known = self._streams.drawn()
                looks *= not self._draws.known
        seed(self._key.batch(task.number))
        return samples if self.damage is None else _left(samples)

    def _collated(self, samples: Any) -> Any:
        if samples is LEFT_OUT:
            return samples
        self.place.collating = True
        if self._quiet_collate and not is_copy():
            self._one_thread.end()
        return self._collate(samples)


def _left(samples: list[Any]) -> Any:
    """Samples without those left out; `LEFT_OUT` where none is left."""
    return [each for each in samples if each is not LEFT_OUT] or LEFT_OUT


def _draws_nothing(collate: Any) -> bool:
    """See `stoker.workers.collating.draws_nothing`; torch's own function brings torch along."""
    if isinstance(collate, Lean):
        return True
    if not is_here("torch"):
        return False
    from stoker.workers.collating import draws_nothing

    return draws_nothing(collate)


def _leave_be(seed: int) -> None:
    """In place of seeding."""


def _no_end(error: StopIteration, place: _Place) -> RuntimeError:
    """What a StopIteration from user code becomes: let through, it would end the epoch."""
    return RuntimeError(f"StopIteration was raised {place}, which must not end the epoch: {error}")


class IterableMaker:
    """Makes batches from one iterator over an iterable data set, as torch does.

    Nothing can be made twice here, so every batch is made under a seed of its own: of the
    epoch, the worker that holds the iterator, and how many it has made.

    Args:
        dataset: The iterable.
        batched: Whether a task's index is as long as the batch is to be (else one sample).
        collate: Turns the samples, or the one sample, into a batch.
        drop_last: Whether a last, smaller batch is left out.
        key: Of the epoch.
        shard: Number of the worker, 0 in the main process.
        on_error: What is to become of errors of the iterator; None: they are raised.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batched: bool,
        collate: Callable[[Any], Any],
        drop_last: bool,
        key: EpochKey,
        shard: int,
        on_error: OnError | None = None,
    ) -> None:
        self._dataset = dataset
        self._batched = batched
        self._collate = collate
        self._drop_last = drop_last
        self._shard = shard
        self._quiet_collate = _draws_nothing(collate)
        self._streams = GlobalStreams()
        self._one_thread = OneThread()
        self._tolerance = Tolerance(on_error, key) if on_error is not None else None
        self.place = _Place()
        self.begin_epoch(key)

    def begin_epoch(self, key: EpochKey) -> None:
        """Starts again, with a new iterator, in another epoch."""
        self._key = key
        self._iterator: Iterator[Any] | None = None
        self._ended = False
        self._step = 0

    @property
    def damage(self) -> Damage | None:
        return self._tolerance.damage if self._tolerance is not None else None

    def make(self, task: Task) -> Any:
        if self._ended:
            raise Ended
        streams = self._streams.lent(self._key.shard(self._shard, self._step))
        self._step += 1
        return streams.to(self._one_thread.run, self._next, task)

    def _next(self, task: Task) -> Any:
        return self._collated(self._read(task))

    def _read(self, task: Task) -> Any:
        self.place.at(None)
        if self._iterator is None:
            try:
                self._iterator = iter(self._dataset)
            except StopIteration as error:
                raise _no_end(error, self.place) from error
            if self._tolerance is not None:
                self._iterator = Stream(self._iterator, self._tolerance)
        wanted = len(task.index) if self._batched else 1
        if self._tolerance is not None:
            self._tolerance.begin(wanted)
        return self._take(wanted) if self._batched else self._one()

    def _collated(self, samples: Any) -> Any:
        if samples is LEFT_OUT:
            return samples
        self.place.collating = True
        if self._quiet_collate:
            self._one_thread.end()
        try:
            return self._collate(samples)
        except StopIteration as error:
            raise _no_end(error, self.place) from error

    def _one(self) -> Any:
        assert self._iterator is not None
        try:
            return next(self._iterator)
        except StopIteration:
            self._ended = True
            raise Ended from None
        except StreamEnded:
            self._ended = True
            raise

    def _take(self, wanted: int) -> Any:
        assert self._iterator is not None
        samples: list[Any] = []
        while len(samples) < wanted:
            if self.place.note is not None:
                self.place.note(len(samples))
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
            except StreamEnded:
                self._ended = True
                raise
        if not samples or (self._drop_last and len(samples) < wanted):
            raise Ended
        return samples if self.damage is None else _left(samples)
