"""However a loop or a program ends, it ends in under a second, in silence, leaving nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.methods import (
    both_segments,
    every_process,
    loader,
    many_workers,
    segments_here,
    use_segments,
)
from tests.datasets import Plain
from tests.faults.scripts import WITHIN_S, are_gone, is_gone, program, program_within_s, run

FORK = multiprocessing.get_context("fork")


class Busy(Plain):
    """Index 1 and all after the first few never come; `busy` tells that somebody waits."""

    def __init__(self, length: int, busy: Any, at: int = 1) -> None:
        super().__init__(length)
        self.busy = busy
        self.at = at

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.at:
            self.busy.release()
            time.sleep(600)
        return super().__getitem__(index)


def busy_iterator(num_workers: int = 2, **options: Any) -> tuple[Any, list[int]]:
    """An iterator whose workers are all in the middle of a sample that never ends."""
    busy = FORK.Semaphore(0)
    iterator = iter(loader(Busy(100, busy), "fork", num_workers, **options))
    assert int(next(iterator)[0, 0]) == 0
    for _ in range(num_workers):
        assert busy.acquire(timeout=10)
    return iterator, [worker.pid for worker in iterator._workers]


class Watch:
    """Fails where the block takes longer than a second."""

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *raised: object) -> None:
        took = time.monotonic() - self.started
        assert took < WITHIN_S, f"it took {took:.2f} s"


@many_workers
@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_dropping_an_iterator_ends_busy_workers(num_workers: int, persistent: bool) -> None:
    iterator, pids = busy_iterator(num_workers, persistent_workers=persistent)
    gc.collect()
    with Watch():
        del iterator
        gc.collect()
    assert are_gone(pids, WITHIN_S)


@both_segments
@pytest.mark.parametrize("shape", [(3,), (200, 200)], ids=["small", "large"])
@pytest.mark.parametrize("taken", [0, 1, 3, 11])
def test_leaving_the_loop_ends_the_workers(
    taken: int, shape: tuple[int, ...], segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes the names of the memory away that was on its way."""
    use_segments(monkeypatch, segments)
    before = segments_here()
    iterator = iter(loader(Plain(500, shape), "fork", batch_size=2))
    for _ in range(taken):
        next(iterator)
    with Watch():
        del iterator
    assert not multiprocessing.active_children()
    assert segments_here() == before


def test_an_exception_in_the_loop_ends_the_workers() -> None:
    pids: list[int] = []

    def train() -> None:
        for _ in loader(Plain(100), "fork"):
            pids.extend(child.pid or 0 for child in multiprocessing.active_children())
            raise ArithmeticError("diverged")

    with pytest.raises(ArithmeticError, match="diverged"):
        train()
    gc.collect()
    assert len(pids) == 2
    assert are_gone(pids, WITHIN_S)


@every_process
def test_every_kind_of_worker_ends(method: str) -> None:
    iterator = iter(loader(Plain(100), method))
    pids = [worker.pid for worker in iterator._workers]
    next(iterator)
    with Watch():
        del iterator
    assert are_gone(pids, WITHIN_S)


def test_workers_that_ignore_sigterm_end_too() -> None:
    def stubborn(worker: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    iterator, pids = busy_iterator(worker_init_fn=stubborn)
    with Watch():
        del iterator
    assert are_gone(pids, WITHIN_S)


def test_stopped_workers_end_too() -> None:
    """A worker that is suspended answers nothing."""
    iterator = iter(loader(Plain(100), "fork"))
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with Watch():
        del iterator
    assert are_gone(pids, WITHIN_S)


def test_an_iterator_in_a_cycle_ends_with_the_collector() -> None:
    iterator, pids = busy_iterator()
    cycle: list[Any] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    with Watch():
        gc.collect()
    assert are_gone(pids, WITHIN_S)


def test_an_iterator_made_and_dropped_in_another_thread() -> None:
    seen: list[list[float]] = []

    def work() -> None:
        iterator = iter(loader(Plain(40, (1,)), "fork", batch_size=2))
        seen.append([float(next(iterator)[0, 0]) for _ in range(5)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert seen == [[0.0, 2.0, 4.0, 6.0, 8.0]]
    assert not multiprocessing.active_children()


def test_an_iterator_made_here_and_finished_in_another_thread() -> None:
    iterator = iter(loader(Plain(40, (1,)), "fork", batch_size=2))
    next(iterator)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(iterator))
    thread.start()
    thread.join(20)
    assert len(seen) == 19


def test_ending_is_no_failure_of_a_worker(capfd: pytest.CaptureFixture[str]) -> None:
    iterator, _ = busy_iterator()
    del iterator
    gc.collect()
    seen = capfd.readouterr()
    assert seen.out == seen.err == ""


# Programs


@pytest.mark.parametrize(
    "options",
    [
        "num_workers=2",
        "num_workers=2, persistent_workers=True",
        "num_workers=4, prefetch_factor=4",
    ],
    ids=["plain", "persistent", "four"],
)
def test_ctrl_c_while_waiting(tmp_path: Path, options: str) -> None:
    source = f"""
    loader = stoker.DataLoader(Stuck(3), batch_size=1, {options})
    for batch in loader:
        pass
    """
    with program(tmp_path, source) as running:
        running.wait_for("stuck")
        running.interrupt()
        code, error, took = running.end()
    assert_interrupted(code, error, took)


def assert_interrupted(code: int, error: str, took: float) -> None:
    assert code in (-signal.SIGINT, 130)
    assert error.count("Traceback") == 1, error
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert took < program_within_s()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ctrl_c_in_the_loop(tmp_path: Path, num_workers: int) -> None:
    source = f"""
    for batch in stoker.DataLoader(Numbers(), num_workers={num_workers}):
        say("ready")
        time.sleep(600)
    """
    with program(tmp_path, source) as running:
        running.wait_for("ready")
        running.interrupt()
        code, error, took = running.end()
    assert_interrupted(code, error, took)


def test_ctrl_c_in_a_sample_of_this_process(tmp_path: Path) -> None:
    with program(tmp_path, "list(stoker.DataLoader(Stuck(3)))") as running:
        running.wait_for("stuck")
        running.interrupt()
        code, error, took = running.end()
    assert_interrupted(code, error, took)


def test_ctrl_c_while_fresh_workers_start(tmp_path: Path) -> None:
    source = """
    class Slow(Numbers):
        def __setstate__(self, state):
            self.__dict__.update(state)
            say(f"starting {os.getpid()}")
            time.sleep(600)
    if __name__ == "__main__":
        list(stoker.DataLoader(Slow(), num_workers=1, multiprocessing_context="spawn"))
    """
    with program(tmp_path, source) as running:
        running.wait_for("starting")
        running.interrupt()
        code, error, took = running.end()
    assert_interrupted(code, error, took)


def test_ctrl_c_is_left_to_a_program_that_handles_it(tmp_path: Path) -> None:
    """Afterwards the loader begins again, its workers persistent or not."""
    source = """
    if __name__ == "__main__":
        for persistent in (False, True):
            loader = stoker.DataLoader(Stuck(3, 6), num_workers=2, persistent_workers=persistent)
            try:
                list(loader)
            except KeyboardInterrupt:
                say("caught")
            loader.dataset.at = -1
            if not persistent:
                say(f"again {len(list(loader))}")
        say("done")
    """
    with program(tmp_path, source) as running:
        running.wait_for("stuck")
        running.interrupt()
        running.wait_for("caught")
        assert running.wait_for("again") == "6"
        running.wait_for("stuck")
        running.interrupt()
        running.wait_for("caught")
        code, error, took = running.end()
    assert (code, error) == (0, "")
    assert took < program_within_s()


@pytest.mark.parametrize(
    "options",
    [
        "num_workers=2",
        "num_workers=2, persistent_workers=True",
        "num_workers=1, multiprocessing_context='spawn'",
        "num_workers=1, multiprocessing_context='forkserver'",
    ],
    ids=["fork", "persistent", "spawn", "forkserver"],
)
def test_a_program_that_ends_with_a_live_iterator(tmp_path: Path, options: str) -> None:
    source = f"""
    if __name__ == "__main__":
        loader = stoker.DataLoader(Stuck(3), {options})
        iterator = iter(loader)
        next(iterator)
        say(" ".join(["pids", *(str(worker.pid) for worker in iterator._workers)]))
    """
    with program(tmp_path, source) as running:
        pids = [int(pid) for pid in running.wait_for("pids").split()]
        code, error, took = running.end()
    assert (code, error) == (0, "")
    assert took < program_within_s()
    assert are_gone(pids, 0.1)


@pytest.mark.parametrize(
    "ending",
    [
        "raise SystemExit(3)",
        "sys.exit(3)",
        "threading.Thread(target=lambda: None).start(); sys.exit(3)",
    ],
)
def test_a_program_that_exits_in_the_loop(tmp_path: Path, ending: str) -> None:
    source = f"""
    import multiprocessing
    for batch in stoker.DataLoader(Stuck(3), num_workers=2):
        pids = [str(child.pid) for child in multiprocessing.active_children()]
        say(" ".join(["pids", *pids]))
        {ending}
    """
    with program(tmp_path, source) as running:
        pids = [int(pid) for pid in running.wait_for("pids").split()]
        code, error, took = running.end()
    assert (code, error) == (3, "")
    assert took < program_within_s()
    assert are_gone(pids, 2.0)


def test_an_uncaught_exception_in_the_loop(tmp_path: Path) -> None:
    source = """
    for batch in stoker.DataLoader(Stuck(3), num_workers=2):
        raise ArithmeticError("diverged")
    """
    code, _, error = run(tmp_path, source)
    assert code == 1
    assert error.count("Traceback") == 1
    assert error.endswith("ArithmeticError: diverged\n")


KILLED = """
iterator = iter(stoker.DataLoader({dataset}, num_workers=2))
next(iterator)
other = iter(stoker.DataLoader({dataset}, num_workers=1, persistent_workers=True))
next(other)
workers = [*iterator._workers, *other._workers]
say(" ".join(["pids", *(str(worker.pid) for worker in workers)]))
"""


@pytest.mark.parametrize("dataset", ["Numbers()", "Stuck(1)"], ids=["idle", "busy"])
@pytest.mark.parametrize("end", ["time.sleep(600)", "os._exit(0)"], ids=["killed", "os._exit"])
def test_workers_end_when_their_parent_is_gone(tmp_path: Path, dataset: str, end: str) -> None:
    """It had no chance to tell them."""
    with program(tmp_path, KILLED.format(dataset=dataset) + end) as running:
        pids = [int(pid) for pid in running.wait_for("pids").split()]
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        try:
            assert are_gone(pids, 2.0)
        finally:
            for pid in pids:
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)", "del iterator; sys.exit(0)"])
def test_a_forked_copy_of_a_program_ends_nothing(tmp_path: Path, ending: str) -> None:
    """Neither its exit nor what it drops touches the workers of the original."""
    source = f"""
    loader = stoker.DataLoader(Numbers(40), num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(3)]
    child = os.fork()
    if child == 0:
        {ending}
    _, status = os.waitpid(child, 0)
    say(f"child {{status}}")
    say(f"left {{len(list(iterator))}}")
    say(f"again {{len(list(loader))}}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert lines == ["child 0", "left 37", "again 40"]


def test_a_forked_copy_goes_on_after_the_original_dropped_its_iterator(tmp_path: Path) -> None:
    """A loader is used on both sides of a fork."""
    source = """
    loader = stoker.DataLoader(Numbers(12), num_workers=2)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        del iterator
        say(f"child {len(list(loader))}")
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    say(f"parent {status} {len(list(iterator))}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert lines == ["child 12", "parent 0 11"]


def test_an_iterator_that_reaches_a_worker_of_another_loader(tmp_path: Path) -> None:
    """It was inherited by fork, and is collected there."""
    source = """
    import gc
    loader = stoker.DataLoader(Numbers(12), num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)

    class Collecting(Numbers):
        def __getitem__(self, index):
            global loader, iterator
            loader = iterator = None
            gc.collect()
            return super().__getitem__(index)

    say(f"second {len(list(stoker.DataLoader(Collecting(6), num_workers=2)))}")
    say(f"first {len(list(iterator))}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error) == (0, "")
    assert lines == ["second 6", "first 11"]


def test_a_multiprocessing_child_ends_nothing(tmp_path: Path) -> None:
    source = """
    import multiprocessing
    loader = stoker.DataLoader(Numbers(40), num_workers=2)
    iterator = iter(loader)
    next(iterator)
    child = multiprocessing.get_context("fork").Process(target=lambda: None)
    child.start()
    child.join()
    say(f"child {child.exitcode}")
    say(f"left {len(list(iterator))}")
    """
    code, lines, error = run(tmp_path, source)
    assert (code, error, lines) == (0, "", ["child 0", "left 39"])
