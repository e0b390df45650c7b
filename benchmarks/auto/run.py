"""Runs a loader with a consumer: until it has settled, or for one steady window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.auto.consumers import Consumer
from benchmarks.auto.figures import Change, Settling
from benchmarks.auto.plan import Plan
from benchmarks.measure import Loader
from benchmarks.settings import Data
from stoker import DataLoader

_WARM_UP_S = 0.25
_LOOK_S = 0.1


@dataclass(frozen=True)
class Stretch:
    batches: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.batches / self.seconds


def endless(loader: Loader) -> Iterator[Any]:
    """One epoch after the other."""
    while True:
        yield from loader


def run(
    batches: Iterator[Any],
    step: Callable[[], object],
    seconds: float,
    least: int = 1,
    round_of: int = 1,
) -> Stretch:
    """Takes batches for at least so long, and so many, and whole rounds of them."""
    count = 0
    began = now = time.perf_counter()
    for _batch in batches:  # Held until the next one is there.
        step()
        count += 1
        now = time.perf_counter()
        if now - began >= seconds and count >= least and count % round_of == 0:
            break
    return Stretch(count, now - began)


def steady(loader: Loader, consumer: Consumer, plan: Plan) -> Stretch:
    """Times a window of an epoch that begins now, after a warm-up."""
    batches = endless(loader)
    workers = int(loader.num_workers)
    warm_up_s = _WARM_UP_S if workers else 0.0
    run(batches, consumer.step, warm_up_s, least=max(plan.warm_up, workers + 1))
    round_of = max(1, workers) if plan.rounds else 1
    return run(batches, consumer.step, plan.window_s, round_of=round_of)


def fixed_loader(data: Data, workers: int) -> DataLoader[Any]:
    # Where the epochs are short, a window has many of them: workers stay, as auto's do.
    return DataLoader(
        data.samples, num_workers=workers, persistent_workers=workers > 0, **data.arguments
    )


class AutoRun:
    """A loader that chooses its number of workers, from its first batch on."""

    def __init__(self, data: Data, consumer: Consumer) -> None:
        self.loader: DataLoader[Any] = DataLoader(data.samples, **data.arguments)
        self._consumer = consumer
        self._began: float | None = None
        self._batches = endless(self.loader)

    @property
    def workers(self) -> int:
        """How many there are now."""
        return int(self.loader.num_workers)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first epoch began, as `Change.at_s` counts; 0 before."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def changes(self) -> list[Change]:
        return [
            Change(told.at_s, told.batch, told.before, told.workers, told.reason)
            for told in self.loader.statistics().decisions
            if told.before != told.workers
        ]

    def settle(self, plan: Plan) -> Settling:
        """Runs until nothing has been changed for a while.

        Times and batches are those since the call.
        """
        began = quiet_since = self.elapsed_s
        known, batches = len(self.changes()), self.loader.statistics().batches
        now = began
        while now - began < plan.most_s and (
            now - quiet_since < plan.quiet_s or now - began < plan.least_s
        ):
            workers = self.workers
            self.go_on(_LOOK_S)
            now = self.elapsed_s
            if self.workers != workers:
                quiet_since = now
        changes = self.changes()[known:]
        return Settling(
            workers=self.workers,
            settled_s=changes[-1].at_s - began if changes else 0.0,
            settled_batches=changes[-1].batch - batches if changes else 0,
            changes=changes,
            watched_s=now - began,
        )

    def go_on(self, seconds: float) -> None:
        """Takes more batches of the same epoch."""
        self._began = self._began or time.perf_counter()
        run(self._batches, self._consumer.step, seconds)

    def steady(self, plan: Plan) -> Stretch:
        """Times a window of a new epoch, as for a fixed number of workers."""
        self._batches = iter(())  # Leaves the epoch; the workers stay.
        return steady(self.loader, self._consumer, plan)
