"""What becomes of errors in an iterator of samples, in one maker of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from stoker.errors import ArgumentError, StreamEnded
from stoker.options import REPLACE, SKIP
from stoker.order.epoch import Task
from stoker.workers.making import Ended, IterableMaker
from stoker.workers.tolerance import LEFT_OUT, OnError
from tests.unit.workers.test_tolerance import KEY, _keep, told


class Counting:
    """An iterator that goes on after its errors."""

    def __init__(self, length: int, flaws: Any) -> None:
        self.left = iter(range(length))
        self.flaws = set(flaws)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        number = next(self.left)
        if number in self.flaws:
            raise ValueError("broken")
        return number


class Streaming(IterableDataset[Any]):
    def __init__(self, begin: Any) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        started: Iterator[Any] = self.begin()
        return started


def stream_maker(begin: Any, policy: Any = SKIP, **options: Any) -> IterableMaker:
    more: Any = {"batched": True, "drop_last": False} | options
    return IterableMaker(
        Streaming(begin), collate=_keep, key=KEY, shard=0, on_error=OnError(policy), **more
    )


def epoch_of(made: IterableMaker, size: int | None = 3) -> list[Any]:
    """Its batches, and what was raised in place of one."""
    batches: list[Any] = []
    for number in range(100):
        try:
            batches.append(made.make(Task(number, 0, None if size is None else [None] * size)))
        except Ended:
            return batches
        except Exception as error:
            batches.append(error)
    raise AssertionError("it does not end")


class TestStreams:
    def test_an_iterator_that_goes_on_is_gone_on_with(self) -> None:
        made = stream_maker(lambda: Counting(12, {1, 6, 7, 8}))
        assert epoch_of(made) == [[0, 2], [3, 4, 5], LEFT_OUT, [9, 10, 11]]

    @pytest.mark.parametrize("last", [{11}, {9, 10, 11}])
    def test_its_last_items_may_be_broken(self, last: set[int]) -> None:
        made = stream_maker(lambda: Counting(12, last))
        assert epoch_of(made)[:3] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]

    def test_what_is_told_is_the_position(self) -> None:
        made = stream_maker(lambda: Counting(12, {4}))
        made.make(Task(0, 0, [None] * 3))
        made.make(Task(1, 3, [None] * 3))
        assert told(made) == [(4, "skipped")]

    def test_a_function_may_give_a_value(self) -> None:
        made = stream_maker(lambda: Counting(6, {1, 4}), lambda index, error: -index)
        assert epoch_of(made) == [[0, -1, 2], [3, -4, 5]]

    def test_a_short_batch_at_the_end_is_dropped_by_its_places(self) -> None:
        made = stream_maker(lambda: Counting(8, {4, 6}), drop_last=True)
        assert epoch_of(made) == [[0, 1, 2], [3, 5]]

    def test_singles(self) -> None:
        made = stream_maker(lambda: Counting(4, {1}), batched=False)
        assert epoch_of(made, None) == [0, LEFT_OUT, 2, 3]

    def test_a_generator_that_raised_is_an_error_and_not_the_end(self) -> None:
        def generate() -> Iterator[int]:
            for number in range(9):
                if number == 4:
                    raise ValueError("broken")
                yield number

        first, lost, *rest = epoch_of(stream_maker(generate))
        assert (first, rest) == ([0, 1, 2], [])
        assert isinstance(lost, StreamEnded)
        assert isinstance(lost.__cause__, ValueError)
        assert "generator" in str(lost)
        assert "item 4" in str(lost)
        assert "ValueError: broken" in str(lost)
        assert "in generate" in lost.doing

    @pytest.mark.parametrize("size", [3, None])
    def test_so_is_one_inside_another_iterator(self, size: int | None) -> None:
        def generate() -> Iterator[int]:
            yield from range(4)
            raise ValueError("broken")

        made = stream_maker(lambda: map(abs, generate()), batched=size is not None)
        got = epoch_of(made, size)
        assert isinstance(got[-1], StreamEnded)
        assert sum(isinstance(each, StreamEnded) for each in got) == 1

    def test_a_new_generator_inside_is_gone_on_with(self) -> None:
        class Reopening:
            """Opens the next part when one has failed."""

            def __init__(self) -> None:
                self.parts = [self.part(0, True), self.part(10, False)]

            def part(self, first: int, fails: bool) -> Iterator[int]:
                yield first
                yield first + 1
                if fails:
                    raise ValueError("part is broken")

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> int:
                while self.parts:
                    try:
                        return next(self.parts[0])
                    except StopIteration:
                        self.parts.pop(0)
                    except ValueError:
                        self.parts.pop(0)
                        raise
                raise StopIteration

        assert epoch_of(stream_maker(Reopening)) == [[0, 1], [10, 11]]

    def test_a_lack_of_memory_is_raised(self) -> None:
        class Starved(Counting):
            def __next__(self) -> int:
                raise MemoryError

        made = stream_maker(lambda: Starved(3, ()))
        with pytest.raises(MemoryError):
            made.make(Task(0, 0, [None]))

    def test_there_is_nothing_to_replace_from(self) -> None:
        made = stream_maker(lambda: Counting(3, {0}), lambda index, error: REPLACE)
        with pytest.raises(ArgumentError, match="iterable data set has none"):
            made.make(Task(0, 0, [None]))

    def test_without_a_policy_errors_are_raised(self) -> None:
        made = IterableMaker(
            Streaming(lambda: Counting(3, {1})),
            batched=True,
            collate=_keep,
            drop_last=False,
            key=KEY,
            shard=0,
        )
        with pytest.raises(ValueError, match="broken"):
            made.make(Task(0, 0, [None] * 3))
