"""The dispatcher against a model, under any order of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.feed.dispatch import (
    Dispatcher,
)

NO_LIMIT = 1 << 30


@dataclass
class Epoch:
    """What there is to make, and how."""

    workers: int
    prefetch: int
    in_order: bool
    sharded: bool
    length: int
    shards: list[int]
    unplannable: int | None
    pinned: bool = False
    most: int = NO_LIMIT

    def planned(self) -> list[int]:
        """The numbers that must be delivered."""
        if self.sharded:
            ends = enumerate(self.shards[: self.workers])
            return sorted(w + self.workers * i for w, end in ends for i in range(end))
        if self.unplannable is not None and self.unplannable < self.length:
            return list(range(self.unplannable + 1))
        return list(range(self.length))


epochs = st.builds(
    Epoch,
    workers=st.integers(1, 4),
    prefetch=st.integers(1, 3),
    in_order=st.booleans(),
    sharded=st.booleans(),
    length=st.integers(0, 14),
    shards=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    unplannable=st.none() | st.integers(0, 14),
    pinned=st.booleans(),
    most=st.integers(1, 4) | st.just(NO_LIMIT),
)


def ask(
    dispatcher: Dispatcher, *, waiting: bool = False, depth: int = 1, run_ahead: int = 0
) -> tuple[int, int] | None:
    """The next assignment where every worker may hold the same number of batches."""
    depths = dict.fromkeys(range(64), depth)
    return dispatcher.next_assignment(
        waiting=waiting, depths=depths, run_ahead=run_ahead, most=NO_LIMIT
    )


@dataclass
class Model:
    """Plays feed, workers and consumer, and keeps its own account of every batch."""

    epoch: Epoch
    held: list[list[int]] = field(init=False)
    pinning: dict[int, int] = field(default_factory=dict)
    ready: dict[int, int | None] = field(default_factory=dict)
    assigned: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        e = self.epoch
        self.dispatcher = Dispatcher(e.workers, e.prefetch, in_order=e.in_order, sharded=e.sharded)
        self.held = [[] for _ in range(e.workers)]

    @property
    def in_flight(self) -> int:
        return sum(map(len, self.held)) + len(self.pinning) + len(self.ready)

    def head(self) -> int | None:
        left = [n for n in self.epoch.planned() if n not in self.delivered]
        return left[0] if left else None

    def can_deliver(self) -> bool:
        head = self.head()
        if not self.epoch.in_order or head is None:
            return bool(self.ready)
        gaps = set(range(head)) - set(self.epoch.planned())
        return head in self.ready and all(gap % self.epoch.workers in self.ended for gap in gaps)

    def assign(self, *, waiting: bool, depths: list[int], run_ahead: int) -> bool:
        command = self.dispatcher.next_assignment(
            waiting=waiting,
            depths=dict(enumerate(depths)),
            run_ahead=run_ahead,
            most=self.epoch.most,
        )
        if command is None:
            return False
        worker, number = command
        assert self.in_flight < self.epoch.most
        if self.epoch.sharded:
            self._check_shard(worker, number)
        else:
            self._check_bounds(worker, waiting=waiting, depths=depths, run_ahead=run_ahead)
            assert number == len(self.assigned)
            if number >= self.epoch.length:
                self.dispatcher.exhausted()
                return True
            if number == self.epoch.unplannable:
                assert self.dispatcher.failed_to_plan() == number
                self.assigned.append(number)
                self.ready[number] = None
                return True
        assert number not in self.assigned
        self.assigned.append(number)
        self.held[worker].append(number)
        self.dispatcher.assigned(worker, number)
        assert self.dispatcher.running(worker) == tuple(self.held[worker])
        return True

    def _check_bounds(
        self, worker: int, *, waiting: bool, depths: list[int], run_ahead: int
    ) -> None:
        window = self.epoch.workers * self.epoch.prefetch
        assert self.in_flight < (max(window, run_ahead) if waiting else window)
        free = [held for held, depth in zip(self.held, depths, strict=True) if len(held) < depth]
        assert self.held[worker] in free
        assert len(self.held[worker]) == min(map(len, free))

    def _check_shard(self, worker: int, number: int) -> None:
        mine = [n for n in self.assigned if n % self.epoch.workers == worker]
        assert number == worker + self.epoch.workers * len(mine)
        kept = [*self.pinning.values(), *self.ready.values()]
        assert len(self.held[worker]) + kept.count(worker) < self.epoch.prefetch

    def finish(self, worker: int) -> None:
        number = self.held[worker].pop(0)
        end = self.epoch.shards[worker]
        if self.epoch.sharded and number >= worker + self.epoch.workers * end:
            self.ended.add(worker)
            self.dispatcher.shard_ended(worker, number)
        elif self.epoch.pinned:
            self.pinning[number] = worker
            self.dispatcher.made(worker, number)
        else:
            self.ready[number] = worker
            self.dispatcher.finished(worker, number)

    def pin(self) -> None:
        number, worker = next(iter(self.pinning.items()))
        del self.pinning[number]
        self.ready[number] = worker
        self.dispatcher.finished(worker, number)

    def deliver(self) -> bool:
        number = self.dispatcher.deliverable()
        if number is None:
            return False
        if self.epoch.in_order:
            assert number == self.head()
        del self.ready[number]
        assert number not in self.delivered
        self.delivered.append(number)
        self.dispatcher.delivered(number)
        return True

    def check(self) -> None:
        self.dispatcher.validate()
        assert self.dispatcher.in_flight == self.in_flight
        assert (self.dispatcher.deliverable() is not None) == self.can_deliver()
        idle = not any(self.held) and not self.pinning and self.dispatcher.deliverable() is None
        if idle and not self.dispatcher.done():
            assert ask(self.dispatcher, waiting=True), "stalled"

    def step(self, decision: int) -> None:
        kind, detail = decision % 4, decision // 4
        busy = [worker for worker, held in enumerate(self.held) if held]
        if kind == 0 and busy:
            self.finish(busy[detail % len(busy)])
        elif kind == 0 and self.pinning:
            self.pin()
        elif kind == 1 and (detail & 1 or not self.pinning):
            self.deliver()
        elif kind == 1:
            self.pin()
        else:
            depths = [1 + (detail >> worker) % 3 for worker in range(self.epoch.workers)]
            self.assign(waiting=bool(detail & 1), depths=depths, run_ahead=(detail >> 3) * 3)

    def drain(self) -> None:
        """Goes on, as the feed does, until the epoch is over."""
        for _ in range(500):
            if self.deliver():
                continue
            if self.dispatcher.done():
                return
            while self.assign(waiting=True, depths=[1] * self.epoch.workers, run_ahead=0):
                self.check()
            busy = [worker for worker, held in enumerate(self.held) if held]
            if self.pinning:
                self.pin()
            elif busy:
                self.finish(busy[-1])
            self.check()
        raise AssertionError("the epoch does not end")


# An endless loop must end the run: Hypothesis would take a signal for a failure to shrink.
@pytest.mark.timeout(30, method="thread")
@settings(max_examples=250)
@given(epoch=epochs, decisions=st.binary(max_size=60))
def test_every_batch_is_made_once_and_delivered_once(epoch: Epoch, decisions: bytes) -> None:
    model = Model(epoch)
    model.check()
    for decision in decisions:
        model.step(decision)
        model.check()
    model.drain()
    assert sorted(model.delivered) == epoch.planned()
    if epoch.in_order:
        assert model.delivered == sorted(model.delivered)
    assert all(model.dispatcher.has_ended(worker) for worker in range(epoch.workers))
    assert model.in_flight == model.dispatcher.in_flight == 0


def _assign_all(dispatcher: Dispatcher, depth: int = 1) -> list[tuple[int, int]]:
    commands = []
    while command := ask(dispatcher, depth=depth):
        dispatcher.assigned(*command)
        commands.append(command)
    return commands


def test_batches_go_round_while_workers_are_idle() -> None:
    dispatcher = Dispatcher(2, 2, in_order=True, sharded=False)
    commands = _assign_all(dispatcher, depth=2)
    assert commands == [(0, 0), (1, 1), (0, 2), (1, 3)]


def test_a_slow_batch_does_not_hold_back_the_other_worker() -> None:
    dispatcher = Dispatcher(2, 1, in_order=True, sharded=False)
    _assign_all(dispatcher)
    dispatcher.finished(1, 1)
    ahead = 4
    assert ask(dispatcher, waiting=False, run_ahead=ahead) is None
    for number in (2, 3):
        assert ask(dispatcher, waiting=True, run_ahead=ahead) == (1, number)
        dispatcher.assigned(1, number)
        dispatcher.finished(1, number)
    assert ask(dispatcher, waiting=True, run_ahead=ahead) is None
    assert dispatcher.deliverable() is None
    dispatcher.finished(0, 0)
    assert ask(dispatcher, waiting=True, run_ahead=ahead) is None
    assert dispatcher.deliverable() == 0


def test_out_of_order_the_first_to_finish_comes_first() -> None:
    dispatcher = Dispatcher(2, 1, in_order=False, sharded=False)
    _assign_all(dispatcher)
    dispatcher.finished(1, 1)
    assert dispatcher.deliverable() == 1
    assert ask(dispatcher, waiting=False, run_ahead=9) is None
    assert ask(dispatcher, waiting=True, run_ahead=9) == (1, 2)


def test_each_worker_has_a_depth_of_its_own() -> None:
    dispatcher = Dispatcher(3, 2, in_order=True, sharded=False)
    commands = []
    depths = {0: 1, 1: 3, 2: 2}
    while command := dispatcher.next_assignment(
        waiting=False, depths=depths, run_ahead=0, most=NO_LIMIT
    ):
        dispatcher.assigned(*command)
        commands.append(command)
    assert commands == [(0, 0), (1, 1), (2, 2), (1, 3), (2, 4), (1, 5)]


def test_an_ended_shard_is_left_out() -> None:
    dispatcher = Dispatcher(2, 1, in_order=True, sharded=True)
    _assign_all(dispatcher)
    dispatcher.shard_ended(0, 0)
    dispatcher.finished(1, 1)
    assert dispatcher.has_ended(0)
    assert dispatcher.deliverable() == 1
    dispatcher.delivered(1)
    assert ask(dispatcher, waiting=True) == (1, 3)


@pytest.mark.timeout(10)
def test_a_shard_that_ended_with_a_batch_still_to_answer_is_waited_for() -> None:
    dispatcher = Dispatcher(1, 2, in_order=True, sharded=True)
    _assign_all(dispatcher, depth=2)
    dispatcher.shard_ended(0, 0)
    assert dispatcher.deliverable() is None
    assert not dispatcher.done()
    dispatcher.shard_ended(0, 1)
    assert dispatcher.deliverable() is None
    assert dispatcher.done()


@pytest.mark.parametrize(
    "broken",
    [
        lambda d: d._queues[0].append(0),
        lambda d: d._ready.update({0: 0}),
        lambda d: d._queues[1].append(9),
        lambda d: d._queues[0].clear(),
    ],
)
def test_validate_sees_a_contradiction(broken: Any) -> None:
    dispatcher = Dispatcher(2, 1, in_order=True, sharded=False)
    _assign_all(dispatcher)
    dispatcher.validate()
    broken(dispatcher)
    with pytest.raises(AssertionError):
        dispatcher.validate()


@pytest.mark.parametrize(
    "broken", [lambda d: d._queues[0].append(3), lambda d: d._queues[0].append(2)]
)
def test_validate_sees_a_contradiction_of_shards(broken: Any) -> None:
    dispatcher = Dispatcher(2, 1, in_order=True, sharded=True)
    _assign_all(dispatcher)
    dispatcher._next = 9
    dispatcher.validate()
    broken(dispatcher)
    with pytest.raises(AssertionError):
        dispatcher.validate()


@pytest.mark.timeout(10)
def test_a_batch_that_is_being_pinned_counts_and_is_not_delivered() -> None:
    dispatcher = Dispatcher(1, 1, in_order=True, sharded=False)
    _assign_all(dispatcher)
    dispatcher.made(0, 0)
    dispatcher.validate()
    assert dispatcher.running(0) == ()
    assert dispatcher.deliverable() is None
    assert ask(dispatcher) is None
    dispatcher.exhausted()
    assert not dispatcher.done()
    dispatcher.finished(0, 0)
    assert dispatcher.deliverable() == 0
