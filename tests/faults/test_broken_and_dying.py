"""Samples that can't be read, in an epoch in which workers die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from tests.contract.alike import assert_same
from tests.datasets import Drawing

FORK = multiprocessing.get_context("fork")


class _Once:
    """Ends the process that asks first, and no other."""

    def __init__(self) -> None:
        self.left = FORK.Semaphore(1)

    def strike(self) -> None:
        if self.left.acquire(block=False):
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Drawing):
    """Reading 10, and 22, each end one worker."""

    def __init__(self, *once: _Once) -> None:
        super().__init__(40)
        self.once = dict(zip((10, 22), once, strict=False))

    def __getitem__(self, index: int) -> Any:
        if index in self.once:
            self.once[index].strike()
        sample = super().__getitem__(index)
        if index in (3, 9) or 20 <= index < 24:
            raise ValueError(f"sample {index} is broken")
        return sample


class Stream(IterableDataset[Any]):
    def __init__(self, once: _Once | None) -> None:
        self.once = once

    def __iter__(self) -> Any:
        self.at = -1
        return self

    def __next__(self) -> Any:
        self.at += 1
        if self.at == 40:
            raise StopIteration
        if self.at == 30 and self.once is not None:
            self.once.strike()
        if self.at in (3, 9) or 20 <= self.at < 24:
            raise ValueError(f"item {self.at} is broken")
        return torch.rand(1), self.at


def read(dataset: Any, policy: Any, workers: int) -> tuple[list[Any], Any]:
    options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
    made = stoker.DataLoader(
        dataset, batch_size=4, seed=3, on_error=policy, num_workers=workers, **options
    )
    batches = list(made)
    told = made.statistics()
    return batches, (told.broken_samples, told.skipped_samples, told.skipped_batches, told.errors)


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_and_counts_are_the_same(policy: Any, workers: int) -> None:
    expected, told = read(Deadly(), policy, 0)
    batches, also_told = read(Deadly(_Once(), _Once()), policy, workers)
    assert_same(batches, expected)
    assert also_told == told


def test_a_stream_is_run_again_with_its_errors() -> None:
    expected, told = read(Stream(None), "skip", 1)
    batches, also_told = read(Stream(_Once()), "skip", 1)
    assert_same(batches, expected)
    assert also_told == told
    assert told[:3] == (6, 6, 1)
