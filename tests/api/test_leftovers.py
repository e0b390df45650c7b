"""The look at what a test left behind finds every kind of thing, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import shared_memory

import pytest

from stoker.transport.shm import OwnedSegment
from tests.leftovers import Snapshot

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@contextmanager
def _descriptor() -> Iterator[None]:
    number = os.open(os.devnull, os.O_RDONLY)
    yield
    os.close(number)


@contextmanager
def _thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    yield
    end.set()
    thread.join()


@contextmanager
def _child() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        yield


@contextmanager
def _grandchild_without_parent() -> Iterator[None]:
    reader, writer = os.pipe()
    program = f"import os; os.fork() or os.read({reader}, 1)"
    subprocess.run([sys.executable, "-c", program], pass_fds=[reader], check=True)
    os.close(reader)
    yield
    os.close(writer)


@contextmanager
def _ended_but_not_awaited() -> Iterator[None]:
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    os.waitid(os.P_PID, child.pid or 0, os.WEXITED | os.WNOWAIT)
    yield
    child.join()
    child.close()


@contextmanager
def _named_segment() -> Iterator[None]:
    segment = shared_memory.SharedMemory(create=True, size=100)
    segment.close()
    yield
    segment.unlink()


@contextmanager
def _mapped_memory() -> Iterator[None]:
    segment = OwnedSegment("memfd", 4096)
    yield
    segment.close()


@linux
@pytest.mark.parametrize(
    ("leave", "word"),
    [
        (_descriptor, "descriptor"),
        (_thread, "thread"),
        (_child, "process"),
        (_grandchild_without_parent, "process"),
        (_ended_but_not_awaited, "zombie"),
        (_named_segment, "segment"),
        (_mapped_memory, "mapping"),
    ],
)
def test_what_is_left_is_found(
    leave: Callable[[], AbstractContextManager[None]], word: str
) -> None:
    before = Snapshot.take()
    with leave():
        assert any(word in line for line in before.left_for_good(patience_s=0.0))
    assert before.left_for_good() == []


@linux
def test_what_python_itself_keeps_is_not_found() -> None:
    before = Snapshot.take()
    child = multiprocessing.get_context("forkserver").Process(target=int)
    child.start()
    child.join()
    child.close()
    assert before.left_for_good() == []
