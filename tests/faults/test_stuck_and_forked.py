"""What a newcomer ran into: a worker stuck for many epochs, and a copied iterator."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from tests.datasets import Drawing, Plain

FORK = multiprocessing.get_context("fork")


class _Stuck(Plain):
    def __init__(self, length: int, at: int, gate: Any) -> None:
        super().__init__(length)
        self.at, self.gate = at, gate

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            self.gate.wait(100)
        return super().__getitem__(index)


def test_epochs_begin_however_long_a_worker_is_stuck() -> None:
    """Each epoch is left after its first batch; what the stuck worker is told has to wait."""
    dataset = _Stuck(100, 1, FORK.Event())
    loader = stoker.DataLoader(
        dataset, num_workers=2, persistent_workers=True, timeout=0.3, multiprocessing_context="fork"
    )
    for _ in range(600):
        iterator = iter(loader)
    with pytest.raises(TimeoutError):
        list(iterator)
    del iterator, loader


def test_a_copied_iterator_says_so_and_the_original_goes_on() -> None:
    iterator = iter(stoker.DataLoader(Plain(20), num_workers=1, multiprocessing_context="fork"))
    next(iterator)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as told:
        assert "forked copy" in told.read()
    assert len(list(iterator)) == 19


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="looks into /proc")
def test_slots_of_messages_that_were_never_sent_are_used_again() -> None:
    """Index lists of over 4 KiB wait in line, and are dropped when the epoch is left."""
    loader = stoker.DataLoader(
        Plain(20_000, (16,)),
        batch_size=2_000,
        num_workers=1,
        prefetch_factor=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for _ in range(30):
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
    with open("/proc/self/maps") as maps:
        assert maps.read().count("memfd:stoker") <= 20
    del iterator, loader


class _Meeting(Drawing):
    """Knows whether two threads were ever inside at once; each waits a moment for another."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.inside, self.met = 0, threading.Event()

    def __getitem__(self, index: int) -> Any:
        self.inside += 1
        if self.inside > 1:
            self.met.set()
        self.met.wait(0.05)
        self.inside -= 1
        return super().__getitem__(index)


def test_in_process_one_thread_at_a_time_makes_a_batch() -> None:
    """They lend the same global generators."""
    dataset = _Meeting(3)
    before = torch.get_rng_state(), str(np.random.get_state())
    threads = [
        threading.Thread(target=list, args=(stoker.DataLoader(dataset, seed=seed),))
        for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not dataset.met.is_set()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]
