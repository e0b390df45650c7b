"""What the tests of ``num_workers="auto"`` share: a governor that stands still, and short words."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

import stoker
from stoker.feed import adaptive
from stoker.tuning import account
from stoker.tuning.decision import Decision
from stoker.tuning.governor import Least
from tests.contract.alike import copied
from tests.contract.test_resizing import all_come_up

FORK = multiprocessing.get_context("fork")


class Still:
    """A governor that wants what there is; tests change the number themselves."""

    def __init__(self, least: Least, *args: Any, known: Any = None) -> None:
        self.least = least.workers
        self.decisions: list[Decision] = args[-2]
        self.changed: Callable[[int], None] = lambda workers: None

    def next_window(self) -> tuple[int, float]:
        return 1, 0.0

    def begin(self, batches_left: int | None) -> None:
        return None

    def review(self, window: Any, batches_left: int | None) -> None:
        return None

    def performed(self, workers: int) -> None:
        self.changed(workers)

    def came_up(self, workers: int, seconds: float) -> None:
        pass

    def refused(self, why: str, most: int = 0) -> None:
        self.decisions.append(Decision(0, most, why))


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "LoaderGovernor", Still)
    monkeypatch.setattr(adaptive, "_GROW_S", math.inf)  # all at once, however busy the machine


needs_still = pytest.mark.usefixtures("still")


def loader(dataset: Any, **options: Any) -> Any:
    """A loader that chooses its number; its workers are forked."""
    return stoker.DataLoader(dataset, multiprocessing_context="fork", **options)


def begun(made: Any, workers: int = 2) -> tuple[Any, Any]:
    """A new iterator with so many workers that have come up, and its first batch."""
    iterator = iter(made)
    first = copied(next(iterator))
    iterator.feed.resize(workers, first)
    all_come_up(iterator)
    return iterator, first


def epoch_with(made: Any, workers: int = 2) -> list[Any]:
    """The batches of an epoch that had so many workers from its second batch on."""
    iterator, first = begun(made, workers)
    return [first, *map(copied, iterator)]


def pids(iterator: Any) -> list[int]:
    return sorted(worker.pid for worker in iterator._workers)


def marks(batches: list[Any]) -> set[int]:
    return {int(mark) for batch in batches for mark in batch[1]}


def firsts(batches: list[Any]) -> list[int]:
    """The numbers of samples, of batches whose samples begin with their number."""
    return [int(index) for batch in batches for index in batch[0]]


def reasons(made: Any) -> list[str]:
    return [decision.reason for decision in made.statistics().decisions]
