"""The box that a worker leaves: fatal stacks, stacks on demand, the sample in progress."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from stoker.workers import blackbox
from stoker.workers.blackbox import BlackBox

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts workers by fork")
FORK = multiprocessing.get_context("fork")


def _serve(box: BlackBox, connection: Connection, then: Callable[[], None]) -> None:
    box.install()
    connection.send(None)
    then()


@contextmanager
def _worker(box: BlackBox, then: Callable[[], None], context: Any = FORK) -> Iterator[Any]:
    """A process that has installed the box and goes on with `then`; killed at the end."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(box, theirs, then), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield process
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()
        box.close()


def _wait_for_ever_here() -> None:
    time.sleep(1000)


def _spin_here() -> None:
    while True:
        pass


def _hold_the_lock_here() -> None:
    """One call into C that does not let other threads run, for longer than the test takes."""
    sum(range(1 << 62))


def _crash_here() -> None:
    faulthandler._sigsegv()  # type: ignore[attr-defined]


def _overflow_here() -> None:
    faulthandler._stack_overflow()  # type: ignore[attr-defined]


def _asked(box: BlackBox, pid: int, function: Callable[[], None]) -> str:
    """The worker's stack once it has got into the function it is to be stuck in."""
    deadline = time.monotonic() + 20
    while f"in {function.__name__}" not in (text := box.ask(pid, 20)):
        assert time.monotonic() < deadline, text
    return text


@pytest.mark.parametrize("stuck", [_wait_for_ever_here, _spin_here, _hold_the_lock_here])
def test_a_stuck_worker_shows_where_it_is(stuck: Callable[[], None]) -> None:
    box = BlackBox()
    with _worker(box, stuck) as process:
        assert box.stack() == ""
        for _ in range(2):  # The second does not come behind the first.
            text = _asked(box, process.pid, stuck)
            assert text.count(f"in {stuck.__name__}") == 1, text
            assert text.count("most recent call first") == 1
        assert process.is_alive()


def test_without_signals_a_thread_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blackbox, "ASKING_SIGNAL", None)
    box = BlackBox()
    with _worker(box, _wait_for_ever_here) as process:
        for _ in range(2):
            text = _asked(box, process.pid, _wait_for_ever_here)
            assert text.count("in _wait_for_ever_here") == 1, text


def test_where_descriptors_cannot_be_passed_on_a_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, though nobody takes the file away here."""

    def named(_name: str) -> tuple[int, str | None]:
        descriptor, path = tempfile.mkstemp()
        os.close(descriptor)
        return blackbox.open_temporary(path), path

    monkeypatch.setattr(blackbox, "new_file", named)
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")
    box = BlackBox()
    function, arguments = box.__reduce__()
    other: Any = function(*arguments)  # type: ignore[operator]
    try:
        other.note(3, 4)
        os.lseek(other._descriptor, 0, os.SEEK_END)
        os.write(other._descriptor, b"Fatal")
        assert (box.noted(), box.stack()) == ((3, 4), "Fatal")
    finally:
        os.unlink(str(box._path))
        other.close()
        box.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.slow
def test_the_box_reaches_workers_that_are_no_forks(method: str) -> None:
    box = BlackBox()
    with _worker(box, _wait_for_ever_here, multiprocessing.get_context(method)) as process:
        assert _asked(box, process.pid, _wait_for_ever_here)


@pytest.mark.parametrize(
    ("crash", "words"),
    [(_crash_here, "Segmentation fault"), (_overflow_here, "Segmentation fault")],
)
def test_what_killed_a_worker_can_be_read_afterwards(crash: Callable[[], None], words: str) -> None:
    box = BlackBox()
    with _worker(box, crash) as process:
        process.join(20)
        assert process.exitcode == -signal.SIGSEGV
        text = box.stack()
        assert words in text
        assert f"in {crash.__name__}" in text


def test_a_worker_that_has_not_come_up_is_not_asked() -> None:
    """The signal would end it."""
    box = BlackBox()
    process = FORK.Process(target=time.sleep, args=(1000,), daemon=True)
    process.start()
    try:
        assert box.ask(process.pid or 0, 0.1) == ""
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
        box.close()


def test_a_stopped_worker_does_not_hold_up_who_asks() -> None:
    box = BlackBox()
    with _worker(box, _wait_for_ever_here) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert box.ask(process.pid, 0.1) == ""


def test_the_sample_in_progress_is_noted() -> None:
    box = BlackBox()
    assert box.noted() is None
    with _worker(box, lambda: (box.note(7, 0), box.note(7, 31), _crash_here())[2]) as process:
        process.join(20)
        assert box.noted() == (7, 31)
        assert "in _crash_here" in box.stack()


def test_a_box_that_cannot_be_had_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_name: str) -> tuple[int, str | None]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(blackbox, "new_file", full)
    box = BlackBox()
    with _worker(box, _wait_for_ever_here) as process:
        box.note(1, 1)
        assert box.ask(process.pid, 0.1) == box.stack() == ""
        assert box.noted() is None
        function, arguments = box.__reduce__()
        assert function(*arguments).stack() == ""  # type: ignore[operator]
