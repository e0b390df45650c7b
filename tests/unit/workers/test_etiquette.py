"""What is set, and what is left alone; each time in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
import torch

from stoker.workers.etiquette import look_around, quiet_fork, settle
from stoker.workers.one_thread import OneThread
from tests.unit.workers.in_process import in_process

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Library:
    """Stands for numexpr or OpenCV in a worker."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def tell(self, threads: int) -> None:
        self.calls.append(threads)


class OpenCv(Library):
    setNumThreads = Library.tell


class Numexpr(Library):
    set_num_threads = Library.tell


def libraries() -> dict[str, int]:
    infos = threadpoolctl.threadpool_info()
    return {info["filepath"]: info["num_threads"] for info in infos}


def state() -> tuple[object, ...]:
    return torch.get_num_threads(), libraries(), dict(os.environ)


def _settled_with_three(forked: bool) -> dict[str, Any]:
    """Settles in a process that has three threads for everything."""
    threadpoolctl.threadpool_limits(3)
    torch.set_num_threads(3)
    settle(forked=forked)
    return {
        "torch": torch.get_num_threads(),
        "libraries": set(libraries().values()),
        "variables": {os.environ.get(name) for name in VARIABLES},
        "tokenizers": os.environ.get("TOKENIZERS_PARALLELISM"),
    }


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_every_library_has_one_thread(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    found = in_process(method, _settled_with_three, method != "spawn")
    assert found["torch"] == 1
    assert found["libraries"] <= {1}
    assert found["variables"] == {"1"}


@forks
@pytest.mark.parametrize(("before", "after"), [(None, "false"), ("true", "true")])
def test_tokenizers_is_told_unless_somebody_has(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if before is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    assert in_process("fork", _settled_with_three, True)["tokenizers"] == after


def _with(module: str, library: Any, forked: bool) -> Any:
    sys.modules[module] = library
    settle(forked=forked)
    return library


@forks
def test_numexpr() -> None:
    assert in_process("fork", _with, "numexpr", Numexpr(), True).calls == [1]


@forks
@pytest.mark.parametrize(("forked", "told"), [(False, [1]), (True, [0])])
def test_opencv_is_turned_off_after_a_fork_and_nothing_else(forked: bool, told: list[int]) -> None:
    assert in_process("fork", _with, "cv2", OpenCv(), forked).calls == told


@forks
def test_modules_that_only_share_a_name_are_no_matter() -> None:
    for module in ("cv2", "numexpr"):
        assert in_process("fork", _with, module, Library(), True).calls == []


@forks
def test_the_parent_is_as_it_was() -> None:
    before = state()
    look_around()
    with quiet_fork():
        in_process("fork", _settled_with_three, True)
    assert state() == before


def test_quiet_fork_puts_the_variable_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    with pytest.raises(KeyError), quiet_fork():
        {"": ""}["nothing"]
    with quiet_fork():
        assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert "TOKENIZERS_PARALLELISM" not in os.environ
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    with quiet_fork():
        assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def _threads_started() -> int:
    tasks = Path("/proc/self/task")
    torch.set_num_threads(1)  # a pool of torch's own, as large as the parent's, starts here
    before = len(list(tasks.iterdir()))
    settle(forked=True)
    np.ones((512, 512)) @ np.ones((512, 512))
    return len(list(tasks.iterdir())) - before


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_thread_is_started_by_setting_how_many_there_may_be() -> None:
    assert in_process("fork", _threads_started) == 0


def _libraries_after_a_look() -> tuple[set[int], float]:
    settle(forked=True)
    matrix = np.ones((64, 64))
    return set(libraries().values()), float((matrix @ matrix).sum())


@forks
def test_what_the_parent_has_found_is_used() -> None:
    look_around()
    assert in_process("fork", _libraries_after_a_look) == ({1}, 64.0**3)


def _left_alone() -> int:
    settle(forked=True)
    torch.set_num_threads(2)  # as worker_init_fn might
    one = OneThread()
    one.begin()
    try:
        return torch.get_num_threads()
    finally:
        one.end()


@forks
def test_what_is_set_afterwards_stays() -> None:
    assert in_process("fork", _left_alone) == 2
