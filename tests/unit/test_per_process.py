"""What each process opens for itself: once, by nobody else, and never copied."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from typing import Any, ClassVar

import pytest

import stoker
from stoker.per_process import PerWorker, close_all
from stoker.workers.likeness import likeness


class Handle:
    """Tells who has opened it, and whether it was closed."""

    opened: ClassVar[list[Handle]] = []

    def __init__(self, path: str = "") -> None:
        self.path, self.pid, self.closed = path, os.getpid(), False
        self.opened.append(self)

    def close(self) -> None:
        self.closed = True


class Stored:
    def __init__(self, path: str) -> None:
        self.path = path

    @stoker.per_worker
    def file(self) -> Handle:
        return Handle(self.path)

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def none_opened() -> None:
    Handle.opened.clear()


def in_a_fork(look: Any) -> Any:
    """What a function gives in a forked copy of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writing, pickle.dumps(look()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)


def test_it_is_opened_when_it_is_first_asked_for_and_once() -> None:
    handle = stoker.per_worker(Handle, "a")
    assert not Handle.opened
    assert handle() is handle()
    assert [opened.path for opened in Handle.opened] == ["a"]


def test_of_a_class_each_object_has_its_own() -> None:
    one, other = Stored("one"), Stored("other")
    assert one.file is one.file
    assert (one.file.path, other.file.path) == ("one", "other")
    assert vars(one) == {"path": "one"}
    assert isinstance(Stored.file, PerWorker)
    assert repr(Stored.file) == "stoker.per_worker(Stored.file)"


def test_what_is_dropped_is_held_by_nobody() -> None:
    number = len(Stored.file._of_instances)
    one = Stored("one")
    assert one.file.path == "one"
    Handle.opened.clear()
    del one
    assert len(Stored.file._of_instances) == number
    handle = stoker.per_worker(Handle)
    kept = handle()
    del handle
    close_all()
    assert not kept.closed


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda h: pickle.loads(pickle.dumps(h))]
)
def test_a_copy_opens_for_itself(copied: Any) -> None:
    handle = stoker.per_worker(Handle, "a")
    theirs = copied(handle)
    assert handle() is not theirs()
    theirs.close()
    assert not handle().closed
    assert copied(Stored("b")).file.path == "b"


def test_threads_open_it_once() -> None:
    entered, go = threading.Event(), threading.Event()

    def open_slowly() -> Handle:
        entered.set()
        assert go.wait(20)
        return Handle()

    handle = stoker.per_worker(open_slowly)
    got: list[Handle] = []
    threads = [threading.Thread(target=lambda: got.append(handle())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    go.set()
    for thread in threads:
        thread.join()
    assert len(set(map(id, got))) == len(Handle.opened) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_copy_neither_uses_nor_closes_what_is_its_parents() -> None:
    handle, stored = stoker.per_worker(Handle), Stored("a")
    ours, held = handle(), stored.file

    def look() -> Any:
        own = handle()
        pids = own.pid, stored.file.pid, handle().pid
        close_all()
        return os.getpid(), pids, own.closed, (ours.closed, held.closed)

    pid, pids, own_closed, ours_closed = in_a_fork(look)
    assert pids == (pid, pid, pid)
    assert own_closed
    assert ours_closed == (False, False)
    assert handle() is ours


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_another_thread_opens_does_not_hang() -> None:
    entered, go = threading.Event(), threading.Event()
    here = os.getpid()

    def open_slowly() -> Handle:
        if os.getpid() == here:
            entered.set()
            assert go.wait(20)
        return Handle()

    handle = stoker.per_worker(open_slowly)
    thread = threading.Thread(target=handle)
    thread.start()
    assert entered.wait(20)
    try:
        pid, opener = in_a_fork(lambda: (os.getpid(), handle().pid))
    finally:
        go.set()
        thread.join()
    assert pid == opener


def test_an_error_comes_as_it_is_with_the_place_and_the_next_call_tries_again() -> None:
    tries: list[int] = []

    def fail() -> Handle:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(2, "no such file")
        return Handle()

    handle = stoker.per_worker(fail)
    with pytest.raises(OSError, match="no such file") as caught:
        handle()
    if hasattr(caught.value, "__notes__"):
        assert caught.value.__notes__ == [f"while fail was opened in process {os.getpid()}"]
    assert handle().pid == os.getpid()


def test_one_that_asks_for_itself_is_an_error_and_no_hang() -> None:
    handle: Any = stoker.per_worker(lambda: handle())
    with pytest.raises(RuntimeError, match="asked for by the function that opens it"):
        handle()


def test_closing_it_lets_the_next_call_open_it_again() -> None:
    handle, stored = stoker.per_worker(Handle), Stored("a")
    first, held = handle(), stored.file
    handle.close()
    Stored.file.close()
    assert first.closed
    assert held.closed
    assert handle() is not first
    assert stored.file is not held


def test_being_open_is_no_change_of_a_data_set() -> None:
    """Workers that stay would be started anew for it."""
    handle = [stoker.per_worker(Handle, "a")]
    before = likeness(handle)
    handle[0]()
    assert likeness(handle) == before
    handle[0].args = ("b",)
    assert likeness(handle) != before


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a function that opens something, not a str"):
        stoker.per_worker("path")  # type: ignore[arg-type]
