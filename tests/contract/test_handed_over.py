"""What multiprocessing and torch share between processes, held by a data set."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker.errors import NotPicklable
from stoker.workers import fresh, template
from tests.datasets import Plain

_LENGTH = 20
_METHODS = ("fork", "fresh", "no template", "spawn", "forkserver")


class Sharing(Plain):
    """Each sample is counted, or told, in every way in which processes can share something."""

    def __init__(self, context: Any, sent_to: Any) -> None:
        super().__init__(_LENGTH)
        self.lock, self.unlocked = context.Lock(), context.RawValue("i", 0)
        self.locks = [context.RLock(), context.Semaphore(2), context.BoundedSemaphore(2)]
        self.condition, self.barrier = context.Condition(), context.Barrier(3)
        self.locked, self.array = context.Value("i", 0), context.Array("i", _LENGTH)
        self.event = context.Event()
        self.queue, self.simple, self.joinable = (
            context.Queue(), context.SimpleQueue(), context.JoinableQueue(),
        )  # fmt: skip
        self.sent_to = sent_to
        self.tensor = torch.zeros(_LENGTH).share_memory_()
        self.part = self.tensor[5:]

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            self.unlocked.value += 1
        with self.locked.get_lock():
            self.locked.value += 1
        for lock in (*self.locks, self.condition):
            assert lock.acquire(timeout=20)
            lock.release()
        self.array[index] = index
        for queue in (self.queue, self.simple, self.joinable):
            queue.put(index)
        self.sent_to.send(index)
        self.tensor[index] += index
        if index >= 5:
            assert self.part[index - 5] == index  # Two views of one memory.
        return self.event.is_set(), self.barrier.parties

    def close(self) -> None:
        self.sent_to.close()
        self.simple.close()
        for queue in (self.queue, self.joinable):
            queue.close()
            queue.join_thread()


@pytest.fixture(params=_METHODS)
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param != "no template":
        return request.param
    monkeypatch.setattr(fresh, "has_templates", lambda: False)
    return "fresh"


@pytest.fixture
def ends() -> Iterator[Any]:
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.leaks_allowed("multiprocessing keeps a file for its values")
def test_everything_that_processes_share_is_shared_by_workers(method: str, ends: Any) -> None:
    dataset = Sharing(multiprocessing.get_context("spawn"), ends[1])
    dataset.event.set()
    made = list(stoker.DataLoader(dataset, None, num_workers=2, worker_method=method))
    assert made == [[True, 3]] * _LENGTH
    assert (dataset.unlocked.value, dataset.locked.value) == (_LENGTH, _LENGTH)
    every = list(range(_LENGTH))
    assert list(dataset.array) == every
    assert dataset.tensor.tolist() == every
    for queue in (dataset.queue, dataset.simple, dataset.joinable):
        assert sorted(queue.get() for _ in every) == every
    assert sorted(ends[0].recv() for _ in every) == every
    dataset.close()


@pytest.mark.leaks_allowed("torch keeps its process that takes names away")
def test_memory_that_torch_shares_by_name_is_there_for_worker_after_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each epoch starts workers anew, and each unpickles what was pickled once."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        dataset = Counting()
        for _ in range(2):
            list(stoker.DataLoader(dataset, None, num_workers=1, worker_method="fresh"))
        assert dataset.tensor.tolist() == [2.0] * _LENGTH
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


class Counting(Plain):
    def __init__(self) -> None:
        super().__init__(_LENGTH)
        self.tensor = torch.zeros(_LENGTH).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.tensor[index] += 1
        return index


@pytest.mark.parametrize("opens", [True, False])
def test_a_template_forks_with_what_it_was_handed_and_not_with_what_it_opened(
    tmp_path: Path, opens: bool
) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1))
    dataset = Asking(opens, path)
    forked = list(stoker.DataLoader(dataset, None, num_workers=2, worker_method="fresh"))
    assert forked == [not opens] * _LENGTH


class Asking(Counting):
    """May open a file when it is unpickled; tells whether its process is a copy of a template."""

    def __init__(self, opens: bool, path: Path) -> None:
        super().__init__()
        self.opens, self.path = opens, path
        self.value = multiprocessing.get_context("spawn").Value("i")

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)
        self.file = self.path.open("rb") if self.opens else None

    def __getitem__(self, index: int) -> Any:
        frame: Any = sys._getframe()
        while frame is not None and frame.f_code is not template.run_alone.__code__:
            frame = frame.f_back
        return frame is None


@pytest.mark.parametrize("name", ["Lock", "Event", "Barrier", "Queue", "Value"])
def test_a_lock_for_forked_processes_only_is_told_of_with_what_to_do(name: str) -> None:
    dataset = Plain(4)
    made = getattr(multiprocessing.get_context("fork"), name)
    dataset.shared = made(*{"Barrier": (2,), "Value": ("i",)}.get(name, ()))  # type: ignore
    with pytest.raises(NotPicklable, match=r"dataset.shared, to be one of multiproc"):
        list(stoker.DataLoader(dataset, num_workers=1, worker_method="fresh"))
