"""What the tests of deaths share: batches to compare with, and workers killed at a moment."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from tests.contract.alike import copied
from tests.contract.methods import loader
from tests.datasets import Drawing

FORK = multiprocessing.get_context("fork")


class Once:
    """Does something in the first process that comes to it, and nowhere else.

    With files, so that it works in any kind of worker, and holds no lock when that is killed.
    """

    def __init__(self, times: int = 1) -> None:
        folder = tempfile.mkdtemp(prefix="stoker-once-")
        self._paths = [os.path.join(folder, str(n)) for n in range(times)]
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True).atexit = False

    @property
    def happened(self) -> bool:
        """Whether somebody has come to it."""
        return os.path.exists(self._paths[0])

    def __call__(self, act: Callable[[], Any]) -> None:
        for path in self._paths:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                act()
                return


class Gate:
    """An event that a waiter may die at: one of multiprocessing's waits for the dead."""

    def __init__(self) -> None:
        self._open = Once()

    def set(self) -> None:
        """Lets everybody through."""
        self._open(lambda: None)

    def wait(self, timeout_s: float) -> bool:
        """Waits until `set` was called somewhere; tells whether it was."""
        deadline = time.monotonic() + timeout_s
        while not (there := self._open.happened) and time.monotonic() < deadline:
            time.sleep(0.005)
        return there


def kill_self() -> None:
    """The process ends at once, whatever it holds."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingOnce(Drawing):
    """Draws; the process that reads index `at` first ends by `end`, others read it."""

    def __init__(
        self,
        length: int,
        at: int,
        end: Callable[[], Any] = kill_self,
        times: int = 1,
        wide: int = 1,
    ) -> None:
        super().__init__(length)
        self.at = at
        self.end = end
        self.once = Once(times)
        self.wide = wide

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            self.once(self.end)
        return (torch.full((self.wide,), float(index)), *super().__getitem__(index))


def expected(dataset: Any, **options: Any) -> list[Any]:
    """What an epoch is to be: made in the main process, where nothing dies."""
    dataset = type(dataset)(dataset.length, -1, wide=dataset.wide)
    torch.manual_seed(3)
    return [copied(batch) for batch in loader(dataset, "inline", **options)]


def delivered(made: Any) -> list[Any]:
    """The batches of an epoch of a loader that is about to be used for the first time."""
    torch.manual_seed(3)
    return [copied(batch) for batch in made]
