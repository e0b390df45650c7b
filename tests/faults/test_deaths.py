"""A worker that dies is an error within a second, which names signal, worker and batch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import WorkerDied
from tests.contract.methods import every_process, loader, many_workers
from tests.datasets import Gated, Plain
from tests.faults.scripts import are_gone

FORK = multiprocessing.get_context("fork")
WITHIN_S = 1.0


class Dying(Plain):
    """Index `at` ends its process."""

    def __init__(self, length: int, at: int, end: Callable[[], Any]) -> None:
        super().__init__(length)
        self.at = at
        self.end = end

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            self.end()
        return super().__getitem__(index)


def by_kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def by_fault() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # pytest's faulthandler would write a report
    os.kill(os.getpid(), signal.SIGSEGV)


def by_bus_error() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGBUS)


def by_exit() -> None:
    os._exit(3)


ENDS = [
    (by_kill, -signal.SIGKILL, "SIGKILL"),
    (by_fault, -signal.SIGSEGV, "SIGSEGV"),
    (by_bus_error, -signal.SIGBUS, "SIGBUS"),
    (by_exit, 3, "exit code 3"),
]
every_end = pytest.mark.parametrize(("end", "code", "named"), ENDS, ids=[x[2] for x in ENDS])


@every_end
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_death_names_signal_worker_batch_and_indices(
    end: Callable[[], Any], code: int, named: str, num_workers: int
) -> None:
    iterator = iter(loader(Dying(100, 37, end), "fork", num_workers, batch_size=4))
    pids = [worker.pid for worker in iterator._workers]
    with pytest.raises(WorkerDied) as caught:
        for _ in iterator:
            pass
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert (error.exitcode, error.batch, error.indices) == (code, 9, [36, 37, 38, 39])
    assert error.pid in pids
    text = str(error)
    assert text.startswith(f"DataLoader worker (pid(s) {error.pid}) exited unexpectedly")
    for part in (named, "batch 9", "[36, 37, 38, 39]", "likely cause", "to change it"):
        assert part in text
    assert are_gone(pids, WITHIN_S)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 9, 30, 64])
def test_the_batch_is_named_however_much_was_made_before(at: int) -> None:
    """What was finished before the death is not blamed for it."""
    iterator = iter(loader(Dying(100, at, by_kill), "fork", 1, batch_size=1))
    seen: list[torch.Tensor] = []
    with pytest.raises(WorkerDied) as caught:
        seen.extend(iterator)
    assert (caught.value.batch, caught.value.indices) == (at, [at])
    assert len(seen) <= at


@every_process
def test_a_death_is_noticed_with_every_start_method(method: str) -> None:
    with pytest.raises(WorkerDied) as caught:
        list(loader(Dying(12, 5, by_kill), method, batch_size=2))
    assert (caught.value.exitcode, caught.value.batch) == (-signal.SIGKILL, 2)


@many_workers
@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_death_is_noticed_within_a_second(num_workers: int) -> None:
    gate = FORK.Event()
    iterator = iter(loader(Gated(40, 4, gate), "fork", num_workers, batch_size=1))
    for _ in range(4):
        next(iterator)
    for worker in iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        for _ in iterator:
            pass
    assert time.monotonic() - killed < WITHIN_S


def test_the_death_of_an_idle_worker_is_noticed() -> None:
    iterator = iter(loader(Plain(1000), "fork", 2, batch_size=1))
    next(iterator)
    os.kill(iterator._workers[1].pid, signal.SIGTERM)
    killed = time.monotonic()
    iterator._workers[1].join(5)
    with pytest.raises(WorkerDied, match=r"SIGTERM \(15\)"):
        for _ in iterator:
            pass
    assert time.monotonic() - killed < WITHIN_S


def test_a_death_during_worker_init_fn_is_noticed() -> None:
    with pytest.raises(WorkerDied) as caught:
        list(loader(Plain(8), "fork", worker_init_fn=lambda worker: os._exit(7)))
    assert caught.value.exitcode == 7


def test_a_death_while_nothing_is_left_to_make_harms_nobody() -> None:
    iterator = iter(loader(Plain(4, (1,)), "fork", 2, batch_size=1, prefetch_factor=4))
    time.sleep(0.2)
    first = next(iterator)
    for worker in iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    assert [int(first), *(int(batch) for batch in iterator)] == [0, 1, 2, 3]


def test_a_worker_that_died_between_epochs_is_noticed_in_the_next() -> None:
    made = loader(Plain(8), "fork", 2, persistent_workers=True)
    list(made)
    os.kill(made._iterator._workers[0].pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        list(made)
    assert time.monotonic() - killed < WITHIN_S + 0.5
    del made


def test_a_worker_that_died_at_the_end_of_an_epoch_is_noticed_in_the_next() -> None:
    """Its death was seen, and let pass, while the other was at the last batch."""
    gate = FORK.Event()
    dataset = Gated(2, 1, gate)
    made = loader(dataset, "fork", 2, persistent_workers=True, timeout=10)
    iterator = iter(made)
    assert int(next(iterator)[0, 0]) == 0
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    iterator._workers[0].join()
    opener = FORK.Process(target=_open_later, args=(gate,))
    opener.start()
    assert int(next(iterator)[0, 0]) == 1  # the death arrived meanwhile
    opener.join()
    opener.close()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        list(made)
    del made, iterator


def _open_later(gate: Any) -> None:
    time.sleep(0.8)
    gate.set()


def test_a_new_epoch_begins_after_a_death() -> None:
    marker = FORK.Event()

    def die_once() -> None:
        if not marker.is_set():
            marker.set()
            by_kill()

    made = loader(Dying(12, 5, die_once), "fork", 2)
    with pytest.raises(WorkerDied):
        list(made)
    assert len(list(made)) == 12


@pytest.mark.parametrize("fault", ["death", "timeout"])
def test_persistent_workers_come_back_after_they_were_stopped(fault: str) -> None:
    """The error says that iter(loader) begins a new epoch."""
    marker = FORK.Event()

    def fail_once() -> None:
        if not marker.is_set():
            marker.set()
            by_kill() if fault == "death" else time.sleep(600)

    made = loader(Dying(12, 5, fail_once), "fork", 2, persistent_workers=True, timeout=1)
    with pytest.raises(RuntimeError):
        list(made)
    assert len(list(made)) == 12
    del made


class StartsAGrandchild(Plain):
    """Leaves a process that holds everything open, and dies."""

    def __init__(self, length: int, pids: Any) -> None:
        super().__init__(length)
        self.pids = pids

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            self.pids.put(os.fork() or _sleep())
            time.sleep(0.1)  # the queue's thread has to send it
            by_kill()
        return super().__getitem__(index)


def _sleep() -> int:
    time.sleep(60)
    os._exit(0)


def test_a_death_is_noticed_though_a_grandchild_lives() -> None:
    pids = FORK.SimpleQueue()
    iterator = iter(loader(StartsAGrandchild(20, pids), "fork", 2))
    started = time.monotonic()
    try:
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            list(iterator)
        assert time.monotonic() - started < WITHIN_S + 0.5
        assert (caught.value.batch, caught.value.indices) == (3, [3])
    finally:
        grandchild = pids.get()
        os.kill(grandchild, signal.SIGKILL)
        pids.close()
    assert are_gone([grandchild], 2)
    del iterator


def test_subprocesses_of_a_dataset_hold_nobody_up() -> None:
    class Calls(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            subprocess.run(["true"], check=True)
            return super().__getitem__(index)

    assert len(list(loader(Calls(8), "fork", batch_size=2))) == 4


def test_a_time_out_is_an_error_that_tells_what_is_being_made() -> None:
    gate = FORK.Event()
    made = loader(Gated(8, 4, gate), "fork", 2, timeout=0.3)
    iterator = iter(made)
    pids = [worker.pid for worker in iterator._workers]
    assert [int(next(iterator)[0, 0]) for _ in range(4)] == [0, 1, 2, 3]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.3 seconds") as caught:
        next(iterator)
    assert 0.25 < time.monotonic() - started < 2
    assert isinstance(caught.value, TimeoutError)
    assert "batch 4" in str(caught.value)
    assert str(next(pid for pid in pids if f"pid {pid}" in str(caught.value)))
    assert are_gone(pids, WITHIN_S)
    with pytest.raises(stoker.errors.StokerError, match="stopped"):
        next(iterator)
    del iterator


def test_a_time_out_does_not_count_the_consumers_own_time() -> None:
    iterator = iter(loader(Plain(8), "fork", 2, timeout=0.4))
    next(iterator)
    time.sleep(0.6)
    assert len(list(iterator)) == 7
