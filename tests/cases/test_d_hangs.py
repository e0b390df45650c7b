"""Hangs whose cause nobody could see."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading

import pytest
import torch

import stoker
from stoker.feed import patience
from tests.datasets import Plain

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts workers by fork")
FORK = multiprocessing.get_context("fork")
_LOCK = threading.Lock()


class Locked(Plain):
    """Needs a lock that the main process held when it forked, until the gate opens."""

    def __init__(self, length: int, gate: multiprocessing.synchronize.Event) -> None:
        super().__init__(length)
        self.gate = gate

    def __getitem__(self, index: int) -> torch.Tensor:
        while not self.gate.is_set():
            if _LOCK.acquire(timeout=0.1):
                _LOCK.release()
                break
        return super().__getitem__(index)


def test_c029_without_a_time_out_each_worker_is_shown_with_its_batch_and_its_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "LEAST_S", 0.4)
    monkeypatch.setattr(patience, "FIRST_S", 0.4)
    gate, told = FORK.Event(), list[str]()

    def hear(record: logging.LogRecord) -> bool:
        told.append(record.getMessage())
        if "waiting for" in told[-1]:
            gate.set()
        return True

    log = logging.getLogger("stoker")
    log.addFilter(hear)
    try:
        with _LOCK:
            iterator = iter(
                stoker.DataLoader(Locked(6, gate), num_workers=2, multiprocessing_context="fork")
            )
        assert len(list(iterator)) == 6
    finally:
        log.removeFilter(hear)
    text = next(text for text in told if text.startswith("waiting for batch 0"))
    assert text.count("(pid ") == 2
    assert text.count("in __getitem__") == 2
    assert "sample indices [0]" in text
    assert "a lock that was held during the fork" in text
