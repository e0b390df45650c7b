"""What becomes of samples that can't be read, in one maker of batches."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import TooManyErrors
from stoker.options import REPLACE, SKIP
from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.order.population import Population
from stoker.workers.making import Draws, IterableMaker, MapMaker
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
