"""A wait that is over since somebody else closed what was waited for."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from stoker.errors import IteratorStopped
from stoker.workers import waiting
from stoker.workers.waiting import Waiter


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
