"""An epoch in which workers are killed at random moments: is it the same, and what does it cost?"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import stoker
from benchmarks.faults.held import Held, held_now
from benchmarks.faults.works import Work, checksum

SEED = 20_240_229
LOST_TARGET_S = 0.3
_GAPS_S = (0.0, 0.05)
_SETTLED_S = 3.0


@dataclass(frozen=True)
class Plan:
    """What is done.

    Attributes:
        batches: In the epoch.
        kills: Workers killed in it.
        workers: Workers at a time.
        batch_size: Samples in a batch.
        width: Numbers in a sample.
        sample_s: How long one takes.
        options: Further arguments of the loader.
    """

    batches: int
    kills: int
    workers: int = 2
    batch_size: int = 4
    width: int = 4096
    sample_s: float = 0.0005
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of it; times in seconds.

    Attributes:
        plan: What was done.
        same: Whether every batch is what it is without a death.
        killed: Workers that were killed.
        replaced: Workers that the loader replaced.
        calm_s: The epoch without a death.
        epoch_s: The epoch with them.
        left: What there was afterwards more than before.
    """

    plan: Plan
    same: bool
    killed: int
    replaced: int
    calm_s: float
    epoch_s: float
    left: Held

    @property
    def lost_s(self) -> float:
        """Time that a death cost, making its batches again included."""
        return max(0.0, self.epoch_s - self.calm_s) / self.killed if self.killed else 0.0

    @property
    def is_good(self) -> bool:
        """Whether it is what was promised."""
        left = self.left
        nothing = not (left.descriptors or left.segments or left.threads or left.processes)
        all_killed = self.killed == self.plan.kills
        return self.same and all_killed and nothing and self.lost_s < LOST_TARGET_S


class _Killer(threading.Thread):
    """Kills workers of this process, one at a time, at random moments.

    The next is not killed before the one before was replaced, what it was at is made, and a
    little time has passed: a batch that has ended two workers is rightly an error.
    """

    def __init__(self, made: Any, kills: int) -> None:
        super().__init__(name="killer", daemon=True)
        self._made = made
        self._kills = kills
        self._chance = random.Random(SEED)
        self.iterator: Any = None
        self.over = threading.Event()
        self.killed = 0

    def run(self) -> None:
        while self.killed < self._kills and not self.over.is_set():
            self.over.wait(self._chance.uniform(*_GAPS_S))
            alive = [worker.pid for worker in list(self.iterator._workers) if worker.pid]
            if not alive or self.over.is_set():
                continue
            feed, replaced = self.iterator.feed, self._made._account.restarts.total
            try:
                os.kill(self._chance.choice(alive), signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.killed += 1
            while self._made._account.restarts.total == replaced or feed.has_suspects:
                if self.over.wait(0.002):
                    return


def _epoch(plan: Plan, kills: int) -> tuple[list[int], float, int, Any]:
    """Checksums of the batches, seconds, workers killed, and the loader's statistics."""
    dataset = Work(plan.batches * plan.batch_size, plan.sample_s, plan.width)
    made = stoker.DataLoader(
        dataset,
        batch_size=plan.batch_size,
        shuffle=True,
        num_workers=plan.workers,
        multiprocessing_context="fork",
        seed=SEED,
        max_restarts=10 * kills,
        **plan.options,
    )
    killer = _Killer(made, kills)
    began = time.perf_counter()
    iterator = iter(made)
    killer.iterator = iterator
    killer.start()
    try:
        sums = [checksum(batch) for batch in iterator]
        spent_s = time.perf_counter() - began
    finally:
        killer.over.set()
        killer.join()
    return sums, spent_s, killer.killed, made.statistics()


def run(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """An epoch in the main process, one with workers in peace, and one under fire."""
    torch.set_num_threads(1)
    _epoch(Plan(8, 1, plan.workers, options=plan.options), 0)  # What stays for good is there.
    before = held_now()
    tell("without a death")
    expected, calm_s, _, _ = _epoch(plan, 0)
    tell(f"with {plan.kills:,} of them")
    sums, epoch_s, killed, statistics = _epoch(plan, plan.kills)
    _wait_until_settled(before)
    return Outcome(
        plan,
        same=sums == expected,
        killed=killed,
        replaced=statistics.replaced,
        calm_s=calm_s,
        epoch_s=epoch_s,
        left=held_now().above(before),
    )


def _wait_until_settled(before: Held) -> None:
    deadline = time.monotonic() + _SETTLED_S
    while held_now().processes > before.processes and time.monotonic() < deadline:
        time.sleep(0.05)
