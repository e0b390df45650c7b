"""What can be learnt of a process that has ended, whoever has waited for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any

import pytest

from stoker.workers.death import await_end, has_ended, keep_peak, peak_bytes

FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="fork and signals")


@pytest.fixture
def process() -> Iterator[Any]:
    started = FORK.Process(target=time.sleep, args=(60,), daemon=True)
    started.start()
    keep_peak(started)
    yield started
    started.kill()
    started.join()
    started.close()


def test_one_that_lives_has_not_ended(process: Any) -> None:
    assert not has_ended(process)
    assert not await_end(process, 0.02)
    assert peak_bytes(process) is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda process: await_end(process, 10),
        lambda process: process.join(),
        lambda process: [process.is_alive() for _ in iter(process.is_alive, False)],
    ],
    ids=["await_end", "join", "is_alive"],
)
def test_its_memory_is_known_whoever_asks_first(process: Any, ask: Callable[[Any], Any]) -> None:
    process.kill()
    ask(process)
    for _ in range(2):
        peak = peak_bytes(process)
        assert peak is not None
        assert 1 << 20 < peak < 64 << 30
    assert process.exitcode == -signal.SIGKILL


def test_its_memory_is_known_where_another_is_started_first(process: Any) -> None:
    process.kill()
    deadline = time.monotonic() + 10
    # As the start of any process does. The sentinel ends a little before the status is there.
    while process in multiprocessing.active_children() and time.monotonic() < deadline:
        wait([process.sentinel], 1)
    assert peak_bytes(process) is not None


def test_one_that_somebody_else_has_waited_for_has_ended(process: Any) -> None:
    process.kill()
    os.waitpid(process.pid, 0)
    assert has_ended(process)
    assert await_end(process, 10)
    assert peak_bytes(process) is None
    process._popen.returncode = -signal.SIGKILL  # for the fixture


def test_one_whose_sentinel_is_held_open_has_ended() -> None:
    """By a process that it started."""
    told = FORK.SimpleQueue()
    started = FORK.Process(target=_leave_a_child, args=(told,))
    started.start()
    child = told.get()
    began = time.monotonic()
    assert await_end(started, 10)
    assert time.monotonic() - began < 5
    os.kill(child, signal.SIGKILL)
    started.join()
    started.close()
    told.close()


def _leave_a_child(told: Any) -> None:
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    told.put(child)
    os._exit(0)
