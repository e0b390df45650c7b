"""A batch follows from its data set, key and position, whoever makes it and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from random import getstate as python_state
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from stoker.order.epoch import Task
from stoker.order.keys import EpochKey
from stoker.workers.making import Draws, Ended, IterableMaker, MapMaker
from tests.datasets import Counting, Drawing, DrawingFrom, Plain, draw_all
from tests.unit.alike import assert_alike
from tests.unit.order.states import states

KEY = EpochKey(2024)


def _keep(samples: Any) -> Any:
    return samples


def _collate_drawing(samples: Any) -> Any:
    return samples, draw_all()


def tasks(length: int, size: int) -> list[Task]:
    indices = [list(range(i, min(i + size, length))) for i in range(0, length, size)]
    return [Task(n, n * size, batch) for n, batch in enumerate(indices)]


def map_maker(
    dataset: Any,
    *,
    collate: Callable[[Any], Any] = _keep,
    batched: bool = True,
    known: bool | None = None,
    key: EpochKey = KEY,
) -> MapMaker:
    draws = Draws()
    draws.known = known
    return MapMaker(dataset, batched=batched, collate=collate, key=key, draws=draws)


class CountingDraws(Counting):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), draw_all()


class Setting(Plain):
    """Seeds the generators by the index, as some data sets do."""

    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(index)
        random.seed(index)
        np.random.seed(index)
        return index, draw_all()


class Forking(Plain):
    """Draws under `fork_rng`, which puts torch's state back afterwards."""

    def __getitem__(self, index: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            return float(torch.rand(()))


class PuttingBack(Plain):
    """Draws, and puts the states of `random` and numpy back afterwards."""

    def __getitem__(self, index: int) -> Any:
        python, array = random.getstate(), np.random.get_state()
        drawn = random.random(), float(np.random.rand())
        random.setstate(python)
        np.random.set_state(array)
        return drawn


class Peeking(Plain):
    """Derives a generator of its own from the states, without drawing."""

    def __getitem__(self, index: int) -> Any:
        own = random.Random()
        own.setstate(random.getstate())
        return own.random()


class Copying(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(2, generator=torch.Generator().set_state(torch.get_rng_state())).tolist()


class BoundEarlier(Plain):
    """Reads a state through a name of its own, so that only putting it back is seen."""

    def __getitem__(self, index: int) -> Any:
        state = python_state()
        drawn = random.random()
        random.setstate(state)
        return drawn


@settings(max_examples=25)
@given(
    dataset=st.sampled_from(
        [Plain(40), Drawing(40), DrawingFrom(40, 20), DrawingFrom(40, 1), Setting(40)]
    ),
    collate=st.sampled_from([_keep, _collate_drawing, default_collate]),
    size=st.sampled_from([1, 3, 10]),
    order=st.randoms(use_true_random=False),
    workers=st.integers(1, 3),
)
def test_batches_do_not_depend_on_who_makes_them_nor_when(
    dataset: Any, collate: Any, size: int, order: random.Random, workers: int
) -> None:
    if isinstance(dataset, Setting) and collate is default_collate:
        collate = _keep
    expected = [map_maker(dataset, collate=collate, known=True).make(t) for t in tasks(40, size)]
    makers = [map_maker(dataset, collate=collate) for _ in range(workers)]
    shuffled = tasks(40, size)
    order.shuffle(shuffled)
    for task in shuffled:
        assert_alike(order.choice(makers).make(task), expected[task.number])


@pytest.mark.parametrize("kind", [Forking, PuttingBack, Peeking, Copying, BoundEarlier])
def test_reading_a_state_without_moving_it_does_not_tell_workers_apart(kind: Any) -> None:
    dataset, whole = kind(40), tasks(40, 10)
    one = map_maker(dataset)
    expected = [one.make(task) for task in whole]
    for task in reversed(whole):
        assert map_maker(dataset).make(task) == expected[task.number]


@pytest.mark.parametrize("kind", [Counting, CountingDraws])
@pytest.mark.parametrize("size", [1, 7, 20])
def test_every_sample_is_read_once(kind: Any, size: int) -> None:
    dataset = kind(40)
    maker = map_maker(dataset)
    for task in tasks(40, size):
        maker.make(task)
    assert dataset.reads == list(range(40))


def test_a_batch_that_draws_after_all_is_read_again_and_later_ones_once() -> None:
    class Late(Counting):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index), random.random() if index >= 25 else 0.0

    dataset = Late(40)
    maker = map_maker(dataset)
    made = [maker.make(task) for task in tasks(40, 10)]
    assert dataset.reads == [*range(20), *range(20, 30), *range(20, 40)]
    random.seed(KEY.sample(25))
    assert made[2][5][1] == random.random()


def test_an_error_that_follows_from_numbers_of_no_seed_does_not_count() -> None:
    torch.manual_seed(KEY.batch(1))
    unlucky = float(torch.rand(()))

    class Unlucky(Plain):
        def __getitem__(self, index: int) -> Any:
            drawn = float(torch.rand(())) if index == 12 else 0.0
            if drawn == unlucky:
                raise LookupError
            return drawn

    expected = map_maker(Unlucky(20), known=True).make(tasks(20, 10)[1])
    assert map_maker(Unlucky(20), known=False).make(tasks(20, 10)[1]) == expected


def test_what_is_learnt_is_kept_for_the_next_epoch() -> None:
    draws = Draws()
    dataset = CountingDraws(4)
    MapMaker(dataset, batched=True, collate=_keep, key=KEY, draws=draws).make(tasks(4, 4)[0])
    assert draws.known is True
    quiet = Draws()
    MapMaker(Plain(4), batched=True, collate=_keep, key=KEY, draws=quiet).make(tasks(4, 4)[0])
    assert quiet.known is False


def test_samples_and_epochs_differ_and_repeat() -> None:
    def made(key: EpochKey) -> list[Any]:
        maker = map_maker(Drawing(6), collate=_collate_drawing, key=key)
        return [repr(maker.make(task)) for task in tasks(6, 3)]

    assert made(KEY) == made(KEY)
    assert made(KEY) != made(EpochKey(2025))
    assert made(KEY) != made(EpochKey(2024, epoch=1))
    samples = [sample[2] for task in tasks(6, 3) for sample in map_maker(Drawing(6)).make(task)]
    assert len(set(samples)) == 6


def test_another_epoch_of_the_same_maker_is_that_epoch() -> None:
    maker = map_maker(Drawing(6))
    first = maker.make(tasks(6, 3)[0])
    maker.begin_epoch(EpochKey(2024, epoch=1))
    second = maker.make(tasks(6, 3)[0])
    assert repr(second) != repr(first)
    assert repr(second) == repr(
        map_maker(Drawing(6), key=EpochKey(2024, epoch=1)).make(tasks(6, 3)[0])
    )


@pytest.mark.parametrize("known", [None, False, True])
@pytest.mark.parametrize("kind", [Plain, Drawing])
def test_the_caller_s_states_are_left_alone(kind: Any, known: bool | None) -> None:
    random.gauss(0, 1)
    np.random.randn()
    before = states()
    maker = map_maker(kind(9), known=known, collate=_collate_drawing)
    for task in tasks(9, 3):
        maker.make(task)
        assert states() == before


class Raising(Plain):
    def __init__(self, length: int, at: int, error: BaseException, *, draws: bool) -> None:
        super().__init__(length)
        self.at, self.error, self.draws = at, error, draws

    def __getitem__(self, index: int) -> Any:
        if self.draws:
            random.random()
        if index == self.at:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("known", [None, False, True])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_an_error_comes_as_it_is_and_the_place_is_known(
    at: int, known: bool | None, draws: bool
) -> None:
    error = LookupError("broken")
    maker = map_maker(Raising(10, at, error, draws=draws), known=known)
    before = states()
    with pytest.raises(LookupError) as caught:
        maker.make(tasks(10, 10)[0])
    assert caught.value is error
    assert str(maker.place) == f"at sample index {at}"
    assert states() == before


class Sized:
    """Has a length and yields indices, and nothing else."""

    def __init__(self, indices: list[int]) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        yield from self.indices


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        torch.tensor,
        np.array,
        lambda i: range(i[0], i[-1] + 1),
        set,
        dict.fromkeys,
        Sized,
    ],
    ids=["list", "tuple", "tensor", "array", "range", "set", "dict", "sized"],
)
def test_the_place_is_known_whatever_holds_the_indices(kind: Any, known: bool) -> None:
    error = LookupError("broken")
    maker = map_maker(Raising(10, 6, error, draws=False), known=known)
    with pytest.raises(LookupError):
        maker.make(Task(0, 0, kind([4, 5, 6, 7])))
    assert "6" in str(maker.place)
    assert "7" not in str(maker.place)


def test_an_error_in_collation_is_said_to_be_there() -> None:
    def broken(samples: Any) -> Any:
        raise LookupError

    maker = map_maker(Plain(4), collate=broken)
    for task in tasks(4, 2):
        with pytest.raises(LookupError):
            maker.make(task)
        assert str(maker.place) == "in collate_fn"


@pytest.mark.parametrize("known", [None, False, True])
def test_stop_iteration_in_a_sample_does_not_end_the_epoch(known: bool | None) -> None:
    maker = map_maker(Raising(4, 2, StopIteration("dry"), draws=False), known=known)
    with pytest.raises(RuntimeError, match=r"at sample index 2.*dry"):
        maker.make(tasks(4, 4)[0])


@pytest.mark.parametrize("known", [None, False, True])
def test_stop_iteration_in_collation_does_not_end_the_epoch(known: bool | None) -> None:
    def broken(samples: Any) -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="in collate_fn"):
        map_maker(Plain(4), collate=broken, known=known).make(tasks(4, 4)[0])


def test_a_data_set_that_reads_batches_is_given_whole_batches() -> None:
    class Whole(Plain):
        def __init__(self, length: int) -> None:
            super().__init__(length)
            self.asked: list[Any] = []

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("one by one")

        def __getitems__(self, indices: list[int]) -> Any:
            self.asked.append(indices)
            return [(index, random.random()) for index in indices]

    dataset = Whole(6)
    made = [map_maker(dataset).make(task) for task in tasks(6, 3)]
    assert dataset.asked == [[0, 1, 2], [3, 4, 5]]
    maker = map_maker(dataset)
    assert [maker.make(task) for task in reversed(tasks(6, 3))] == made[::-1]
    random.seed(KEY.batch(1))
    assert made[1] == [(index, random.random()) for index in (3, 4, 5)]


def test_without_batches_a_task_is_one_sample() -> None:
    maker = map_maker(Drawing(6), batched=False)
    expected = [repr(maker.make(Task(n, n, n))) for n in range(6)]
    other = map_maker(Drawing(6), batched=False, known=True)
    assert [repr(other.make(Task(n, n, n))) for n in reversed(range(6))] == expected[::-1]
    assert len(set(expected)) == 6


class Source:
    """Its own iterator, begun anew by ``iter``; counts that, and how often it is asked."""

    def __init__(self, length: int, *, draws: bool = False) -> None:
        self.length, self.draws = length, draws
        self.begun = self.asked = 0

    def __iter__(self) -> Source:
        self.begun += 1
        self.left = iter(range(self.length))
        self.ended = False
        return self

    def __next__(self) -> Any:
        assert not self.ended, "asked again after its end"
        self.asked += 1
        try:
            number = next(self.left)
        except StopIteration:
            self.ended = True
            raise
        return (number, draw_all()) if self.draws else number


def iterable_maker(
    dataset: Any, *, batched: bool = True, drop_last: bool = False, shard: int = 0, **more: Any
) -> IterableMaker:
    more = {"collate": _keep, "key": KEY, **more}
    return IterableMaker(dataset, batched=batched, drop_last=drop_last, shard=shard, **more)


def made_of(maker: IterableMaker, size: int = 3, start: int = 0) -> list[Any]:
    made = []
    for number in range(start, start + 50):
        try:
            made.append(maker.make(Task(number, number * size, [None] * size)))
        except Ended:
            return made
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("length", "drop_last", "expected"),
    [
        (0, False, []),
        (2, False, [[0, 1]]),
        (2, True, []),
        (6, False, [[0, 1, 2], [3, 4, 5]]),
        (7, False, [[0, 1, 2], [3, 4, 5], [6]]),
        (7, True, [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_an_iterable_ends_once(length: int, drop_last: bool, expected: list[Any]) -> None:
    source = Source(length)
    maker = iterable_maker(source, drop_last=drop_last)
    assert made_of(maker) == expected
    for _ in range(2):
        with pytest.raises(Ended):
            maker.make(Task(9, 27, [None] * 3))
    assert source.begun == 1
    assert source.asked == length + 1


def test_a_generator_without_batches_gives_its_samples() -> None:
    class Generating:
        def __iter__(self) -> Iterator[int]:
            yield from range(3)

    maker = iterable_maker(Generating(), batched=False)
    assert made_of(maker, size=1) == [0, 1, 2]
    with pytest.raises(Ended):
        maker.make(Task(9, 9, None))


def test_an_iterable_without_batches_is_begun_once() -> None:
    source = Source(3)
    maker = iterable_maker(source, batched=False)
    assert made_of(maker, size=1) == [0, 1, 2]
    assert source.begun == 1
    with pytest.raises(Ended):
        maker.make(Task(9, 9, None))
    assert source.asked == 4


def test_an_iterable_begins_again_in_the_next_epoch() -> None:
    source = Source(4)
    maker = iterable_maker(source)
    assert made_of(maker) == [[0, 1, 2], [3]]
    maker.begin_epoch(EpochKey(2024, 1))
    assert made_of(maker) == [[0, 1, 2], [3]]
    assert source.begun == 2


def test_an_epoch_of_an_iterable_repeats_with_its_key() -> None:
    maker = iterable_maker(Source(7, draws=True))
    first = repr(made_of(maker))
    maker.begin_epoch(EpochKey(2024, 1))
    assert repr(made_of(maker)) != first
    maker.begin_epoch(KEY)
    assert repr(made_of(maker)) == first


def test_random_numbers_of_an_iterable_follow_from_key_shard_and_step() -> None:
    def drawn(shard: int = 0, key: EpochKey = KEY, start: int = 0) -> list[str]:
        maker = iterable_maker(
            Source(7, draws=True), shard=shard, key=key, collate=_collate_drawing
        )
        return [repr(batch) for batch in made_of(maker, start=start)]

    assert drawn() == drawn() == drawn(start=5)
    first_numbers = {batch[0][1][1] for batch in made_of(iterable_maker(Source(9, draws=True)))}
    assert len(first_numbers) == 3
    assert not set(drawn()) & set(drawn(shard=1))
    assert not set(drawn()) & set(drawn(key=EpochKey(2025)))


def test_an_iterable_leaves_the_caller_s_states_alone() -> None:
    before = states()
    maker = iterable_maker(Source(4, draws=True), collate=_collate_drawing)
    made_of(maker)
    assert states() == before


def test_an_error_of_an_iterable_comes_as_it_is_and_does_not_end_it() -> None:
    class Broken(Source):
        def __next__(self) -> Any:
            number = super().__next__()
            if number == 1:
                raise LookupError("broken")
            return number

    maker = iterable_maker(Broken(4))
    with pytest.raises(LookupError):
        maker.make(Task(0, 0, [None] * 3))
    assert str(maker.place) == "in the iterator"
    assert made_of(maker) == [[2, 3]]


def test_stop_iteration_in_collation_of_an_iterable_does_not_end_it() -> None:
    def broken(samples: Any) -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="in collate_fn"):
        iterable_maker(Source(4), collate=broken).make(Task(0, 0, [None] * 3))
