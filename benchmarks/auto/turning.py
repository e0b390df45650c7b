"""A work that turns ten times dearer in the middle of an epoch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import torch.utils.data

from benchmarks.auto.consumers import CONSUMERS, Compute
from benchmarks.auto.contest import Setup, contest
from benchmarks.auto.extras import Asked
from benchmarks.auto.figures import (
    LEAST_SHARE,
    SETTLED_S,
    Contest,
    Finding,
    Settling,
    settled_missed,
)
from benchmarks.auto.plan import Plan
from benchmarks.auto.run import AutoRun
from benchmarks.measure import quietly
from benchmarks.settings import Data

CONSUMER = CONSUMERS["sleep5"]
LENGTH = 10_000_000
TURNED_S = 8.0  # to see a change that comes too late, too
CPU_PLAN = Plan((0, 1, 2, 3), window_s=1.0)
SLEEPING_PLAN = Plan((0, 1, 2, 3, 4, 6), window_s=1.0)


class Turning(torch.utils.data.Dataset[int]):
    """A sample is dear once a file exists, in every process at the same time."""

    def __init__(
        self, turned: Path, cheap: Callable[[], object], dear: Callable[[], object]
    ) -> None:
        self._turned = turned
        self._cheap = cheap
        self._dear = dear

    def __getitem__(self, index: int) -> int:
        if self._turned.exists():
            self._dear()
        else:
            self._cheap()
        return index

    def __len__(self) -> int:
        return LENGTH


def turn(asked: Asked) -> list[Finding]:
    """How soon the number of workers fits again, and how well."""
    return [
        _turn(asked, "computes 0.3, then 3 ms a batch", Compute(0.0003), Compute(0.003), CPU_PLAN),
        _turn(
            asked,
            "sleeps 1.5, then 15 ms a batch",
            partial(sleep, 0.0015),
            partial(sleep, 0.015),
            SLEEPING_PLAN,
        ),
    ]


def _turn(
    asked: Asked,
    title: str,
    cheap: Callable[[], object],
    dear: Callable[[], object],
    plan: Plan,
) -> Finding:
    plan = plan.scaled(asked.scale)
    with tempfile.TemporaryDirectory() as folder:
        turned = Path(folder) / "turned"
        data = Data(title, Turning(turned, cheap, dear), {"batch_size": 1})
        setup = Setup(data, CONSUMER, plan, asked.rounds, asked.tell)
        auto = AutoRun(data, CONSUMER)
        asked.tell("settles")
        before = quietly(lambda: auto.settle(plan))
        turned.touch()
        asked.tell("settles again")
        after = auto.settle(replace(plan, least_s=TURNED_S))
        return _finding(title, before, after, contest(setup, auto))


def _finding(title: str, before: Settling, after: Settling, seen: Contest) -> Finding:
    facts: dict[str, Any] = {
        "before": asdict(before),
        "after": asdict(after),
        "contest": asdict(seen),
        "share": seen.share,
    }
    missed = settled_missed(after)
    if seen.share < LEAST_SHARE:
        missed.insert(0, f"rate {seen.share:.0%}")
    return Finding(
        f"turns: {title}, consumer {CONSUMER.title}",
        f"{before.workers} → {after.workers} workers, the last change {after.settled_s:.1f} s "
        f"after the turn; then {seen.share:.0%} of the best fixed ({seen.best})",
        f"{SETTLED_S:g} s, {LEAST_SHARE:.0%}",
        missed,
        facts,
    )
