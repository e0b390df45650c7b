"""A worker that dies is replaced, whatever it was doing; every batch is the same bit for bit."""

from __future__ import annotations

import logging
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from stoker.errors import WorkerDied
from stoker.transport.arena import WorkerArena
from tests.contract.alike import assert_same, copied
from tests.contract.methods import every_process, loader, many_workers
from tests.contract.test_pinning import Accelerator, accelerator
from tests.datasets import Gated, Plain
from tests.faults.killing import FORK, DyingOnce, Gate, Once, delivered, expected, kill_self
from tests.faults.scripts import are_gone

__all__ = ["accelerator"]
LENGTH = 48
WIDTHS = pytest.mark.parametrize("wide", [1, 20_000], ids=["small", "slots"])
SETTINGS: dict[str, dict[str, Any]] = {
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "three ahead": {"num_workers": 3, "prefetch_factor": 4},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "limited": {"num_workers": 2, "memory_limit": "2MB"},
}
every_setting = pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)


def by_exit() -> None:
    os._exit(3)


def by_fault() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def by_bus_error() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGBUS)


def by_abort() -> None:
    os.abort()


ENDS = [kill_self, by_exit, by_fault, by_bus_error, by_abort]


def same(dataset: Any, made: Any, **options: Any) -> None:
    """Fails unless an epoch of a loader is what an epoch in the main process is."""
    assert_same(delivered(made), expected(dataset, **options))


@many_workers
@every_setting
@WIDTHS
def test_a_death_in_a_sample(wide: int, options: dict[str, Any]) -> None:
    for at in (0, 5, LENGTH - 1):
        dataset = DyingOnce(LENGTH, at, wide=wide)
        made = loader(dataset, "fork", batch_size=4, shuffle=True, **options)
        same(dataset, made, batch_size=4, shuffle=True)
        assert made.statistics().replaced == 1
        del made


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_whatever_ends_it(end: Callable[[], Any]) -> None:
    dataset = DyingOnce(LENGTH, 17, end)
    same(dataset, loader(dataset, "fork", batch_size=4), batch_size=4)


@every_process
def test_with_every_start_method(method: str) -> None:
    dataset = DyingOnce(12, 5)
    same(dataset, loader(dataset, method, 1, batch_size=2), batch_size=2)


def test_as_many_as_may_be_replaced() -> None:
    """Three of them, each at a batch of its own; the fourth is an error."""
    onces = {index: Once() for index in (5, 17, 29, 41)}

    class Dying(DyingOnce):
        def __getitem__(self, index: int) -> Any:
            if index in onces:
                onces[index](kill_self)
            return super().__getitem__(index)

    made = loader(Dying(LENGTH, -1), "fork", 1, batch_size=4)
    torch.manual_seed(3)
    iterator, batches = iter(made), []
    with pytest.raises(WorkerDied, match="max_restarts=3 an hour are used up") as caught:
        batches.extend(map(copied, iterator))
    assert caught.value.batch == 10
    assert made.statistics().replaced == 3
    assert_same(batches, expected(DyingOnce(LENGTH, -1), batch_size=4)[: len(batches)])
    assert len(batches) == 10
    del iterator


class Sending:
    """Ends a worker the first time that it sends something of a kind, in the middle of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.once = Once()
        self.main = os.getpid()
        self.before = FORK.Semaphore(3)

    def _now(self, act: Callable[[], None]) -> None:
        """The fourth time, in any worker."""
        if os.getpid() == self.main:
            return
        if not self.before.acquire(block=False):
            self.once(act)

    def between_message_and_descriptor(self) -> None:
        hand_over = WorkerArena.hand_over

        def dying(arena: WorkerArena, *args: Any) -> None:
            self.once(kill_self)
            hand_over(arena, *args)

        self.patch.setattr(WorkerArena, "hand_over", dying)

    def after_the_descriptor(self) -> None:
        hand_over = WorkerArena.hand_over

        def dying(arena: WorkerArena, *args: Any) -> None:
            hand_over(arena, *args)
            self.once(kill_self)

        self.patch.setattr(WorkerArena, "hand_over", dying)

    def before_a_message(self) -> None:
        self._patch_sending(lambda connection, data: self._now(kill_self))

    def in_the_middle_of_a_message(self) -> None:
        def half(connection: Connection, data: bytes) -> None:
            def act() -> None:
                whole = struct.pack("!i", len(data)) + data
                os.write(connection.fileno(), whole[: len(whole) // 2])
                kill_self()

            self._now(act)

        self._patch_sending(half)

    def after_a_message(self) -> None:
        self._patch_sending(lambda *_: None, lambda *_: self._now(kill_self))

    def _patch_sending(
        self,
        before: Callable[[Connection, bytes], None],
        after: Callable[[Connection, bytes], None] = lambda *_: None,
    ) -> None:
        send = Connection.send_bytes

        def dying(connection: Connection, data: bytes) -> None:
            before(connection, data)
            send(connection, data)
            after(connection, data)

        self.patch.setattr(Connection, "send_bytes", dying)


MOMENTS = [
    Sending.between_message_and_descriptor,
    Sending.after_the_descriptor,
    Sending.before_a_message,
    Sending.in_the_middle_of_a_message,
    Sending.after_a_message,
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_death_while_it_sends(
    moment: Callable[[Sending], None], num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = DyingOnce(LENGTH, -1, wide=20_000)
    moment(Sending(monkeypatch))
    made = loader(dataset, "fork", num_workers, batch_size=4)
    batches = delivered(made)
    monkeypatch.undo()
    assert_same(batches, expected(dataset, batch_size=4))
    assert made.statistics().replaced == 1


def test_a_message_cut_short_does_not_block_while_a_grandchild_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The grandchild holds the worker's end of the pipe open, and the message never ends."""
    dataset, pids = DyingOnce(24, -1), FORK.SimpleQueue()
    once = Once()
    send, main = Connection.send_bytes, os.getpid()

    def dying(connection: Connection, data: bytes) -> None:
        if os.getpid() != main and len(data) > 200:
            once(lambda: _leave_half(connection, data, pids))
        send(connection, data)

    monkeypatch.setattr(Connection, "send_bytes", dying)
    made = loader(dataset, "fork", 2, batch_size=4)
    started = time.monotonic()
    try:
        batches = delivered(made)
        assert time.monotonic() - started < 20
    finally:
        monkeypatch.undo()
        grandchild = pids.get()
        os.kill(grandchild, signal.SIGKILL)
        pids.close()
    assert_same(batches, expected(dataset, batch_size=4))
    assert are_gone([grandchild], 2)
    assert made.statistics().replaced == 1


def _leave_half(connection: Connection, data: bytes, pids: Any) -> None:
    grandchild = os.fork()
    if not grandchild:
        time.sleep(60)
        os._exit(0)
    pids.put(grandchild)
    whole = struct.pack("!i", len(data)) + data
    os.write(connection.fileno(), whole[: len(whole) // 2])
    kill_self()


def test_a_death_in_collate_fn() -> None:
    once = Once()

    def collate(samples: list[Any]) -> Any:
        if float(samples[0][0]) == 8:
            once(kill_self)
        return torch.utils.data.default_collate(samples)

    dataset = DyingOnce(LENGTH, -1)
    made = loader(dataset, "fork", batch_size=4, collate_fn=collate)
    assert_same(delivered(made), expected(dataset, batch_size=4))
    assert made.statistics().replaced == 1


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_death_while_it_starts(num_workers: int, persistent: bool) -> None:
    once = Once()

    def init(worker: int) -> None:
        once(kill_self)

    dataset = DyingOnce(LENGTH, -1)
    options = {"batch_size": 4, "worker_init_fn": init, "persistent_workers": persistent}
    made = loader(dataset, "fork", num_workers, **options)
    assert_same(delivered(made), expected(dataset, batch_size=4))
    assert made.statistics().replaced == 1


def _let_all_be_made(iterator: Any) -> None:
    """Until the workers have made all that they were sent, and wait."""
    feed = iterator.feed
    while any(feed._pool.busy(worker) for worker in feed.crew.men):
        feed._handle(feed._pool.wait(10))


@WIDTHS
@pytest.mark.parametrize("whom", [[0], [1], [0, 1]], ids=str)
def test_a_death_while_idle_keeps_what_was_made(wide: int, whom: list[int]) -> None:
    """Batches that were ready are handed out, and none is made twice."""
    dataset = DyingOnce(LENGTH, -1, wide=wide)
    made = loader(dataset, "fork", 2, batch_size=4, prefetch_factor=3)
    torch.manual_seed(3)
    iterator = iter(made)
    batches = [copied(next(iterator))]
    _let_all_be_made(iterator)
    more_to_make = iterator.feed.assigned_so_far < LENGTH // 4
    for process in [iterator._workers[at] for at in whom]:
        os.kill(process.pid, signal.SIGKILL)
    assert are_gone([iterator._workers[at].pid for at in whom], 5)
    batches += [copied(batch) for batch in iterator]
    assert_same(batches, expected(dataset, batch_size=4))
    assert made.statistics().made == LENGTH // 4
    assert made.statistics().replaced == (len(whom) if more_to_make else 0)


def test_what_was_ready_in_a_dead_workers_memory_may_be_kept_for_ever() -> None:
    dataset = DyingOnce(LENGTH, 30, wide=20_000)
    made = loader(dataset, "fork", 2, batch_size=4, prefetch_factor=4)
    torch.manual_seed(3)
    kept = list(made)
    assert made.statistics().replaced == 1
    del made
    assert_same(kept, expected(dataset, batch_size=4))


@pytest.mark.parametrize("held_back", [0, 3])
def test_a_death_while_its_batches_are_pinned(accelerator: Accelerator, held_back: int) -> None:
    """The thread holds the memory of the dead worker, and the number is another's by then."""
    held, going = threading.Event(), threading.Event()
    calls: list[int] = []

    def hold(tensor: torch.Tensor) -> None:
        calls.append(1)
        if len(calls) == 7 * held_back + 1:
            held.set()
            going.wait(20)

    accelerator.before = hold
    dataset = DyingOnce(LENGTH, -1, wide=20_000)
    made = loader(dataset, "fork", 1, batch_size=4, pin_memory=True, prefetch_factor=4)
    torch.manual_seed(3)
    iterator = iter(made)
    batches = [copied(next(iterator)) for _ in range(held_back)]
    feed = iterator.feed
    while not held.is_set():
        feed._handle(feed._pool.wait(0.05))
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    assert are_gone([iterator._workers[0].pid], 5)
    timer = threading.Timer(0.3, going.set)  # No process is forked in the middle of pinning.
    timer.start()
    feed._look()
    timer.join()
    assert made.statistics().replaced == 1
    batches += [copied(batch) for batch in iterator]
    del iterator, feed
    assert_same(batches, expected(dataset, batch_size=4))


@many_workers
def test_out_of_order_every_batch_comes_once() -> None:
    dataset = DyingOnce(LENGTH, 21)
    made = loader(dataset, "fork", 3, batch_size=4, in_order=False)
    batches = sorted(delivered(made), key=lambda batch: float(batch[0][0]))
    assert_same(batches, expected(dataset, batch_size=4))


@many_workers
def test_all_workers_at_once() -> None:
    gate = Gate()
    made = loader(Gated(40, 6, gate), "fork", 3, batch_size=1, prefetch_factor=2)
    iterator = iter(made)
    batches = [copied(next(iterator)) for _ in range(6)]
    killed = [worker.pid for worker in iterator._workers]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert are_gone(killed, 5)
    gate.set()
    batches += [copied(batch) for batch in iterator]
    assert [int(batch[0, 0]) for batch in batches] == list(range(40))
    assert made.statistics().replaced == 3


def test_one_that_died_with_nothing_left_to_make_gets_none_of_what_another_held() -> None:
    gate = Gate()
    made = loader(Gated(5, 2, gate), "fork", 2, batch_size=1, prefetch_factor=2)
    iterator = iter(made)
    batches = [copied(next(iterator)) for _ in range(2)]
    feed = iterator.feed
    while not (idle := [worker for worker in feed.crew.men if feed._dispatcher.has_ended(worker)]):
        feed._handle(feed._pool.wait(0.1))
        feed._assign()
    (busy,) = feed.crew.men.keys() - idle
    killed = {worker: feed.crew.pid_of(worker) for worker in (*idle, busy)}
    for worker, pid in killed.items():
        os.kill(pid, signal.SIGKILL)
        while feed.restarted < 2 and not (worker in idle and worker in feed._pool.deaths):
            feed._handle(feed._pool.wait(0.1))
    gate.set()
    batches += [copied(batch) for batch in iterator]
    assert [int(batch[0, 0]) for batch in batches] == list(range(5))
    assert made.statistics().replaced == 2


@pytest.mark.parametrize("when", ["at its end", "between epochs"])
def test_persistent_workers_are_replaced_for_the_next_epoch(when: str) -> None:
    dataset = DyingOnce(LENGTH, -1)
    made = loader(dataset, "fork", 2, batch_size=4, persistent_workers=True)
    reference = loader(dataset, "fork", 2, batch_size=4, persistent_workers=True)
    expect = [delivered(reference), [copied(batch) for batch in reference]]
    torch.manual_seed(3)
    iterator = iter(made)
    first = [copied(next(iterator)) for _ in range(11)]
    if when == "at its end":
        _let_all_be_made(iterator)
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        assert are_gone([iterator._workers[0].pid], 5)
    first += [copied(batch) for batch in iterator]
    if when == "between epochs":
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        assert are_gone([iterator._workers[0].pid], 5)
    second = [copied(batch) for batch in made]
    assert_same([first, second], expect)
    assert made.statistics().replaced == 1
    assert len(made._iterator._workers) == 2
    del made, reference, iterator


def test_a_dead_worker_that_nobody_misses_is_not_replaced() -> None:
    made = loader(Plain(4, (1,)), "fork", 2, batch_size=1, prefetch_factor=4)
    iterator = iter(made)
    first = next(iterator)
    _let_all_be_made(iterator)
    for worker in iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    assert [int(first), *(int(batch) for batch in iterator)] == [0, 1, 2, 3]
    assert made.statistics().replaced == 0


def test_a_death_while_sigchld_is_ignored() -> None:
    """Then the system takes the status, and nobody learns how it ended."""
    dataset = DyingOnce(LENGTH, 13)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        made = loader(dataset, "fork", 2, batch_size=4)
        batches = delivered(made)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert_same(batches, expected(dataset, batch_size=4))
    assert made.statistics().replaced == 1


def test_the_replacement_has_the_number_and_the_seed() -> None:
    once, told = Once(), FORK.SimpleQueue()

    def init(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        told.put((worker, info.id, info.num_workers, info.seed, torch.initial_seed()))

    class Dies(Plain):
        def __getitem__(self, index: int) -> Any:
            if index == 6:
                once(kill_self)
            return super().__getitem__(index)

    list(loader(Dies(20), "fork", 2, worker_init_fn=init))
    seen = [told.get() for _ in range(3)]
    told.close()
    assert len(set(seen)) == 2
    assert {entry[0] for entry in seen} == {0, 1}


def test_one_line_tells_of_a_replacement(caplog: pytest.LogCaptureFixture) -> None:
    dataset = DyingOnce(LENGTH, 17)
    with caplog.at_level(logging.WARNING, logger="stoker"):
        delivered(loader(dataset, "fork", 1, batch_size=4))
    (record,) = [r for r in caplog.records if r.name == "stoker"]
    text = record.getMessage()
    for part in ("worker 0", "SIGKILL (9)", "batch 4", "[16, 17, 18, 19]", "restart 1 of 3"):
        assert part in text
    assert record.levelno == logging.WARNING
