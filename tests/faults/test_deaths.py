"""What is told of a worker that dies: signal, worker, batch, sample, stack; within a second.

Most of these ask for no replacement, as in torch. `test_replaying` has those that are replaced.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import WorkerDied
from tests.contract.methods import every_process, many_workers
from tests.contract.methods import loader as replacing_loader
from tests.datasets import Gated, Plain
from tests.faults.killing import Gate
from tests.faults.scripts import are_gone

FORK = multiprocessing.get_context("fork")
WITHIN_S = 1.0


def loader(dataset: Any, method: str, num_workers: int = 2, **options: Any) -> Any:
    """One that replaces nobody."""
    return replacing_loader(dataset, method, num_workers, max_restarts=0, **options)


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


def by_stack_overflow() -> None:
    """The C stack, not Python's: the limit is lifted."""
    sys.setrecursionlimit(1 << 30)
    ctypes.CDLL(None).memset(0, 1, 1)


class Deep(Dying):
    def __getitem__(self, index: int) -> torch.Tensor:
        return self.the_sample(index)

    def the_sample(self, index: int) -> torch.Tensor:
        return super().__getitem__(index)


@pytest.mark.parametrize("num_workers", [1, 3])
@many_workers
def test_the_batch_that_ends_two_workers_is_the_error(num_workers: int) -> None:
    """The second was careful: the sample it was at is known, and its Python stack."""
    made = replacing_loader(Deep(100, 38, by_stack_overflow), "fork", num_workers, batch_size=4)
    iterator, seen = iter(made), []
    with pytest.raises(WorkerDied) as caught:
        seen.extend(int(batch[0, 0]) for batch in iterator)
    error, text = caught.value, str(caught.value)
    assert (error.batch, error.indices) == (9, [36, 37, 38, 39])
    assert (error.sample, error.position) == (38, 2)
    assert error.exitcode == -signal.SIGSEGV
    assert "the_sample" in error.stack
    assert error.peak_bytes is not None
    assert error.peak_bytes > 20 << 20
    assert error.shared_free_bytes is None or error.shared_free_bytes > 0
    assert error.oom_kills[0] == error.oom_kills[1]
    for part in (
        "this batch has ended two workers",
        "SIGSEGV (11)",
        "at sample index 38, position 2 of the batch",
        "likely cause: a fault in a compiled library",
        "its Python stack:",
        "of memory at its peak",
    ):
        assert part in text
    assert seen == list(range(0, 36, 4))
    assert made.statistics().replaced == 1
    pids = [process.pid for process in multiprocessing.active_children()]
    assert are_gone([pid for pid in pids if pid is not None], WITHIN_S)
    del iterator


def test_a_batch_that_kills_while_it_is_collated_tells_so() -> None:
    def collate(samples: list[Any]) -> Any:
        if int(samples[0][0]) == 8:
            by_kill()
        return samples

    with pytest.raises(WorkerDied, match="in collate_fn") as caught:
        list(replacing_loader(Plain(40), "fork", 2, batch_size=4, collate_fn=collate))
    assert (caught.value.batch, caught.value.sample) == (2, None)


def test_workers_that_never_come_up_are_an_error_and_not_started_for_ever() -> None:
    starts = FORK.Semaphore(0)

    def init(worker: int) -> None:
        starts.release()
        by_kill()

    options = {"worker_init_fn": init, "max_restarts": 1000}
    with pytest.raises(WorkerDied, match="ten workers in a row ended before"):
        list(replacing_loader(Plain(40), "fork", 2, **options))
    count = 0
    while starts.acquire(block=False):
        count += 1
    assert 10 <= count <= 12


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_no_more_are_replaced_than_may_be(limit: int) -> None:
    """Epochs share the limit; each dies at a batch of its own."""

    class DiesAtEach(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index % 8 == 0 and deaths.acquire(block=False):
                by_kill()
            return super().__getitem__(index)

    deaths = FORK.Semaphore(0)
    made = replacing_loader(DiesAtEach(16), "fork", 2, max_restarts=limit)
    for _ in range(limit):
        deaths.release()
        assert [int(batch[0, 0]) for batch in made] == list(range(16))
    deaths.release()
    with pytest.raises(WorkerDied) as caught:
        list(made)
    assert ("are used up" in str(caught.value)) == (limit > 0)
    assert made.statistics().replaced == limit


def test_a_changed_data_set_is_not_read_by_a_replacement() -> None:
    """Persistent workers have it as it was; another would have it as it is now."""
    dataset = Dying(40, -1, by_kill)
    made = replacing_loader(dataset, "fork", 2, persistent_workers=True)
    assert len(list(made)) == 40
    dataset.shape = (5,)
    os.kill(made._iterator._workers[0].pid, signal.SIGKILL)
    made._iterator._workers[0].join(5)
    with pytest.raises(WorkerDied, match="has been changed in the main process"):
        list(made)
    del made


def test_a_replacement_that_cannot_be_started_is_an_error_where_nobody_else_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for workers, works in ((2, True), (1, False)):
        gate = Gate()
        made = replacing_loader(Gated(40, 6, gate), "fork", workers, prefetch_factor=2)
        iterator = iter(made)
        seen = [int(next(iterator)[0, 0]) for _ in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(FORK.Process, "_Popen", staticmethod(_no_process))
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
            iterator._workers[0].join(5)
            gate.set()
            if works:
                seen += [int(batch[0, 0]) for batch in iterator]
                assert seen == list(range(40))
            else:
                with pytest.raises(WorkerDied, match="another could not be started") as caught:
                    list(iterator)
                assert isinstance(caught.value.__cause__, BlockingIOError)
        del iterator, made


def _no_process(process: Any) -> Any:
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_a_worker_that_closes_its_pipe_and_lives_is_replaced() -> None:
    once = FORK.Semaphore(1)

    class Closes(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 9 and once.acquire(block=False):
                os.closerange(3, 256)
                time.sleep(60)
            return super().__getitem__(index)

    made = replacing_loader(Closes(24), "fork", 2)
    started = time.monotonic()
    assert [int(batch[0, 0]) for batch in made] == list(range(24))
    assert time.monotonic() - started < 20
    assert made.statistics().replaced == 1


def test_a_death_between_epochs_is_blamed_on_no_batch() -> None:
    made = loader(Plain(16), "fork", 2, batch_size=4, persistent_workers=True)
    assert len(list(made)) == 4
    pid = made._iterator._workers[1].pid
    os.kill(pid, signal.SIGKILL)
    assert are_gone([pid], 5)
    with pytest.raises(WorkerDied, match="while: waiting for work\n") as caught:
        list(made)
    assert caught.value.batch is None
    del made
