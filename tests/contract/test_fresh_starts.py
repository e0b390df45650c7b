"""How fresh workers start: side by side, and without a template where three were lost."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.workers import fresh
from tests.contract.test_fresh import kill
from tests.datasets import Plain


class Alone(Plain):
    """Tells which process made it, and which one started that."""

    def __getitem__(self, index: int) -> Any:
        return os.getpid(), os.getppid()


def test_after_three_lost_templates_each_worker_is_an_interpreter_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader: Any = stoker.DataLoader(
        Alone(200), None, num_workers=1, worker_method="fresh", max_restarts=0, prefetch_factor=1
    )
    iterator = iter(loader)
    templates, made = [], 0
    for _ in range(3):
        parent = os.getpid()
        while parent in (os.getpid(), *templates):
            parent, made = next(iterator)[1], made + 1
        templates.append(parent)
        kill(parent)
    rest = list(iterator)
    assert len(set(templates)) == 3
    assert made + len(rest) == 200
    assert rest[-1][1] == os.getpid()
    assert caplog.text.count("the process that fresh workers are forked from has ended") == 3


class Meeting(Plain):
    """It can only be unpickled when as many processes do so at the same time."""

    def __init__(self, count: int, folder: Path) -> None:
        super().__init__(2)
        self.barrier = multiprocessing.get_context("spawn").Barrier(count)
        self.folder = folder

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state)
        self.barrier.wait(60)
        (self.folder / str(os.getpid())).touch()

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.leaks_allowed("multiprocessing keeps a file for its values")
def test_workers_without_a_template_start_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Were one waited for before the next is started, neither would come up."""
    monkeypatch.setattr(fresh, "has_templates", lambda: False)
    made = stoker.DataLoader(Meeting(2, tmp_path), None, num_workers=2, worker_method="fresh")
    assert list(made) == [0, 1]
    assert len(list(tmp_path.iterdir())) == 2
