"""The dispatcher while workers come and go, and batches are put back, against a model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.feed.dispatch import (
    Dispatcher,
)
from tests.unit.feed.test_dispatch import NO_LIMIT, _assign_all, ask


@dataclass
class Elastic:
    """Workers come and go, ready batches are put back, and the caller makes some by itself.

    Keeps its own account of every batch. A worker's number is free again when the worker has
    left and none of its batches waits, as the pool has it.
    """

    length: int
    prefetch: int
    in_order: bool
    pinned: bool
    unplannable: int | None
    held: dict[int, list[int]] = field(default_factory=dict)
    serving: set[int] = field(default_factory=set)
    pinning: dict[int, int] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    given: dict[int, int] = field(default_factory=dict)
    put_backs: dict[int, int] = field(default_factory=dict)
    out: list[int] = field(default_factory=list)
    planned: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(0, self.prefetch, in_order=self.in_order, sharded=False)

    @property
    def in_flight(self) -> int:
        return sum(map(len, self.held.values())) + len(self.pinning) + len(self.ready)

    @property
    def wanted(self) -> list[int]:
        if self.unplannable is not None and self.unplannable < self.length:
            return list(range(self.unplannable + 1))
        return list(range(self.length))

    def busy(self) -> list[int]:
        return [worker for worker in sorted(self.held) if self.held[worker]]

    def has_gone(self, worker: int) -> bool:
        kept = [*self.pinning.values(), *self.ready.values()]
        return worker not in self.serving and not self.held[worker] and worker not in kept

    def join(self) -> None:
        for worker in [worker for worker in self.held if self.has_gone(worker)]:
            assert self.dispatcher.has_left(worker)
            assert not self.dispatcher.ready_of(worker)
            del self.held[worker]
        worker = next(number for number in range(64) if number not in self.held)
        self.held[worker] = []
        self.serving.add(worker)
        self.dispatcher.join(worker)

    def leave(self, worker: int) -> None:
        self.serving.discard(worker)
        self.dispatcher.leave(worker)
        assert self.dispatcher.has_left(worker) == (not self.held[worker])

    def assign(self, *, waiting: bool, depth: int, run_ahead: int, most: int) -> bool:
        command = self.dispatcher.next_assignment(
            waiting=waiting,
            depths=dict.fromkeys(self.held, depth),
            run_ahead=run_ahead,
            most=most,
        )
        if command is None:
            return False
        worker, number = command
        assert self.in_flight < most
        window = len(self.serving) * self.prefetch
        assert self.in_flight < (max(window, run_ahead) if waiting else window)
        assert worker in self.serving
        assert len(self.held[worker]) < depth
        assert number == min(self.again, default=self.planned)
        if number not in self.again and not self._plan(number):
            return True
        self.again.discard(number)
        self.given[number] = self.given.get(number, 0) + 1
        self.held[worker].append(number)
        self.dispatcher.assigned(worker, number)
        return True

    def _plan(self, number: int) -> bool:
        """Asks the sampler; returns whether there is a batch to make."""
        if number >= self.length:
            self.ended = True
            self.dispatcher.exhausted()
            return False
        if number == self.unplannable:
            self.ended = True
            self.planned += 1
            assert self.dispatcher.failed_to_plan() == number
            self.ready[number] = -1
            return False
        self.planned += 1
        return True

    def finish(self, worker: int) -> None:
        number = self.held[worker].pop(0)
        if self.pinned:
            self.pinning[number] = worker
            self.dispatcher.made(worker, number)
        else:
            self.ready[number] = worker
            self.dispatcher.finished(worker, number)

    def pin(self) -> None:
        number = next(iter(self.pinning))
        self.ready[number] = self.pinning.pop(number)
        self.dispatcher.finished(self.ready[number], number)

    def put_back(self, picks: int) -> None:
        """All that are ready, as the feed does, or some; not the sampler's error."""
        for at, number in enumerate(list(self.ready)):
            if self.ready[number] >= 0 and not picks >> at & 1:
                del self.ready[number]
                self.again.add(number)
                self.put_backs[number] = self.put_backs.get(number, 0) + 1
                self.dispatcher.put_back(number)

    def may_skip(self) -> bool:
        return not self.in_flight and (bool(self.again) or not self.ended)

    def skip(self) -> None:
        """What the main process does: takes the next one and makes it."""
        number = self.dispatcher.next_to_put_in
        assert number == min(self.again, default=self.planned)
        if number not in self.again:
            if number == self.unplannable or number >= self.length:
                return  # The workers' side finds that out by itself.
            self.planned += 1
        self.again.discard(number)
        self.dispatcher.skip(number)
        self.hand_out(number)

    def hand_out(self, number: int) -> None:
        if self.in_order:
            assert number == len(self.out)
        assert number not in self.out
        self.out.append(number)

    def deliver(self) -> bool:
        number = self.dispatcher.deliverable()
        if number is None:
            return False
        del self.ready[number]
        self.dispatcher.delivered(number)
        self.hand_out(number)
        return True

    def can_deliver(self) -> bool:
        return len(self.out) in self.ready if self.in_order else bool(self.ready)

    def check(self) -> None:
        dispatcher = self.dispatcher
        dispatcher.validate()
        assert dispatcher.in_flight == self.in_flight
        assert dispatcher.serving == len(self.serving)
        assert dispatcher.assigned_so_far == self.planned
        assert (dispatcher.deliverable() is not None) == self.can_deliver()
        over = self.ended and not self.in_flight and not self.again
        assert dispatcher.done() == over

    def step(self, decision: int) -> None:
        kind, detail = decision % 9, decision // 9
        busy = self.busy()
        if kind == 0 and len(self.serving) < 4:
            self.join()
        elif kind == 1 and self.serving:
            self.leave(sorted(self.serving)[detail % len(self.serving)])
        elif kind == 2 and busy:
            self.finish(busy[detail % len(busy)])
        elif kind == 3 and self.pinning:
            self.pin()
        elif kind == 4:
            self.put_back(0 if detail & 1 else detail)
        elif kind == 5 and self.may_skip():
            self.skip()
        elif kind == 6:
            self.deliver()
        elif kind > 6:
            most = NO_LIMIT if detail & 1 else 1 + (detail >> 1) % 4
            run_ahead = (detail >> 3) * 3
            self.assign(waiting=kind == 7, depth=1 + detail % 3, run_ahead=run_ahead, most=most)

    def drain(self) -> None:
        """Goes on, as the feed does, until the epoch is over."""
        for _ in range(500):
            if self.deliver():
                continue
            if self.dispatcher.done():
                return
            busy = self.busy()
            if not self.serving and self.may_skip():
                before = len(self.out)
                self.skip()
                if len(self.out) == before:
                    self.join()
            elif not self.serving and not busy and not self.pinning:
                # Nobody is left to make again what was put back.
                assert len(self.out) in self.again
                self.join()
            while self.assign(waiting=True, depth=1, run_ahead=NO_LIMIT, most=NO_LIMIT):
                self.check()
            if self.pinning:
                self.pin()
            elif self.busy():
                self.finish(self.busy()[-1])
            self.check()
        raise AssertionError("the epoch does not end")


elastics = st.builds(
    Elastic,
    length=st.integers(0, 14),
    prefetch=st.integers(1, 3),
    in_order=st.booleans(),
    pinned=st.booleans(),
    unplannable=st.none() | st.integers(0, 14),
)


@pytest.mark.timeout(30, method="thread")
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(model=elastics, decisions=st.lists(st.integers(0, 9 * 32 - 1), max_size=80))
def test_workers_come_and_go_and_every_batch_is_handed_out_once(
    model: Elastic, decisions: list[int]
) -> None:
    model.check()
    for decision in decisions:
        model.step(decision)
        model.check()
    model.drain()
    assert sorted(model.out) == model.wanted
    assert not model.in_flight
    for number, times in model.given.items():
        assert times <= 1 + model.put_backs.get(number, 0)


@pytest.mark.timeout(30, method="thread")
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=elastics,
    workers=st.integers(1, 3),
    decisions=st.lists(st.integers(0, 9 * 32 - 1), max_size=60),
    most=st.integers(1, 4) | st.just(NO_LIMIT),
)
def test_nothing_stalls_while_workers_stay_and_bounds_hold(
    model: Elastic, workers: int, decisions: list[int], most: int
) -> None:
    """No worker leaves, and `most` and `run_ahead` are what they are: then it always goes on."""
    for _ in range(workers):
        model.join()
    for decision in decisions:
        kind = decision % 9
        if kind in (7, 8):
            model.assign(waiting=kind == 7, depth=2, run_ahead=5, most=most)
        elif kind > 1:
            model.step(decision)
        stuck = not model.busy() and not model.pinning and not model.can_deliver()
        if stuck and not model.dispatcher.done():
            assert model.assign(waiting=True, depth=1, run_ahead=5, most=most), "stalled"
            model.check()


def _three_ready_one_running() -> Dispatcher:
    """Two workers, window 4: batches 0 to 2 are ready, and worker 1 is making batch 3."""
    dispatcher = Dispatcher(2, 2, in_order=True, sharded=False)
    _assign_all(dispatcher, depth=2)
    for worker, number in ((0, 0), (1, 1), (0, 2)):
        dispatcher.finished(worker, number)
    return dispatcher


def test_what_was_put_back_is_made_again_before_later_ones() -> None:
    dispatcher = _three_ready_one_running()
    for number in (2, 0, 1):
        dispatcher.put_back(number)
        dispatcher.validate()
    assert dispatcher.deliverable() is None
    assert not dispatcher.done()
    again = []
    while command := ask(dispatcher, depth=9, waiting=True, run_ahead=9):
        if len(again) == 5:
            break
        dispatcher.assigned(*command)
        again.append(command[1])
    assert again == [0, 1, 2, 4, 5]


def test_what_was_put_back_keeps_an_exhausted_epoch_going() -> None:
    dispatcher = _three_ready_one_running()
    dispatcher.exhausted()
    assert ask(dispatcher, waiting=True, run_ahead=9) is None
    dispatcher.put_back(1)
    assert not dispatcher.has_ended(0)
    assert ask(dispatcher, waiting=True, run_ahead=9) == (0, 1)
    dispatcher.assigned(0, 1)
    assert ask(dispatcher, waiting=True, run_ahead=9) is None
    dispatcher.finished(0, 1)
    dispatcher.finished(1, 3)
    for number in range(4):
        assert dispatcher.deliverable() == number
        dispatcher.delivered(number)
    assert dispatcher.done()


def test_a_worker_that_leaves_makes_what_it_holds_and_gets_no_more() -> None:
    dispatcher = Dispatcher(2, 2, in_order=True, sharded=False)
    _assign_all(dispatcher, depth=2)
    dispatcher.leave(0)
    assert (dispatcher.serving, dispatcher.window) == (1, 2)
    assert not dispatcher.has_left(0)
    for number in (0, 2):
        dispatcher.finished(0, number)
        dispatcher.delivered(number) if number == 0 else None
    assert dispatcher.has_left(0)
    assert dispatcher.ready_of(0) == 1
    assert ask(dispatcher, depth=9, waiting=True, run_ahead=9) == (1, 4)


def test_a_worker_that_joins_again_under_its_number_is_given_batches() -> None:
    dispatcher = Dispatcher(1, 1, in_order=True, sharded=False)
    _assign_all(dispatcher)
    dispatcher.leave(0)
    dispatcher.finished(0, 0)
    dispatcher.delivered(0)
    assert ask(dispatcher, waiting=True, run_ahead=9) is None
    dispatcher.join(0)
    assert ask(dispatcher) == (0, 1)


def test_batches_made_elsewhere_are_passed_over() -> None:
    dispatcher = Dispatcher(0, 2, in_order=True, sharded=False)
    assert ask(dispatcher, waiting=True, run_ahead=9) is None
    for number in range(3):
        assert dispatcher.next_to_put_in == number
        dispatcher.skip(number)
    dispatcher.join(0)
    assert _assign_all(dispatcher, depth=2) == [(0, 3), (0, 4)]
    dispatcher.finished(0, 3)
    assert dispatcher.deliverable() == 3
    dispatcher.delivered(3)
    with pytest.raises(AssertionError):
        dispatcher.skip(5)  # while batch 4 is in flight


def test_what_was_put_back_may_be_made_elsewhere() -> None:
    dispatcher = _three_ready_one_running()
    dispatcher.finished(1, 3)
    for number in range(4):
        dispatcher.put_back(number)
    for number in (0, 1):
        assert dispatcher.next_to_put_in == number
        dispatcher.skip(number)
        dispatcher.validate()
    assert dispatcher.head == 2
    assert ask(dispatcher) == (0, 2)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_nothing_lifts_the_bound_of_memory(most: int) -> None:
    dispatcher = Dispatcher(3, 4, in_order=True, sharded=False)
    given = []
    depths = dict.fromkeys(range(3), 9)
    while command := dispatcher.next_assignment(
        waiting=True, depths=depths, run_ahead=99, most=most
    ):
        dispatcher.assigned(*command)
        given.append(command[1])
    assert given == list(range(most))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_bound_of_memory_holds_for_shards_too(most: int) -> None:
    dispatcher = Dispatcher(2, 4, in_order=True, sharded=True)
    while command := dispatcher.next_assignment(
        waiting=True, depths={0: 4, 1: 4}, run_ahead=99, most=most
    ):
        dispatcher.assigned(*command)
    assert dispatcher.in_flight == most


FEWER_FIT = {
    "memory for fewer": (2, 9, 1),
    "fewer workers, and no running ahead": (1, 0, NO_LIMIT),
}


@pytest.mark.parametrize("now", FEWER_FIT)
def test_the_head_is_made_again_even_where_less_is_allowed_by_then(now: str) -> None:
    """Batch 0 was put back. Batches 1 to 3 are ready and wait for it: it must be assigned."""
    serving, run_ahead, most = FEWER_FIT[now]
    dispatcher = _three_ready_one_running()
    dispatcher.finished(1, 3)
    dispatcher.put_back(0)
    for worker in range(serving, 2):
        dispatcher.leave(worker)
    assert dispatcher.deliverable() is None
    command = dispatcher.next_assignment(
        waiting=True, depths={0: 1, 1: 1}, run_ahead=run_ahead, most=most
    )
    assert command == (0, 0)
