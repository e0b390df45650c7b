"""What becomes of samples that can't be read, in one maker of batches."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from stoker.errors import ArgumentError, StreamEnded, TooManyErrors
from stoker.options import REPLACE, SKIP
from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.order.population import Population
from stoker.workers.making import Draws, Ended, IterableMaker, MapMaker
from stoker.workers.tolerance import LEFT_OUT, MOST_READS, OnError
from tests.datasets import Plain, draw_all
from tests.unit.alike import assert_alike

KEY = EpochKey(2024)
LENGTH = 40


class Flawed(Plain):
    """Some samples raise; those from `drawing` on draw, before they raise too."""

    def __init__(self, flaws: Any, drawing: int = LENGTH, error: Exception | None = None) -> None:
        super().__init__(LENGTH)
        self.flaws = set(flaws)
        self.drawing = drawing
        self.error = error if error is not None else ValueError("broken")
        self.reads: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        drawn = draw_all() if index >= self.drawing else None
        if index in self.flaws:
            raise self.error
        return index, drawn


class InBatches(Flawed):
    """Reads whole batches, and draws for each sample."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [(self[index], random.random()) for index in indices]


class InColumns(Flawed):
    """What it gives for a batch is no list of samples."""

    def __getitems__(self, indices: list[int]) -> Any:
        return {"index": [self[index][0] for index in indices], "drawn": random.random()}


def _keep(samples: Any) -> Any:
    return samples


def tasks(size: int, length: int = LENGTH) -> list[Task]:
    return [
        Task(n, n * size, list(range(first, min(first + size, length))))
        for n, first in enumerate(range(0, length, size))
    ]


def maker(
    dataset: Any,
    policy: Any,
    *,
    indices: Any = range(LENGTH),
    known: bool | None = None,
    batched: bool = True,
    collate: Any = _keep,
) -> MapMaker:
    draws = Draws()
    draws.known = known
    population = Population(indices) if indices is not None else None
    return MapMaker(
        dataset,
        batched=batched,
        collate=collate,
        key=KEY,
        draws=draws,
        on_error=OnError(policy, population),
    )


def made_of(batch: Any) -> list[int]:
    """The indices in a batch."""
    return [] if batch is LEFT_OUT else [sample[0] for sample in batch]


def told(made: MapMaker | IterableMaker) -> list[tuple[Any, str]]:
    """Index and outcome of what was broken in its last batch."""
    return [(each.index, each.outcome) for each in made.damage.broken] if made.damage else []


def by_index(index: Any, error: Exception) -> Any:
    """Skips, replaces or gives a value, by the index."""
    assert isinstance(error, ValueError)
    return (SKIP, REPLACE, (-index, None))[index % 3]


@settings(max_examples=40)
@given(
    flaws=st.sets(st.integers(0, LENGTH - 1), max_size=LENGTH - 5),
    drawing=st.sampled_from([0, 1, 20, LENGTH]),
    size=st.sampled_from([1, 3, 10]),
    policy=st.sampled_from([SKIP, REPLACE, by_index]),
    indices=st.sampled_from([range(LENGTH), None]),
    order=st.randoms(use_true_random=False),
    workers=st.integers(1, 3),
)
def test_batches_do_not_depend_on_who_makes_them_nor_when(
    flaws: set[int],
    drawing: int,
    size: int,
    policy: Any,
    indices: Any,
    order: random.Random,
    workers: int,
) -> None:
    def new(known: bool | None) -> MapMaker:
        return maker(Flawed(flaws, drawing), policy, indices=indices, known=known)

    def answer(made: MapMaker, task: Task) -> Any:
        try:
            return made.make(task), made.damage
        except TooManyErrors as error:
            return str(error)

    expected = [answer(new(True), task) for task in tasks(size)]
    makers = [new(None) for _ in range(workers)]
    shuffled = tasks(size)
    order.shuffle(shuffled)
    for task in shuffled:
        got = answer(order.choice(makers), task)
        assert got[1] == expected[task.number][1]
        if isinstance(got, tuple) and got[0] is not LEFT_OUT:
            assert_alike(got[0], expected[task.number][0])
        else:
            assert got == expected[task.number]


@pytest.mark.parametrize("drawing", [0, LENGTH])
def test_a_skipped_sample_makes_a_smaller_batch(drawing: int) -> None:
    made = maker(Flawed({1, 5, 12, 13, 14, 15}, drawing), SKIP)
    batches = [made_of(made.make(task)) for task in tasks(4, 20)]
    assert batches == [[0, 2, 3], [4, 6, 7], [8, 9, 10, 11], [], [16, 17, 18, 19]]


def test_a_batch_that_nothing_is_left_of_is_not_collated() -> None:
    def collate(samples: Any) -> Any:
        assert samples
        return samples

    made = maker(Flawed({0, 1}), SKIP, collate=collate)
    assert made.make(Task(0, 0, [0, 1])) is LEFT_OUT
    assert told(made) == [(0, "skipped"), (1, "skipped")]
    assert made.damage is not None
    assert (made.damage.places, made.damage.is_whole) == (2, True)
    made.make(Task(1, 2, [2, 3]))
    assert made.damage is None


def test_others_keep_their_numbers() -> None:
    whole = maker(Flawed((), 0), SKIP).make(tasks(4)[1])
    left = maker(Flawed({5}, 0), SKIP).make(tasks(4)[1])
    assert_alike(left, [whole[0], whole[2], whole[3]])


def test_a_batch_without_draws_is_read_once() -> None:
    dataset = Flawed({9, 11})
    made = maker(dataset, SKIP)
    for task in tasks(4):
        made.make(task)
    assert dataset.reads == list(range(LENGTH))


class TestReplacing:
    def test_a_batch_keeps_its_size_and_has_none_that_is_broken(self) -> None:
        flaws = {1, 5, 12, 13, 14, 15}
        made = maker(Flawed(flaws), REPLACE)
        for task in tasks(4):
            got = made_of(made.make(task))
            assert len(got) == 4
            assert not flaws & set(got)
            for index, there in zip(task.index, got, strict=True):
                assert there == index or index in flaws

    def test_its_number_follows_from_the_position(self) -> None:
        """As if the sampler had given that index there."""
        batch = maker(Flawed({5}, 0), REPLACE).make(tasks(4)[1])
        other = batch[1][0]
        assert other != 5
        given = Task(1, 4, [4, other, 6, 7])
        assert_alike(maker(Flawed((), 0), REPLACE).make(given), batch)

    def test_positions_epochs_and_seeds_differ(self) -> None:
        made = maker(Flawed({5}), REPLACE)
        got = {made_of(made.make(Task(n, n, [5])))[0] for n in range(60)}
        assert len(got) > 20
        made.begin_epoch(EpochKey(2024, 1))
        again = [made_of(made.make(Task(n, n, [5])))[0] for n in range(60)]
        made.begin_epoch(KEY)
        assert again != [made_of(made.make(Task(n, n, [5])))[0] for n in range(60)]

    def test_it_is_drawn_from_what_the_sampler_draws_from(self) -> None:
        made = maker(Flawed({5}), REPLACE, indices=[3, 5, 8])
        got = {made_of(made.make(Task(n, n, [5])))[0] for n in range(60)}
        assert got == {3, 8}

    def test_or_from_its_own_batch(self) -> None:
        made = maker(Flawed({5, 6}), REPLACE, indices=None)
        got = {made_of(made.make(Task(n, 4 * n, [4, 5, 6, 7])))[1] for n in range(60)}
        assert got == {4, 7}
        with pytest.raises(TooManyErrors, match="nor could any of 0 others") as caught:
            made.make(Task(0, 0, [5]))
        assert "only indices of the same batch" in caught.value.likely

    def test_what_is_broken_as_well_counts_and_another_is_drawn(self) -> None:
        made = maker(Flawed(range(10)), REPLACE, indices=range(30))
        batches = [made.make(Task(n, n, [5])) for n in range(60)]
        assert {index for batch in batches for index in made_of(batch)} <= set(range(10, 30))
        counts = []
        for n in range(60):
            made.make(Task(n, n, [5]))
            broken = told(made)
            assert broken[0] == (5, "replaced")
            assert len(dict(broken)) == len(broken)
            counts.append(len(broken))
        assert max(counts) > 1

    def test_a_few_are_tried_and_no_more(self) -> None:
        dataset = Flawed(range(LENGTH))
        with pytest.raises(TooManyErrors, match=r"index 5 .*ValueError: broken") as caught:
            maker(dataset, REPLACE).make(Task(0, 0, [5, 6]))
        assert len(dataset.reads) == len(set(dataset.reads)) == caught.value.errors
        assert caught.value.errors == 1 + MOST_READS
        assert isinstance(caught.value.__cause__, ValueError)
        assert "on_error" in caught.value.change

    def test_where_there_are_two_the_other_is_found(self) -> None:
        made = maker(Flawed({0}), REPLACE, indices=[0, 1])
        assert [made_of(made.make(Task(n, n, [0]))) for n in range(50)] == [[1]] * 50


class TestFunctions:
    def test_it_is_told_the_index_and_the_very_exception(self) -> None:
        asked = []

        def ask(index: Any, error: Exception) -> Any:
            asked.append((index, error))
            return -1, None

        dataset = Flawed({5})
        made = maker(dataset, ask)
        assert made_of(made.make(tasks(4)[1])) == [4, -1, 6, 7]
        assert asked == [(5, dataset.error)]
        assert told(made) == [(5, "given")]

    def test_it_may_say_what_to_do(self) -> None:
        made = maker(Flawed({3, 4}), by_index)
        assert made_of(made.make(tasks(4)[0])) == [0, 1, 2]
        assert told(made) == [(3, "skipped")]
        assert len(made_of(made.make(tasks(4)[1]))) == 4
        assert told(made)[0] == (4, "replaced")

    def test_what_it_raises_is_raised(self) -> None:
        def refuse(index: Any, error: Exception) -> Any:
            raise LookupError(f"not without {index}") from error

        made = maker(Flawed({5}), refuse)
        with pytest.raises(LookupError, match="not without 5"):
            made.make(tasks(4)[1])
        assert "at sample index 5" in str(made.place)

    def test_a_stop_iteration_is_not_the_end(self) -> None:
        def stop(index: Any, error: Exception) -> Any:
            raise StopIteration

        for dataset in (Flawed({5}), InBatches({5})):
            with pytest.raises(RuntimeError, match="StopIteration"):
                maker(dataset, stop).make(tasks(4)[1])

    def test_none_is_a_value(self) -> None:
        made = maker(Flawed({0}), lambda index, error: None)
        assert made.make(Task(0, 0, [0])) == [None]

    def test_what_it_draws_follows_from_the_position(self) -> None:
        def draw(index: Any, error: Exception) -> Any:
            return -index, draw_all()

        expected = maker(Flawed({5}), draw, known=True).make(tasks(4)[1])
        assert_alike(maker(Flawed({5}), draw, known=False).make(tasks(4)[1]), expected)


EXHAUSTED = [MemoryError(), OSError(errno.EMFILE, "too many open files")]


@pytest.mark.parametrize("error", EXHAUSTED)
@pytest.mark.parametrize("policy", [SKIP, REPLACE])
@pytest.mark.parametrize("kind", [Flawed, InBatches])
def test_what_blames_the_process_is_raised(error: Exception, policy: Any, kind: Any) -> None:
    made = maker(kind({5}, error=error), policy)
    with pytest.raises(type(error)) as caught:
        made.make(tasks(4)[1])
    assert caught.value is error


@pytest.mark.parametrize("policy", [SKIP, REPLACE])
def test_interrupts_and_exits_are_no_broken_samples(policy: Any) -> None:
    for error in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            maker(Flawed({5}, error=error), policy).make(tasks(4)[1])  # type: ignore[arg-type]


def test_errors_of_collate_are_no_broken_samples() -> None:
    def collate(samples: Any) -> Any:
        raise ValueError("cannot be collated")

    with pytest.raises(ValueError, match="cannot be collated"):
        maker(Flawed(()), SKIP, collate=collate).make(tasks(4)[0])


class TestWholeBatches:
    """Data sets with ``__getitems__``."""

    @pytest.mark.parametrize("kind", [InBatches, InColumns])
    def test_what_is_left_is_read_as_if_it_had_been_asked_for(self, kind: Any) -> None:
        batch = maker(kind({5, 6}), SKIP).make(tasks(4)[1])
        assert_alike(batch, maker(kind(()), SKIP).make(Task(1, 4, [4, 7])))

    @pytest.mark.parametrize("kind", [InBatches, InColumns])
    def test_another_is_read_in_its_place(self, kind: Any) -> None:
        made = maker(kind({5}), REPLACE, indices=[20])
        batch = made.make(tasks(4)[1])
        assert_alike(batch, maker(kind(()), SKIP).make(Task(1, 4, [4, 20, 6, 7])))
        assert told(made) == [(5, "replaced")]

    def test_a_value_is_put_among_samples(self) -> None:
        batch = maker(InBatches({5, 6}), lambda i, e: f"no {i}").make(tasks(4)[1])
        assert [each if isinstance(each, str) else each[0][0] for each in batch] == [
            4,
            "no 5",
            "no 6",
            7,
        ]
        assert maker(InBatches({4, 5}), lambda i, e: i).make(Task(0, 0, [4, 5])) == [4, 5]

    def test_a_value_cannot_be_put_among_columns(self) -> None:
        with pytest.raises(TypeError, match=r"__getitems__.*a dict"):
            maker(InColumns({5}), lambda i, e: 0).make(tasks(4)[1])

    def test_nothing_may_be_left(self) -> None:
        made = maker(InColumns({4, 5}), SKIP)
        assert made.make(Task(0, 0, [4, 5])) is LEFT_OUT
        assert told(made) == [(4, "skipped"), (5, "skipped")]

    def test_an_error_that_is_no_samples_is_raised(self) -> None:
        class TooLong(InBatches):
            def __getitems__(self, indices: list[int]) -> Any:
                if len(indices) > 2:
                    raise OSError("request too long")
                return super().__getitems__(indices)

        made = maker(TooLong(()), SKIP)
        with pytest.raises(OSError, match="request too long"):
            made.make(tasks(4)[0])
        assert made.damage is None


class TestSingles:
    """``batch_size=None``."""

    def test_each_policy(self) -> None:
        made = maker(Flawed({5}), SKIP, batched=False)
        assert made.make(Task(4, 4, 4)) == (4, None)
        assert made.make(Task(5, 5, 5)) is LEFT_OUT
        assert told(made) == [(5, "skipped")]
        made = maker(Flawed({5}), REPLACE, batched=False, indices=[5, 9])
        assert made.make(Task(5, 5, 5)) == (9, None)
        made = maker(Flawed({5}), lambda i, e: "none", batched=False)
        assert made.make(Task(5, 5, 5)) == "none"

    def test_its_number_follows_from_the_batch(self) -> None:
        made = maker(Flawed({5}, 0), REPLACE, batched=False, indices=[9])
        expected = maker(Flawed((), 0), SKIP, batched=False).make(Task(5, 5, 9))
        assert_alike(made.make(Task(5, 5, 5)), expected)

    def test_without_known_indices_nothing_can_take_its_place(self) -> None:
        with pytest.raises(TooManyErrors):
            maker(Flawed({5}), REPLACE, batched=False, indices=None).make(Task(5, 5, 5))


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
