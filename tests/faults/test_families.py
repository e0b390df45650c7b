"""Processes within processes: loaders in daemonic ones, and data sets that start their own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from tests.contract.methods import loader
from tests.datasets import Plain
from tests.faults.scripts import are_gone, program

FORK = multiprocessing.get_context("fork")


def _sum_of_batches(method: str, connection: Any) -> None:
    made = loader(Plain(8, (1,)), method, 1, batch_size=2)
    connection.send(sum(float(batch.sum()) for batch in made))
    connection.send(multiprocessing.current_process().daemon)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_in_a_daemonic_process_has_workers(method: str) -> None:
    """multiprocessing refuses: "daemonic processes are not allowed to have children"."""
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_sum_of_batches, args=(method, theirs), daemon=True)
    child.start()
    assert ours.recv() == sum(range(8))
    assert ours.recv() is True
    child.join(10)
    assert child.exitcode == 0
    ours.close()
    theirs.close()


@pytest.mark.skipif(os.name != "posix", reason="there is no fork server")
def test_a_copy_has_a_fork_server_of_its_own() -> None:
    """Its original's, which was started before, is none that it could ask after."""
    assert len(list(loader(Plain(8, (1,)), "forkserver", 1, batch_size=2))) == 4
    test_a_loader_in_a_daemonic_process_has_workers("forkserver")
    assert len(list(loader(Plain(8, (1,)), "forkserver", 1, batch_size=2))) == 4


def _wait_with_workers(connection: Any) -> None:
    iterator = iter(loader(Plain(8), "fork"))
    next(iterator)
    connection.send([worker.pid for worker in iterator._workers])
    time.sleep(600)


@pytest.mark.parametrize("end", ["terminate", "kill"])
@pytest.mark.skipif(sys.platform != "linux", reason="the system ends a worker with its parent")
def test_workers_end_with_a_daemonic_process(end: str) -> None:
    """As multiprocessing ends it, when the main program does."""
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_wait_with_workers, args=(theirs,), daemon=True)
    child.start()
    pids = ours.recv()
    getattr(child, end)()
    child.join()
    assert are_gone(pids, 2.0)
    ours.close()
    theirs.close()


def _double(number: int) -> int:
    return 2 * number


class Helped(Plain):
    """Every sample is made by a process that the worker starts."""

    def __getitem__(self, index: int) -> torch.Tensor:
        with FORK.Pool(1) as pool:
            return torch.tensor(pool.apply(_double, (index,)))


def test_a_data_set_may_start_processes_in_a_worker() -> None:
    assert [int(batch) for batch in loader(Helped(4), "fork")] == [0, 2, 4, 6]


class Accompanied(Plain):
    """A worker starts a process that never ends by itself, in one of several ways."""

    def __init__(self, way: str, pids: Any) -> None:
        super().__init__(100)
        self.way = way
        self.pids = pids

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.way == "subprocess":
            self.pids.put(subprocess.Popen(["sleep", "600"]).pid)
        else:
            child = FORK.Process(target=time.sleep, args=(600,), daemon=self.way == "daemon")
            child.start()
            self.pids.put(child.pid)
        if index:
            time.sleep(600)
        return super().__getitem__(index)


@pytest.mark.parametrize("way", ["daemon", "no daemon", "subprocess"])
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_processes_that_a_worker_has_started_end_with_it(way: str) -> None:
    """Though the worker, in the middle of a sample, can't end them."""
    pids: Any = FORK.SimpleQueue()
    iterator = iter(loader(Accompanied(way, pids), "fork", 1))
    next(iterator)
    started = [pids.get(), pids.get()]
    before = time.monotonic()
    del iterator
    gc.collect()
    assert time.monotonic() - before < 1.0
    assert are_gone(started, 1.0)
    pids.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends them with the worker")
def test_processes_that_a_worker_has_forked_end_when_all_are_killed(tmp_path: Path) -> None:
    source = """
    import multiprocessing
    class Accompanied(Numbers):
        def __getitem__(self, index):
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()
            say(f"pids {os.getpid()} {child.pid}")
            return super().__getitem__(index)
    iterator = iter(stoker.DataLoader(Accompanied(), num_workers=1, prefetch_factor=1))
    next(iterator)
    time.sleep(600)
    """
    with program(tmp_path, source) as running:
        pids = [int(pid) for pid in running.wait_for("pids").split()]
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        assert are_gone(pids, 2.0)


class Dispositions(Plain):
    """Its samples are what a worker does on some signals: 0 default, 1 ignore, 2 a handler."""

    def __init__(self, *signals: int) -> None:
        super().__init__(4)
        self.signals = signals

    def __getitem__(self, index: int) -> torch.Tensor:
        told = [signal.getsignal(number) for number in self.signals]
        return torch.tensor([2 if callable(each) and each not in (0, 1) else each for each in told])


SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR2)


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Any:
    calls: list[int] = []
    handlers = [lambda number, frame, n=n: calls.append(n) for n in range(4)]
    before = [signal.signal(n, h) for n, h in zip(SIGNALS, handlers, strict=False)]
    yield calls, handlers
    for number, handler in zip(SIGNALS, before, strict=False):
        signal.signal(number, handler)


def test_handlers_are_the_programs_and_not_the_workers(handled: Any) -> None:
    calls, handlers = handled
    iterator = iter(loader(Dispositions(*SIGNALS), "fork", 1))
    assert next(iterator)[0].tolist() == [1, 0, 1, 2, 0]
    os.kill(iterator._workers[0].pid, signal.SIGUSR1)
    assert len(list(iterator)) == 3
    assert calls == []
    assert [signal.getsignal(number) for number in SIGNALS[:4]] == handlers
    os.kill(os.getpid(), signal.SIGUSR1)
    assert calls == [0]


def test_a_workers_signals_do_not_wake_its_parent(handled: Any) -> None:
    """As an event loop of the program would be, through a descriptor that a fork inherits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    before = signal.set_wakeup_fd(writer)
    try:
        list(loader(_Alarmed(2), "fork", 1))
        assert signal.SIGALRM not in _waiting_in(reader)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _waiting_in(reader: int) -> bytes:
    """The numbers of the signals that woke this process, if any."""
    try:
        return os.read(reader, 100)
    except BlockingIOError:
        return b""


class _Alarmed(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGALRM)
        return super().__getitem__(index)


def test_no_worker_is_left_by_a_nested_loader() -> None:
    """A data set that iterates a loader of its own, with workers, inside a worker."""
    outer = loader(_Nesting(3), "fork", 1)
    assert [float(batch) for batch in outer] == [6.0, 6.0, 6.0]
    assert not multiprocessing.active_children()


class _Nesting(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        inner = stoker.DataLoader(
            Plain(4, (1,)), num_workers=1, multiprocessing_context="fork", batch_size=4
        )
        return torch.stack([batch.sum() for batch in inner]).sum()
