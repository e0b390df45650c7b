"""How one batch is made from a data set, wherever that happens.

The same code runs in the main process and in workers, so that a batch cannot depend on
where it was made: its random numbers follow from the epoch's key and its position alone.

Samples are seeded one by one only where something draws. The first few tell: if one of them
drew, every sample is seeded from then on. If none did, batches are made under their own seed
alone, and should one turn out to have drawn after all, it is made again with each sample
under its seed, and so is every later one. A batch without draws is the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.order.streams import GlobalStreams

_FIRST_LOOK = 8  # samples


class Ended(Exception):
    """An iterable data set has no more batches."""


class Draws:
    """Whether reading a sample of a data set draws random numbers; None: not known yet."""

    def __init__(self) -> None:
        self.known: bool | None = None


class Maker(Protocol):
    """Makes the batches of one epoch."""

    def make(self, task: Task) -> Any:
        """Makes a batch; raises what the data set raises, or `Ended`."""
        ...


class _Place:
    """What is being done: for the message if it fails."""

    __slots__ = ("index", "stage")

    def __init__(self) -> None:
        self.stage = ""
        self.index: Any = None

    def __str__(self) -> str:
        return "in collate_fn" if self.stage == "collate" else f"at sample index {self.index!r}"


class MapMaker:
    """Makes batches from a map-style data set.

    Args:
        dataset: With ``__getitem__``, and ``__getitems__`` where it has one.
        batched: Whether a task's index is a list of indices (else one index).
        collate: Turns the samples, or the one sample, into a batch.
        key: Of the epoch.
        draws: What is known about whether samples draw; learnt here, kept by the caller.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batched: bool,
        collate: Callable[[Any], Any],
        key: EpochKey,
        draws: Draws,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._key = key
        self._streams = GlobalStreams()
        self._by_sample = batched and not getattr(dataset, "__getitems__", None)
        self._batched = batched
        self._draws = draws
        self.place = _Place()

    def begin_epoch(self, key: EpochKey) -> None:
        """From now on, batches of another epoch."""
        self._key = key

    def make(self, task: Task) -> Any:
        try:
            with self._streams.lent(self._key.batch(task.number)):
                samples = self._samples(task) if self._by_sample else self._whole(task.index)
                return self._collated(samples)
        except StopIteration as error:
            raise _no_end(error, self.place) from error

    def _samples(self, task: Task) -> list[Any]:
        samples = self._look(task) if self._draws.known is None else []
        if self._draws.known:
            return self._seeded(task, samples)
        try:
            self._unseeded(task.index, samples)
        except Exception:
            if not self._streams.drawn():
                raise
        else:
            if not self._streams.drawn():
                return samples
        self._draws.known = True
        return self._seeded(task, [])

    def _whole(self, index: Any) -> Any:
        self.place.stage, self.place.index = "sample", index
        if self._batched:
            return self._dataset.__getitems__(index)
        return self._dataset[index]

    def _look(self, task: Task) -> list[Any]:
        """Reads the first few samples, each under its seed, and learns whether any drew."""
        streams, place = self._streams, self.place
        place.stage = "sample"
        samples = []
        for position, place.index in enumerate(islice(task.index, _FIRST_LOOK), task.start):
            streams.seed(self._key.sample(position))
            streams.mark()
            samples.append(self._dataset[place.index])
            if streams.drawn():
                self._draws.known = True
                return samples
        self._draws.known = False
        streams.seed(self._key.batch(task.number))
        streams.mark()
        return samples

    def _unseeded(self, indices: Any, samples: list[Any]) -> None:
        """Reads the samples after those given, and adds them."""
        dataset, place = self._dataset, self.place
        place.stage = "sample"
        for place.index in islice(indices, len(samples), None):
            samples.append(dataset[place.index])

    def _seeded(self, task: Task, samples: list[Any]) -> list[Any]:
        """Reads the samples after those given, each under its seed; then the batch's is set."""
        dataset, place, seed, key = self._dataset, self.place, self._streams.seed, self._key.sample
        place.stage = "sample"
        start = task.start + len(samples)
        for position, place.index in enumerate(islice(task.index, len(samples), None), start):
            seed(key(position))
            samples.append(dataset[place.index])
        seed(self._key.batch(task.number))
        return samples

    def _collated(self, samples: Any) -> Any:
        self.place.stage = "collate"
        return self._collate(samples)


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
    ) -> None:
        self._dataset = dataset
        self._batched = batched
        self._collate = collate
        self._drop_last = drop_last
        self._shard = shard
        self._streams = GlobalStreams()
        self.place = _Place()
        self.begin_epoch(key)

    def begin_epoch(self, key: EpochKey) -> None:
        """Starts again, with a new iterator, in another epoch."""
        self._key = key
        self._iterator: Iterator[Any] | None = None
        self._ended = False
        self._step = 0

    def make(self, task: Task) -> Any:
        if self._ended:
            raise Ended
        with self._streams.lent(self._key.shard(self._shard, self._step)):
            self._step += 1
            self.place.stage, self.place.index = "sample", f"{task.start} and after"
            if self._iterator is None:
                self._iterator = iter(self._dataset)
            samples = self._take(len(task.index)) if self._batched else self._one()
            self.place.stage = "collate"
            try:
                return self._collate(samples)
            except StopIteration as error:
                raise _no_end(error, self.place) from error

    def _one(self) -> Any:
        assert self._iterator is not None
        for sample in self._iterator:
            return sample
        self._ended = True
        raise Ended

    def _take(self, wanted: int) -> list[Any]:
        assert self._iterator is not None
        samples: list[Any] = []
        while len(samples) < wanted:
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
        if not samples or (self._drop_last and len(samples) < wanted):
            raise Ended
        return samples
