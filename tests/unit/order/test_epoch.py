"""What a sampler yields, numbered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stoker.order.epoch import EpochPlan, PrivateSampling, Task
from stoker.order.keys import EpochKey
from tests.unit.order.states import states


def _all(plan: EpochPlan) -> list[Task]:
    tasks = []
    while (task := plan.next()) is not None:
        tasks.append(task)
    return tasks


class Watched:
    """An iterator that counts how often it is asked; exceptions in `items` are raised."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.asked = 0

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        if self.asked > len(self.items):
            raise StopIteration
        item = self.items[self.asked - 1]
        if isinstance(item, BaseException):
            raise item
        return item


def test_batches_are_numbered_and_know_where_they_start() -> None:
    plan = EpochPlan(iter([[5, 3], [1], [4, 2, 0]]), batched=True)
    assert _all(plan) == [Task(0, 0, [5, 3]), Task(1, 2, [1]), Task(2, 3, [4, 2, 0])]


def test_without_batches_every_index_is_a_task() -> None:
    plan = EpochPlan(iter([7, "key", (1, 2)]), batched=False)
    assert _all(plan) == [Task(0, 0, 7), Task(1, 1, "key"), Task(2, 2, (1, 2))]


def test_a_batch_that_is_a_bare_iterator_is_kept_as_a_list() -> None:
    plan = EpochPlan(iter([iter([1, 2]), map(abs, [-3])]), batched=True)
    assert _all(plan) == [Task(0, 0, [1, 2]), Task(1, 2, [3])]


@pytest.mark.parametrize("hold", [False, True])
def test_a_sampler_is_not_asked_again_after_its_end(hold: bool) -> None:
    sampler = Watched([[1]])
    plan = EpochPlan(sampler, batched=True)
    if hold:
        plan.hold_first()
    assert plan.next() == Task(0, 0, [1])
    assert [plan.next() for _ in range(3)] == [None] * 3
    assert sampler.asked == 2


@pytest.mark.parametrize("hold", [False, True])
def test_an_empty_sampler_is_asked_once(hold: bool) -> None:
    sampler = Watched([])
    plan = EpochPlan(sampler, batched=True)
    if hold:
        plan.hold_first()
    assert [plan.next() for _ in range(3)] == [None] * 3
    assert sampler.asked == 1


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("before", [[], [[1], [2]]])
def test_an_error_is_raised_once_and_ends_the_plan(hold: bool, before: list[Any]) -> None:
    broken = ZeroDivisionError("in the sampler")
    sampler = Watched([*before, broken, [9]])
    plan = EpochPlan(sampler, batched=True)
    if hold:
        plan.hold_first()
    for _ in before:
        assert plan.next() is not None
    with pytest.raises(ZeroDivisionError) as caught:
        plan.next()
    assert caught.value is broken
    assert [plan.next() for _ in range(2)] == [None] * 2
    assert sampler.asked == len(before) + 1


def test_holding_the_first_asks_for_one_batch_and_no_more() -> None:
    sampler = Watched([[1], [2]])
    plan = EpochPlan(sampler, batched=True)
    plan.hold_first()
    assert sampler.asked == 1
    assert _all(plan) == [Task(0, 0, [1]), Task(1, 1, [2])]


def test_ctrl_c_in_the_sampler_is_not_held_back() -> None:
    plan = EpochPlan(Watched([KeyboardInterrupt()]), batched=True)
    with pytest.raises(KeyboardInterrupt):
        plan.hold_first()
    assert plan.next() is None


def _drawing_sampler(batches: int) -> Iterator[list[float]]:
    for _ in range(batches):
        yield [
            float(torch.rand(())),
            float(torch.randn(())),
            random.random(),
            random.gauss(0, 1),
            float(np.random.rand()),
            float(np.random.randn()),
        ]


def _drawn_privately(key: EpochKey, between: Any = lambda: None) -> list[list[float]]:
    plan = EpochPlan(_drawing_sampler(3), batched=True, private=PrivateSampling(key))
    drawn = []
    while (task := plan.next()) is not None:
        drawn.append(task.index)
        between()
    return drawn


def test_private_sampling_leaves_the_global_states_alone() -> None:
    np.random.randn()
    random.gauss(0, 1)
    before = states()
    _drawn_privately(EpochKey(1))
    assert states() == before


def test_private_sampling_repeats_whatever_the_caller_draws() -> None:
    def draw() -> None:
        next(_drawing_sampler(1))

    once = _drawn_privately(EpochKey(1))
    assert _drawn_privately(EpochKey(1), between=draw) == once
    assert len({number for batch in once for number in batch}) == 18
    assert _drawn_privately(EpochKey(2)) != once
    assert _drawn_privately(EpochKey(1, epoch=1)) != once


def test_private_sampling_goes_on_where_the_last_request_stopped() -> None:
    key = EpochKey(5)
    torch.manual_seed(key.sampler())
    expected = [batch[:2] for batch in _drawing_sampler(3)]
    assert [batch[:2] for batch in _drawn_privately(key)] == expected


def test_private_sampling_gives_the_states_back_when_the_sampler_raises() -> None:
    def broken() -> Iterator[list[int]]:
        np.random.rand()
        torch.rand(1)
        raise ZeroDivisionError
        yield []

    before = states()
    plan = EpochPlan(broken(), batched=True, private=PrivateSampling(EpochKey(1)))
    plan.hold_first()
    assert states() == before
    with pytest.raises(ZeroDivisionError):
        plan.next()
