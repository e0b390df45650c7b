"""Public cases of group B: one slow sample, and the order of batches."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from tests.contract.datasets import HeldBack
from tests.contract.methods import loader, many_workers
from tests.datasets import Plain

FORK = multiprocessing.get_context("fork")


def values(batches: Any) -> list[list[int]]:
    return [[int(x) for x in batch.flatten()] for batch in batches]


class _Split(IterableDataset[int]):
    """0 ... 19 split over two workers; the items over 10 wait for a gate."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for item in range(10 * info.id, 10 * info.id + 10):
            if item > 10:
                assert self.gate.wait(30)
            yield item


def test_c011_a_slow_shard_does_not_stall_the_loop_out_of_order() -> None:
    """The other worker's batches come while one waits, if ``in_order=False``."""
    gate = FORK.Event()
    made = loader(_Split(gate), "fork", 2, batch_size=2, in_order=False, timeout=20)
    iterator = iter(made)
    assert values(next(iterator) for _ in range(5)) == [[i, i + 1] for i in range(0, 10, 2)]
    gate.set()
    assert values(iterator) == [[i, i + 1] for i in range(10, 20, 2)]


def test_c011_order_is_kept_by_default() -> None:
    """In order, the same shards come in turns."""
    gate = FORK.Event()
    gate.set()
    made = values(loader(_Split(gate), "fork", 2, batch_size=2))
    assert made[:4] == [[0, 1], [10, 11], [2, 3], [12, 13]]


class _SlowWorker(Plain):
    """Worker 1 does not get past its first sample until all other batches are made."""

    def __init__(self, length: int) -> None:
        super().__init__(length, (1,))
        self.made = FORK.Semaphore(0)
        self.blocked = FORK.Event()

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None
        if info.id == 1 and not self.blocked.is_set():
            self.blocked.set()
            for _ in range(self.length - 2 * 8):
                assert self.made.acquire(timeout=5)
        self.made.release()
        return super().__getitem__(index)


def test_c012_a_slow_worker_does_not_hold_up_every_second_batch() -> None:
    """Batches go to whoever is free: the slow worker gets few. None is split."""
    made = loader(_SlowWorker(96), "fork", 2, batch_size=8, prefetch_factor=1)
    assert values(made) == [list(range(k, k + 8)) for k in range(0, 96, 8)]


@many_workers
def test_c014_one_slow_batch_leaves_the_other_workers_busy() -> None:
    """Batch 0 waits until the others have made twice the window of four workers."""
    dataset = HeldBack(40, 0, FORK, shape=(1,))
    opener = FORK.Process(target=_open_after, args=(dataset.made, 16, dataset.gate))
    opener.start()
    made = loader(dataset, "fork", 4, batch_size=1, prefetch_factor=2)
    assert values(made) == [[i] for i in range(40)]
    opener.join()
    assert opener.exitcode == 0
    opener.close()


def _open_after(made: Any, count: int, gate: Any) -> None:
    for _ in range(count):
        if not made.acquire(timeout=20):
            raise SystemExit(1)
    gate.set()


def test_c014_what_runs_ahead_is_bounded_by_memory() -> None:
    """Batches of 64 MiB: no more than 256 MiB of them run ahead, past the window."""
    dataset = HeldBack(60, 0, FORK, shape=(4096, 4096))
    made = loader(
        dataset, "fork", 2, batch_size=1, prefetch_factor=1, timeout=1.5, collate_fn=_first
    )
    with pytest.raises(TimeoutError):
        next(iter(made))
    count = 0
    while dataset.made.acquire(timeout=0.05):
        count += 1
    assert 1 <= count <= 4 + 2


def _first(samples: list[torch.Tensor]) -> torch.Tensor:
    return samples[0]


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
def test_c016_order_is_kept_for_any_number_of_workers(num_workers: int) -> None:
    """Of a map-style data set, by default."""
    method = "fork" if num_workers else "inline"
    made = loader(Plain(50, (1,)), method, num_workers, batch_size=3)
    assert [x for batch in values(made) for x in batch] == list(range(50))
