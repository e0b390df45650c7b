"""Which indices are in which batch: the sampler, numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stoker.order.keys import EpochKey
from stoker.order.streams import GlobalStreams


class Task(NamedTuple):
    """One batch to make.

    Attributes:
        number: Position of the batch in the epoch, from 0.
        start: Position in the epoch of its first sample, from 0.
        index: What the sampler gave: a list of indices when batching is automatic,
            one index when ``batch_size=None``.
    """

    number: int
    start: int
    index: Any


class EpochPlan:
    """Numbers what a sampler yields.

    The sampler runs in the main process only and is asked for one batch at a time. It is
    never asked again after it ended or raised.

    Args:
        sampler: Iterator over batches of indices, or over single indices.
        batched: Whether each item is a batch of indices.
        private: None, or what wraps each request so that the sampler draws from a
            random state of its own (see :class:`PrivateSampling`).
        generator: What the sampler draws from, where that is not a global one; or None.
        length: How many batches there are; None when unknown.
    """

    def __init__(
        self,
        sampler: Iterator[Any],
        *,
        batched: bool,
        private: Callable[[Iterator[Any]], Any] | None = None,
        generator: Any = None,
        length: int | None = None,
    ) -> None:
        self._generator = generator
        self._length = length
        self._end_drew: tuple[Any, Any] | None = None
        self._sampler = sampler
        self._batched = batched
        self._pull: Callable[[Iterator[Any]], Any] = private or next
        self._number = 0
        self._start = 0
        self._ended = False
        self._held: Task | BaseException | None = None

    def hold_first(self) -> None:
        """Asks for the first batch now, and keeps it, or the error, for the first `next`.

        A random sampler draws when it is first asked. Doing that at once makes the
        caller's random state the same whatever the number of workers.
        """
        try:
            self._held = self._ask()
        except Exception as error:
            self._held = error

    def next(self) -> Task | None:
        """The next batch, or None at the end.

        Raises:
            Exception: What the sampler raised; the plan has ended then.
        """
        held, self._held = self._held, None
        if isinstance(held, BaseException):
            raise held
        return held if held is not None else self._ask()

    def leave(self) -> None:
        """The epoch is left before its end was reached; does nothing once it was.

        Shuffling draws once more when a sampler ends. Workers that run ahead may have asked
        for its end already: that draw is taken back, so that what the generator gives next
        does not depend on how far they were.
        """
        drew, self._end_drew = self._end_drew, None
        if drew is not None and bool((self._generator.get_state() == drew[1]).all()):
            self._generator.set_state(drew[0])

    def reached(self) -> None:
        """The consumer has come to the end of the epoch."""
        self._end_drew = None

    @property
    def upcoming(self) -> int:
        """The number of the batch that `next` gives."""
        return self._held.number if isinstance(self._held, Task) else self._number

    def _ask(self) -> Task | None:
        if self._ended:
            return None
        at_end = self._generator is not None and self._number == self._length
        before = self._generator.get_state() if at_end else None
        try:
            index = self._pull(self._sampler)
        except StopIteration:
            self._ended = True
            if at_end:
                self._end_drew = before, self._generator.get_state()
            return None
        except BaseException:
            self._ended = True
            raise
        if self._batched and not hasattr(index, "__len__"):
            index = list(index)
        task = Task(self._number, self._start, index)
        self._number += 1
        self._start += len(index) if self._batched else 1
        return task


class PrivateSampling:
    """Runs a sampler under a random state of its own and leaves the global one untouched."""

    def __init__(self, key: EpochKey) -> None:
        self._streams = GlobalStreams()
        self._seed = key.sampler()
        self._state: Any = None

    def __call__(self, sampler: Iterator[Any]) -> Any:
        return self._streams.lent(self._seed).to(self._next, sampler)

    def _next(self, sampler: Iterator[Any]) -> Any:
        if self._state is not None:
            self._streams.replace(self._state)
        try:
            return next(sampler)
        finally:
            self._state = self._streams.capture()
