"""How what takes the place of a map-style sample is read: under the seed of its position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.order.broken import Damage
from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.order.streams import GlobalStreams
from stoker.workers.tolerance import LEFT_OUT, OnError, Tolerance

Seed = Callable[[int], None]


class _Sound(NamedTuple):
    """A sample that can be read."""

    index: Any


class Mender:
    """Mends the batches of one maker, whose random states are lent meanwhile.

    Args:
        dataset: The data set.
        streams: The maker's.
        on_error: What is to become of samples that can't be read.
        key: Of the epoch.
    """

    def __init__(
        self, dataset: Any, streams: GlobalStreams, on_error: OnError, key: EpochKey
    ) -> None:
        self._dataset = dataset
        self._streams = streams
        self._tolerance = Tolerance(on_error, key)

    def begin_epoch(self, key: EpochKey) -> None:
        """From now on, batches of another epoch."""
        self._tolerance.key = key

    def begin(self, places: int) -> None:
        """A batch of so many samples is begun, maybe once more."""
        self._tolerance.begin(places)

    @property
    def damage(self) -> Damage | None:
        """What is broken in the batch; None where nothing is."""
        return self._tolerance.damage

    def in_place_of(
        self, task: Task, position: int, index: Any, error: Exception, seed: Seed
    ) -> Any:
        """What takes the place of one sample of a batch: a sample, or `LEFT_OUT`."""

        def read(other: Any) -> Any:
            seed(self._tolerance.key.sample(position))
            return self._dataset[other]

        return self._tolerance.in_place_of(
            index, error, position=position, batch=task.index, read=read
        )

    def alone(self, task: Task, error: Exception) -> Any:
        """What takes the place of a sample that is a batch by itself, or `LEFT_OUT`."""

        def read(other: Any) -> Any:
            self._streams.seed(self._tolerance.key.batch(task.number))
            return self._dataset[other]

        self.begin(1)
        return self._tolerance.in_place_of(
            task.index, error, position=task.start, batch=(), read=read
        )

    def whole(self, task: Task, error: Exception) -> Any:
        """The samples of a batch that could not be read at once by ``__getitems__``.

        Each is tried alone to find those that are broken, and what is left of them is read at
        once again: what that gives need be no list.

        Raises:
            Exception: `error`, where every sample can be read alone.
        """
        found = self._tried(task)
        if self.damage is None:
            raise error
        self._streams.seed(self._tolerance.key.batch(task.number))
        indices = [each.index for each in found if type(each) is _Sound]
        samples = self._dataset.__getitems__(indices) if indices else []
        if len(found) == len(indices):
            return samples if found else LEFT_OUT
        if not isinstance(samples, (list, tuple)) or len(samples) != len(indices):
            raise TypeError(
                "on_error gave a value for a sample, which can't be put into what __getitems__ "
                f"gives: a {type(samples).__name__} and not a list of {len(indices)} samples"
            ) from error
        rest = iter(samples)
        return [next(rest) if type(each) is _Sound else each for each in found]

    def _tried(self, task: Task) -> list[Any]:
        """For every place a `_Sound` index or the value given; nothing for those left out."""
        position = task.start

        def sound(index: Any) -> _Sound:
            self._streams.seed(self._tolerance.key.sample(position))
            self._dataset.__getitems__([index])
            return _Sound(index)

        self.begin(len(task.index))
        found: list[Any] = []
        for position, index in enumerate(task.index, task.start):
            try:
                each: Any = sound(index)
            except Exception as error:
                each = self._tolerance.in_place_of(
                    index, error, position=position, batch=task.index, read=sound
                )
            if each is not LEFT_OUT:
                found.append(each)
        return found
