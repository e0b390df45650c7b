"""What holds while a worker is started, seen without one."""

from __future__ import annotations

import multiprocessing
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.workers.starting import starting

needs_signals = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="threads can't be told of a signal"
)


@contextmanager
def another_thread() -> Iterator[int]:
    """One like a library's, in which no signal is blocked."""
    over, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), over.wait()))
    thread.start()
    ready.wait()
    assert thread.ident is not None
    try:
        yield thread.ident
    finally:
        over.set()
        thread.join()


@contextmanager
def noted() -> Iterator[socket.socket]:
    """Can be read when the system has told any thread of a signal."""
    note, written = socket.socketpair()
    with note, written:
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno())
        try:
            yield note
        finally:
            signal.set_wakeup_fd(before)


@needs_signals
def test_ctrl_c_that_another_thread_is_told_of_waits_as_well() -> None:
    """Python runs its handler in the main thread, where the signal is blocked and all the same."""
    done = []

    def start() -> None:
        with another_thread() as thread, noted() as note:
            with starting(multiprocessing.get_context("fork")):
                signal.pthread_kill(thread, signal.SIGINT)
                note.recv(1)
                done.append(1)
            done.append(2)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@needs_signals
def test_a_new_process_begins_with_ctrl_c_blocked() -> None:
    with starting(multiprocessing.get_context("fork")):
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
