"""Public cases of group Q: too many threads, and too few CPUs."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
import torch
from torch.utils.data import Dataset

import stoker
from stoker.host.affinity import affinity_finding, worker_finding
from stoker.host.cpus import mask_now
from stoker.workers import clocks
from stoker.workers.etiquette import look_around, quiet_fork, settle
from tests.unit.workers.in_process import in_process

_SPIN_S = 0.1  # Threads that had work spin for up to 0.03 s before they sleep.
METHODS = multiprocessing.get_all_start_methods()
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def settings() -> tuple[object, ...]:
    """All that a worker's etiquette could spoil in its parent."""
    infos = threadpoolctl.threadpool_info()
    found = sorted((info["filepath"], info["num_threads"]) for info in infos)
    return torch.get_num_threads(), found, dict(os.environ)


def ran_ns() -> dict[str, int]:
    """CPU time of each thread of this process."""
    tasks = Path("/proc/self/task")
    return {t.name: int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()}


def products(library: str) -> int:
    """Threads that took part in large products."""
    ones: Any = np.ones((512, 512)) if library == "numpy" else torch.ones(512, 512)
    before = ran_ns()
    for _ in range(8):
        ones @ ones
    after = ran_ns()
    return sum(ns - before.get(task, 0) > 500_000 for task, ns in after.items())


def settled_products(library: str, forked: bool) -> dict[str, int]:
    settle(forked=forked)
    infos = threadpoolctl.threadpool_info()
    return {
        "took_part": products(library),
        "torch": torch.get_num_threads(),
        "libraries": max((info["num_threads"] for info in infos), default=1),
    }


@linux
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_c147_products_in_a_worker_use_one_thread(method: str, library: str) -> None:
    before = settings()
    look_around()
    with quiet_fork():
        found = in_process(method, settled_products, library, method != "spawn")
    assert settings() == before
    assert found == {"took_part": 1, "torch": 1, "libraries": 1}


class Products(Dataset[int]):
    """Its samples are the number of threads that took part in products of 512 × 512."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return products("numpy" if index % 2 else "torch")


@linux
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("num_workers", [0, 8])
def test_c147_eight_workers_or_none_use_one_thread_each(num_workers: int) -> None:
    before = settings()
    time.sleep(_SPIN_S)
    method = "fork" if num_workers and "fork" in METHODS else None
    made: Any = stoker.DataLoader(
        Products(), num_workers=num_workers, multiprocessing_context=method
    )
    assert [int(batch) for batch in made] == [1] * 16
    assert settings() == before


def unsettled_products(library: str) -> int:
    threadpoolctl.threadpool_limits(2)
    torch.set_num_threads(2)
    return products(library)


@linux
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_c147_two_threads_are_seen_where_two_take_part(library: str) -> None:
    assert in_process("spawn", unsettled_products, library) == 2


def _sums() -> float:
    settle(forked=True)
    return float((torch.ones(1_000_000) + 1).sum())


def _forks_after_openmp() -> tuple[list[float], bool]:
    """A parent that has used OpenMP's threads, and its workers."""
    torch.set_num_threads(2)
    (torch.ones(1_000_000) + 1).sum()
    before = settings()
    found = [in_process("fork", _sums) for _ in range(2)]
    (torch.ones(1_000_000) + 1).sum()
    return found, settings() == before


def _as_no_daemon() -> tuple[list[float], bool]:
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    return _forks_after_openmp()


@pytest.mark.skipif("fork" not in METHODS, reason="no fork")
def test_c147_a_fork_after_openmp_was_used_does_not_hang() -> None:
    """With more than one thread for OpenMP in the copy it does."""
    found, as_before = in_process("spawn", _as_no_daemon)
    assert found == [2_000_000.0] * 2
    assert as_before


several = pytest.mark.skipif(len(mask_now() or ()) < 2, reason="has no CPU to lose")


def _shrinks_its_mask() -> tuple[str | None, str | None, str | None]:
    first = mask_now() or frozenset()
    untouched = affinity_finding()
    os.sched_setaffinity(0, {min(first)})
    shrunk, inside = affinity_finding(), in_process("fork", mask_now)
    beside = worker_finding(0, first, inside)
    os.sched_setaffinity(0, first)
    return untouched or affinity_finding(), shrunk, beside


def _shrinks_as_no_daemon() -> tuple[str | None, str | None, str | None]:
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    return _shrinks_its_mask()


@linux
@several
def test_c149_an_affinity_that_shrank_after_the_import_is_told() -> None:
    untouched, shrunk, worker = in_process("spawn", _shrinks_as_no_daemon)
    count = len(mask_now() or ())
    assert untouched is None
    assert shrunk is not None
    assert f"1 of the {count} CPUs" in shrunk
    assert "os.sched_setaffinity(0, " in shrunk
    assert worker is not None
    assert worker.startswith("worker 0 may run on 1 of ")


def _waited() -> float | None:
    """Spins until it has waited for a CPU, and how long it did."""
    deadline = time.monotonic() + 20
    first = clocks.cpu_wait_s()
    while first is not None and time.monotonic() < deadline:
        waited = (clocks.cpu_wait_s() or 0.0) - first
        if waited > 0.01:
            return waited
    return None


def _spins_until_told(connection: Any) -> None:
    while not connection.poll():
        pass


def _two_on_one_cpu() -> float | None:
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    os.sched_setaffinity(0, {min(mask_now() or {0})})
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    other = context.Process(target=_spins_until_told, args=(theirs,), daemon=True)
    other.start()
    try:
        return _waited()
    finally:
        ours.send("stop")
        other.join()


@linux
def test_c149_workers_that_share_one_cpu_see_that_they_wait() -> None:
    if clocks.cpu_wait_s() is None:
        pytest.skip("this kernel keeps no account of waiting")
    clocks.close()
    waited = in_process("spawn", _two_on_one_cpu)
    assert waited is not None
    assert waited > 0.01
