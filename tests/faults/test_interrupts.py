"""Ctrl-C at any moment: one traceback, nothing left, and no batch that is missed unawares."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import IteratorStopped
from stoker.workers import stopping
from tests.contract.methods import loader, many_workers
from tests.datasets import Plain
from tests.faults.scripts import are_gone, program
from tests.faults.test_endings import assert_interrupted, program_within_s

WORKERS = pytest.mark.parametrize("num_workers", [0, 2, "auto"])


class InterruptedAt:
    """A sampler, or a data set, in which Ctrl-C comes once."""

    def __init__(self, at: int) -> None:
        self.at = at

    def pass_by(self, number: int) -> None:
        if number == self.at:
            self.at = -1
            os.kill(os.getpid(), signal.SIGINT)


class Sampling(InterruptedAt):
    def __iter__(self) -> Iterator[int]:
        for index in range(20):
            self.pass_by(index)
            yield index

    def __len__(self) -> int:
        return 20


class Reading(Plain):
    def __init__(self, at: int) -> None:
        super().__init__(20, (1,))
        self.interrupted = InterruptedAt(at)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.interrupted.pass_by(index)
        return super().__getitem__(index)


def make(dataset: Any, num_workers: Any, **options: Any) -> Any:
    context = "fork" if num_workers else None
    return stoker.DataLoader(
        dataset, num_workers=num_workers, multiprocessing_context=context, **options
    )


def seen_until_interrupted(iterator: Any) -> list[int]:
    seen = []
    with pytest.raises(KeyboardInterrupt):
        seen += [int(batch) for batch in iterator]
    return seen


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("at", [0, 1, 7, 19])
def test_an_interrupt_in_the_sampler(at: int, persistent: bool, num_workers: Any) -> None:
    """A program may catch it: it can't go on unawares, and the next epoch is whole."""
    options = {"persistent_workers": persistent} if num_workers else {}
    made = make(Plain(20, (1,)), num_workers, sampler=Sampling(at), **options)
    held: list[Any] = []  # Nothing, where the sampler is asked that far at once.
    with pytest.raises(KeyboardInterrupt):
        list(held.append(iter(made)) or held[0])
    for _ in range(2 * len(held)):
        with pytest.raises(IteratorStopped, match="stopped before the epoch was over"):
            next(held[0])
    assert [int(batch) for batch in made] == list(range(20))
    made.sampler.at = 2
    with pytest.raises(KeyboardInterrupt):
        list(made)
    assert [int(batch) for batch in made] == list(range(20))
    held.clear()
    del made
    gc.collect()  # What was raised holds frames that hold the iterator.
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num_workers", [0, "auto"])
def test_an_interrupt_in_a_sample_of_this_process(num_workers: Any) -> None:
    made = make(Reading(5), num_workers)
    iterator = iter(made)
    assert seen_until_interrupted(iterator) is not None
    with pytest.raises(IteratorStopped):
        next(iterator)
    assert [int(batch) for batch in made] == list(range(20))


@pytest.mark.parametrize("debug", [False, True])
def test_an_interrupt_while_an_iterable_is_read(debug: bool) -> None:
    class Counted(torch.utils.data.IterableDataset[int]):
        interrupted = InterruptedAt(3)

        def __iter__(self) -> Iterator[int]:
            for index in range(6):
                self.interrupted.pass_by(index)
                yield index

    made = stoker.DataLoader(Counted(), num_workers=0, debug=debug)
    iterator = iter(made)
    with pytest.raises(KeyboardInterrupt):
        list(iterator)
    with pytest.raises(IteratorStopped):
        next(iterator)
    assert [int(batch) for batch in made] == list(range(6))


@many_workers
@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_interrupt_while_workers_start(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes right before, or after, each fork: those that were started end."""
    started: list[Any] = []
    context = multiprocessing.get_context("fork")
    start = context.Process._Popen  # type: ignore[attr-defined]

    def interrupted_start(process: Any) -> Any:
        popen = start(process)
        started.append(process)
        if len(started) == which + 1:
            os.kill(os.getpid(), signal.SIGINT)
        return popen

    monkeypatch.setattr(context.Process, "_Popen", staticmethod(interrupted_start))
    with pytest.raises(KeyboardInterrupt):
        iter(loader(Plain(3), "fork", 3))
    assert len(started) == which + 1
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("when", ["before the fork", "after the fork"])
def test_an_interrupt_while_a_dead_worker_is_replaced(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One traceback; what was started ends, and the next epoch is whole."""
    context = multiprocessing.get_context("fork")
    start = context.Process._Popen  # type: ignore[attr-defined]
    made = loader(Plain(40, (1,)), "fork", 2)
    iterator = iter(made)
    next(iterator)

    def interrupted_start(process: Any) -> Any:
        monkeypatch.undo()
        if when == "before the fork":
            os.kill(os.getpid(), signal.SIGINT)
        popen = start(process)
        if when == "after the fork":
            os.kill(os.getpid(), signal.SIGINT)
        return popen

    monkeypatch.setattr(context.Process, "_Popen", staticmethod(interrupted_start))
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    with pytest.raises(KeyboardInterrupt):
        list(iterator)
    assert not multiprocessing.active_children()
    for _ in range(2):
        with pytest.raises(IteratorStopped, match="stopped before the epoch was over"):
            next(iterator)
    assert [int(batch) for batch in made] == list(range(40))


def test_an_interrupt_while_workers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not lost: it is raised again when they have ended, which takes under a second."""

    def end() -> None:
        iterator._shutdown_workers()
        assert are_gone(pids, 0)
        time.sleep(60)  # It wakes up.

    drain, calls = stopping._drain, []

    def interrupted_drain(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        drain(*given)

    monkeypatch.setattr(stopping, "_drain", interrupted_drain)
    iterator = iter(loader(Plain(20), "fork", 2))
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    for pid in pids:  # So that they do not end before they are killed.
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(KeyboardInterrupt):
        end()


# Programs


SLOW_SAMPLER = """
class Slow:
    def __iter__(self):
        yield from range(3)
        say("sampling")
        time.sleep(600)
    def __len__(self):
        return 100
"""


@pytest.mark.parametrize("options", ["num_workers=2", "num_workers=0"])
def test_ctrl_c_in_the_sampler_of_a_program(tmp_path: Path, options: str) -> None:
    source = SLOW_SAMPLER + f"list(stoker.DataLoader(Numbers(), sampler=Slow(), {options}))"
    with program(tmp_path, source) as running:
        running.wait_for("sampling")
        running.interrupt()
        code, error, took = running.end()
    assert_interrupted(code, error, took)


def test_ctrl_c_at_the_end_of_a_program(tmp_path: Path) -> None:
    """While its workers, which are stuck, are ended: it ends, and nothing is left."""
    source = """
    import stoker.workers.stopping as stopping
    iterator = iter(stoker.DataLoader(Stuck(3), num_workers=2, prefetch_factor=4))
    next(iterator)
    drain = stopping._drain
    def telling(*given):
        say(" ".join(["ending", *(str(worker.pid) for worker in given[0])]))
        time.sleep(0.2)
        drain(*given)
    stopping._drain = telling
    """
    with program(tmp_path, source) as running:
        pids = [int(pid) for pid in running.wait_for("ending").split()]
        running.interrupt()
        code, error, took = running.end()
    assert code in (0, -signal.SIGINT, 130)
    assert error.count("Traceback") <= 1
    assert took < program_within_s() + 1.0  # with the pauses above
    assert are_gone(pids, 0.1)


@pytest.mark.parametrize(
    ("daemon", "body", "ending", "code"),
    [
        (False, "[next(iterator) for _ in range(2)]", "", 0),
        (True, "list(iterator)", "", 0),
        (True, "list(iterator)", "raise SystemExit(3)", 3),
        (False, "next(iterator)", "atexit.register(lambda: list(iterator))", 0),
    ],
    ids=["thread", "daemon", "daemon, exit", "atexit"],
)
def test_a_program_that_ends_with_an_iterator_in_a_thread(
    tmp_path: Path, daemon: bool, body: str, ending: str, code: int
) -> None:
    """A daemonic thread is left in the middle of its wait for a batch, and says nothing."""
    source = f"""
    import atexit
    dataset = Stuck({2 if daemon else 50}, 12)
    iterator = iter(stoker.DataLoader(dataset, num_workers=1))
    say(" ".join(["pids", *(str(worker.pid) for worker in iterator._workers)]))
    begun = threading.Event()
    def work():
        begun.set()
        {body}
    threading.Thread(target=work, daemon={daemon}).start()
    begun.wait()
    {ending}
    """
    with program(tmp_path, source) as running:
        pids = [int(pid) for pid in running.wait_for("pids").split()]
        ended, error, took = running.end()
    assert (ended, error) == (code, "")
    assert took < program_within_s() + 1.0
    assert are_gone(pids, 1.0)


PYTEST = """
import pytest

kept = []

def test_one():
    iterator = iter(stoker.DataLoader(Stuck(3), num_workers=2, persistent_workers=True))
    next(iterator)
    kept.append(iterator)

def test_two():
    for batch in stoker.DataLoader(Stuck(3), num_workers=2):
        raise ArithmeticError("diverged")

if __name__ == "__main__":
    code = pytest.main([__file__, "-q", "-p", "no:cacheprovider", "--tb=line"])
    print(f"pytest {int(code)}", flush=True)
"""


def test_iterators_that_are_alive_when_pytest_ends(tmp_path: Path) -> None:
    """In a global of a test module, and in the traceback of a test that failed."""
    with program(tmp_path, PYTEST) as running:
        assert running.wait_for("pytest") == "1"
        code, error, _ = running.end()
    assert (code, error) == (0, "")
    assert "1 failed, 1 passed" in "\n".join(running.lines)
