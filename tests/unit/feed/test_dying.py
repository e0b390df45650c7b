"""The dispatcher while workers die and are replaced, against a model, under any order of events."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from stoker.feed.dispatch import Dispatcher
from tests.unit.feed.test_dispatch import NO_LIMIT, _assign_all, ask

workers = st.integers(0, 3)


class Losses(RuleBasedStateMachine):
    """Plays feed, workers and consumer, and keeps its own account of every batch.

    A dead worker of a map-style data set is replaced by one that comes up later, or never; one
    of an iterable data set at once, and what it held is assigned to the other again.
    """

    @initialize(
        count=st.integers(1, 4),
        prefetch=st.integers(1, 3),
        in_order=st.booleans(),
        pinned=st.booleans(),
        length=st.integers(0, 14),
        shards=st.none() | st.lists(st.integers(0, 4), min_size=4, max_size=4),
    )
    def begin(
        self,
        count: int,
        prefetch: int,
        in_order: bool,
        pinned: bool,
        length: int,
        shards: list[int] | None,
    ) -> None:
        self.count = count
        self.in_order = in_order
        self.pinned = pinned
        self.length = length
        self.shards = shards
        self.held: dict[int, list[int]] = {worker: [] for worker in range(count)}
        self.away: set[int] = set()
        self.pinning: dict[int, int] = {}
        self.ready: dict[int, int] = {}
        self.given: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.out: list[int] = []
        self.ended: set[int] = set()
        self.dispatcher = Dispatcher(count, prefetch, in_order=in_order, sharded=shards is not None)

    @property
    def wanted(self) -> list[int]:
        if self.shards is None:
            return list(range(self.length))
        ends = enumerate(self.shards[: self.count])
        return sorted(w + self.count * i for w, end in ends for i in range(end))

    def worker(self, pick: int) -> int:
        return pick % self.count

    @rule(waiting=st.booleans(), depth=st.integers(1, 3), ahead=st.integers(0, 9))
    def assign(self, waiting: bool, depth: int, ahead: int) -> None:
        self._assigned(waiting, depth, ahead)

    def _assigned(self, waiting: bool, depth: int, ahead: int) -> bool:
        command = self.dispatcher.next_assignment(
            waiting=waiting,
            depths=dict.fromkeys(range(self.count), depth),
            run_ahead=ahead,
            most=NO_LIMIT,
        )
        if command is None:
            return False
        worker, number = command
        assert worker not in self.away
        if self.shards is None and number not in self.given and number >= self.length:
            self.dispatcher.exhausted()
            return True
        held = [n for queue in self.held.values() for n in queue]
        assert number not in [*held, *self.pinning, *self.ready, *self.out]
        assert self.given.get(number, 0) == self.lost.get(number, 0)
        if self.shards is not None:
            assert number % self.count == worker
        self.given[number] = self.given.get(number, 0) + 1
        self.held[worker].append(number)
        self.dispatcher.assigned(worker, number)
        return True

    @rule(pick=workers)
    def finish(self, pick: int) -> None:
        worker = self.worker(pick)
        if not self.held[worker]:
            return
        number = self.held[worker].pop(0)
        if self.shards is not None and number >= worker + self.count * self.shards[worker]:
            self.ended.add(worker)
            self.dispatcher.shard_ended(worker, number)
        elif self.pinned:
            self.pinning[number] = worker
            self.dispatcher.made(worker, number)
        else:
            self.ready[number] = worker
            self.dispatcher.finished(worker, number)

    @precondition(lambda self: self.pinning)
    @rule()
    def pin(self) -> None:
        number = next(iter(self.pinning))
        self.ready[number] = self.pinning.pop(number)
        self.dispatcher.finished(self.ready[number], number)

    @rule()
    def deliver(self) -> None:
        self._delivered()

    def _delivered(self) -> bool:
        number = self.dispatcher.deliverable()
        if number is None:
            return False
        del self.ready[number]
        self.dispatcher.delivered(number)
        assert number not in self.out
        if self.in_order:
            assert number == self.wanted[len(self.out)]
        self.out.append(number)
        return True

    @rule(pick=workers)
    def die(self, pick: int) -> None:
        worker = self.worker(pick)
        if worker in self.away:
            return
        held = tuple(self.held[worker])
        assert self.dispatcher.lost(worker) == held
        self.held[worker] = []
        for number in held:
            self.lost[number] = self.lost.get(number, 0) + 1
        if self.shards is None:
            self.away.add(worker)

    @rule(pick=workers)
    def come_up(self, pick: int) -> None:
        worker = self.worker(pick)
        if worker in self.away:
            self.away.discard(worker)
            self.dispatcher.join(worker)

    @invariant()
    def holds(self) -> None:
        self.dispatcher.validate()
        flying = sum(map(len, self.held.values())) + len(self.pinning) + len(self.ready)
        assert self.dispatcher.in_flight == flying
        assert self.dispatcher.serving == self.count - len(self.away)
        for worker, held in self.held.items():
            assert self.dispatcher.running(worker) == tuple(held)

    def teardown(self) -> None:
        """Nobody dies any more, and the replacements come up: every batch arrives, once."""
        if not hasattr(self, "dispatcher"):
            return
        for worker in range(self.count):
            self.come_up(worker)
        for _ in range(500):
            if self.dispatcher.done():
                break
            if self._delivered():
                continue
            while self._assigned(True, 1, NO_LIMIT):
                self.holds()
            for worker in range(self.count):
                self.finish(worker)
            if self.pinning:
                self.pin()
            self.holds()
        assert sorted(self.out) == self.wanted


Losses.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestLosses: Any = Losses.TestCase


def test_what_a_dead_worker_held_goes_to_others_before_anything_new() -> None:
    dispatcher = Dispatcher(2, 3, in_order=True, sharded=False)
    _assign_all(dispatcher, depth=3)
    assert dispatcher.running(0) == (0, 2, 4)
    dispatcher.finished(0, 0)
    assert dispatcher.lost(0) == (2, 4)
    dispatcher.validate()
    assert dispatcher.serving == 1
    assert dispatcher.ready_of(0) == 1  # What it has made is not lost.
    assert ask(dispatcher, depth=9, waiting=True, run_ahead=9) == (1, 2)
    dispatcher.assigned(1, 2)
    assert ask(dispatcher, depth=9, waiting=True, run_ahead=9) == (1, 4)


def test_a_dead_worker_of_a_shard_has_its_numbers_again() -> None:
    dispatcher = Dispatcher(2, 2, in_order=True, sharded=True)
    given = _assign_all(dispatcher, depth=2)
    assert given == [(0, 0), (1, 1), (0, 2), (1, 3)]
    dispatcher.finished(1, 1)
    assert dispatcher.lost(1) == (3,)
    dispatcher.validate()
    assert ask(dispatcher, depth=2) == (1, 3)


def test_what_lies_behind_the_end_of_a_shard_is_not_missed() -> None:
    dispatcher = Dispatcher(1, 3, in_order=True, sharded=True)
    _assign_all(dispatcher, depth=3)
    dispatcher.finished(0, 0)
    dispatcher.shard_ended(0, 1)
    assert not dispatcher.has_ended(0)
    assert dispatcher.shard_is_over(0)
    assert dispatcher.lost(0) == (2,)
    assert dispatcher.has_ended(0)
    dispatcher.delivered(0)
    assert dispatcher.done()


def test_a_worker_that_died_before_it_was_given_anything_is_no_loss() -> None:
    dispatcher = Dispatcher(0, 2, in_order=True, sharded=False)
    assert dispatcher.lost(3) == ()
    dispatcher.validate()
