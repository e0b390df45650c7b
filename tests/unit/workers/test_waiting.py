"""A wait that is over since somebody else closed what was waited for."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import pytest

import stoker
from stoker.errors import IteratorStopped
from stoker.workers import waiting
from stoker.workers.waiting import Waiter
from tests.datasets import Plain


def test_a_waiter_that_was_closed_says_so() -> None:
    ours, theirs = multiprocessing.Pipe()
    waiter = Waiter()
    waiter.add(ours, "pipe")
    theirs.send(1)
    assert waiter.wait(0) == ["pipe"]
    waiter.close()
    with pytest.raises(IteratorStopped, match="another thread"):
        waiter.wait(0)
    ours.close()
    theirs.close()


def test_a_daemonic_thread_that_is_left_behind_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the program ends it is put to sleep: an error would be printed."""
    slept: list[float] = []
    ends = iter([True, True, False])
    monkeypatch.setattr(waiting, "the_program_ends", lambda: next(ends))
    monkeypatch.setattr(waiting.time, "sleep", slept.append)
    waiter = Waiter()
    waiter.close()
    raised: list[type[BaseException]] = []

    def wait() -> None:
        try:
            waiter.wait(0)
        except IteratorStopped as error:
            raised.append(type(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(10)
    assert len(slept) == 2
    assert raised == [IteratorStopped]


def limit(
    monkeypatch: pytest.MonkeyPatch, most: int, before: Callable[[Any], None] = lambda _: None
) -> None:
    """Waits as Windows does: not through a selector, and not for many things at once."""

    def wait_as_there(sources: Any, timeout_s: float | None) -> list[Any]:
        if len(sources) > most:
            raise ValueError(
                f"need at most {most} handles, got a sequence of length {len(sources)}"
            )
        before(timeout_s)
        return wait(sources, timeout_s)

    monkeypatch.setattr(waiting, "wait", wait_as_there)
    monkeypatch.setattr(waiting, "_MOST_AT_ONCE", most)
    monkeypatch.setattr(waiting.selectors, "DefaultSelector", lambda: None)


@pytest.mark.parametrize("sends", [0, 63, 79])
def test_more_sources_than_the_system_waits_for_at_once(
    monkeypatch: pytest.MonkeyPatch, sends: int
) -> None:
    pipes = [multiprocessing.Pipe() for _ in range(80)]
    waits: list[float] = []

    def send_while_it_waits(timeout_s: float | None) -> None:
        assert timeout_s is not None  # Else it would not see the others.
        if timeout_s:
            waits.append(timeout_s)
            if len(waits) == 3:
                pipes[sends][1].send(1)

    limit(monkeypatch, 63, send_while_it_waits)
    waiter = Waiter()
    for number, (ours, _) in enumerate(pipes):
        waiter.add(ours, number)
    assert waiter.wait(None) == [sends]
    assert len(waits) == 3
    pipes[sends][0].recv()
    assert waiter.wait(0.001) == []
    for number in (2, 78):
        pipes[number][1].send(1)
    assert sorted(waiter.wait(10)) == [2, 78]
    waiter.close()
    for end in (end for pipe in pipes for end in pipe):
        end.close()


def test_workers_are_waited_for_and_ended_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 1)
    made = stoker.DataLoader(Plain(8), None, num_workers=2, worker_method="fork")
    assert len(list(made)) == 8
    leaves = iter(made)
    next(leaves)
    del leaves
    assert not multiprocessing.active_children()
