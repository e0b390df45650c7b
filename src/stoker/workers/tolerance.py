"""What becomes of samples that can't be read, where ``on_error`` lets them pass.

Guarantees
    - What takes the place of a sample follows from the seed, its position in the epoch and the
      data set: never from who reads it or when. So what blames the process, such as a lack of
      memory, is raised in any case.
    - Nothing is tried without end: at most so many other samples for one place.
    - A stream that an error has ended is an error, and not an epoch that ends early.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import CO_GENERATOR
from types import GeneratorType
from typing import Any

from stoker.errors import StreamEnded, TooManyErrors
from stoker.options import Instead, replacing_in_a_stream
from stoker.order.broken import Broken, Damage, broken, is_exhaustion, known_as
from stoker.order.keys import EpochKey
from stoker.order.population import Population

MOST_READS = 10
"""How many other samples are read, at most, in place of one."""
_MOST_DRAWS = 200


class Nothing(enum.Enum):
    """Stands where there is no sample, or no batch."""

    LEFT_OUT = "left out"


LEFT_OUT = Nothing.LEFT_OUT


@dataclass(frozen=True)
class OnError:
    """What is to become of samples that can't be read.

    Attributes:
        policy: An `Instead`, or a function of an index and an exception that returns one of
            these or a value to use, or raises.
        population: The indices to replace one from; None: the other ones of its batch.
    """

    policy: Any
    population: Population | None = None


class Tolerance:
    """Finds what takes the place of samples that can't be read; keeps account of a batch.

    Args:
        on_error: What is to become of them.
        key: Of the epoch.
    """

    def __init__(self, on_error: OnError, key: EpochKey) -> None:
        self.key = key
        self._policy = on_error.policy
        self._population = on_error.population
        self._broken: list[Broken] = []
        self._places = 0

    def begin(self, places: int) -> None:
        """A batch is begun, maybe once more, of so many samples."""
        self._broken, self._places = [], places

    @property
    def damage(self) -> Damage | None:
        """What is broken in the batch; None where nothing is."""
        return Damage(self._places, tuple(self._broken)) if self._broken else None

    def in_place_of(
        self,
        index: Any,
        error: Exception,
        *,
        position: int,
        batch: Iterable[Any],
        read: Callable[[Any], Any],
    ) -> Any:
        """What takes the place of one sample.

        Args:
            index: Which could not be read.
            error: What that raised.
            position: Of the sample in the epoch.
            batch: All indices of its batch.
            read: Reads the sample with another index.

        Returns:
            A sample, or `LEFT_OUT`.

        Raises:
            Exception: `error`, what the user's function raises, or `TooManyErrors`.
        """
        answer = self.answer(index, error)
        if answer is not Instead.REPLACE:
            return answer
        self._broken.append(broken(index, error, "replaced"))
        reads = 0
        for other in self._others(index, position, batch):
            reads += 1
            try:
                return read(other)
            except Exception as another:
                if is_exhaustion(another):
                    raise
                self._broken.append(broken(other, another, "replaced"))
        raise _irreplaceable(self._broken[-1 - reads], reads, self._population) from error

    def answer(self, index: Any, error: Exception) -> Any:
        """What the policy says: `Instead.REPLACE`, or what is noted: a value, or `LEFT_OUT`."""
        answer = self._policy
        if not isinstance(answer, Instead):
            try:
                answer = answer(index, error)
            except StopIteration as end:  # Let through, it would end the epoch.
                raise RuntimeError(f"StopIteration was raised by on_error: {end}") from end
        elif is_exhaustion(error):
            raise error
        if answer is Instead.REPLACE:
            return answer
        left_out = answer is Instead.SKIP
        self._broken.append(broken(index, error, "skipped" if left_out else "given"))
        return LEFT_OUT if left_out else answer

    def _others(self, index: Any, position: int, batch: Iterable[Any]) -> Iterator[Any]:
        population = self._population
        if population is None:
            population = Population([each for each in batch if known_as(each) != known_as(index)])
        if not len(population):
            return
        tried = {known_as(index), *(each.index for each in self._broken)}
        reads = 0
        for attempt in range(_MOST_DRAWS):
            other = population.draw(self.key.replacement(position, attempt))
            if reads < MOST_READS and known_as(other) not in tried:
                tried.add(known_as(other))
                reads += 1
                yield other


def _irreplaceable(first: Broken, reads: int, population: Population | None) -> TooManyErrors:
    none_known = population is None and not reads
    error = TooManyErrors(
        f"Sample index {first.index!r} could not be read, nor could any of {reads} others "
        f"drawn in its place: {first.error}",
        doing=f"replacing it, as on_error says; it was raised at {first.where}",
        likely="the sampler is not one of torch's own, so only indices of the same batch can "
        "take its place, and there are no others"
        if none_known
        else "most of the data set can't be read: a path, a format, or a fault in its code",
        change="on_error='skip', or on_error='raise' to see the first error in full",
    )
    error.errors = reads + 1
    return error


class Stream:
    """The iterator of an iterable data set, with `LEFT_OUT` in place of what it could not give.

    Args:
        iterator: The data set's own.
        tolerance: Says what becomes of an error.
    """

    def __init__(self, iterator: Iterator[Any], tolerance: Tolerance) -> None:
        self._iterator = iterator
        self._tolerance = tolerance
        self._pulled = 0
        self._suspect: Broken | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        suspect, self._suspect = self._suspect, None
        try:
            sample = next(self._iterator)
        except StopIteration:
            if suspect is not None:
                raise _ended(suspect, "has given nothing after an error that ended a") from None
            raise
        except Exception as error:
            position, self._pulled = self._pulled, self._pulled + 1
            if is_exhaustion(error):
                raise
            if isinstance(self._iterator, GeneratorType):
                raise _ended(broken(position, error, "skipped"), "is a") from error
            answer = self._tolerance.answer(position, error)
            if answer is Instead.REPLACE:
                raise replacing_in_a_stream() from error
            if _ends_a_generator(error):
                self._suspect = broken(position, error, "skipped")
            return answer
        self._pulled += 1
        return sample


def _ends_a_generator(error: BaseException) -> bool:
    """Whether an error has passed through a generator, which can give nothing more then."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_flags & CO_GENERATOR:
            return True
        trace = trace.tb_next
    return False


def _ended(last: Broken, how: str) -> StreamEnded:
    return StreamEnded(
        f"The iterator of the data set {how} generator, so item {last.index} is its last, and what "
        f"may come after is lost: {last.error}",
        doing=f"reading it, where on_error lets errors pass; raised at {last.where}",
        likely="an error inside a generator, which cannot go on after it",
        change="catch the error inside the generator, or have the data set's __iter__ return an "
        "object with a __next__ of its own",
    )
