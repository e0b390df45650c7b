"""How one loader is timed, and how contenders take turns."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch.utils.data

from benchmarks.figures import Case, Row, Timing

Loader = torch.utils.data.DataLoader[Any]
LoaderClass = Callable[..., Loader]
T = TypeVar("T")


# Warnings of both loaders that say nothing new here: the counts are meant, and so is pin_memory.
EXPECTED_WARNINGS = (
    "This DataLoader will create",
    "'pin_memory' argument is set as true but no accelerator is found",
)


@dataclass(frozen=True)
class Window:
    """The part of an epoch that is timed: after ``warm_up`` batches, for at least ``batches``.

    It goes on until ``seconds`` have passed, too. It closes while the workers are still busy, so
    that neither their start nor the idle end of an epoch counts. Where the time between batches
    varies much, leave ``seconds`` at 0: a number of batches fixed beforehand has no bias. Where
    workers finish together, count whole rounds: ``batches`` is then a multiple of ``round_of``.
    """

    warm_up: int
    batches: int
    seconds: float = 0.0
    round_of: int = 1

    def scaled(self, factor: float) -> Window:
        rounds = max(1, round(self.batches * factor / self.round_of))
        return replace(self, batches=rounds * self.round_of, seconds=self.seconds * factor)


def time_window(loader: Loader, window: Window) -> Timing:
    """Times the steady rate of a fresh iterator; the consumer does nothing."""
    began = time.perf_counter()
    batches = iter(loader)
    batch = next(batches)
    first_batch_s = time.perf_counter() - began
    for _ in range(window.warm_up - 1):
        batch = next(batches)
    count, took = _count(batches, window)
    del batch, batches
    return Timing(count / took, first_batch_s=first_batch_s)


def _count(batches: Iterator[Any], window: Window) -> tuple[int, float]:
    count = 0
    began = now = time.perf_counter()
    # Held until the next one is there, as a loop's variable is.
    batch = None
    while count < window.batches or now - began < window.seconds:
        try:
            batch = next(batches)
        except StopIteration:
            raise RuntimeError(
                f"the epoch ended {count} batches into a window of {window}: the work is too short"
            ) from None
        count += 1
        now = time.perf_counter()
    del batch
    return count, now - began


def time_epoch(make: Callable[[], Loader], warm_up: int) -> Timing:
    """Times one whole epoch, and the part of it that follows the first ``warm_up`` batches."""
    loader = make()
    total = len(loader)
    if total <= warm_up:
        raise RuntimeError(f"an epoch of {total} batches is too short for a warm-up of {warm_up}")
    began = warm = time.perf_counter()
    first_batch_s = 0.0
    for number, _ in enumerate(loader, start=1):
        if number == 1:
            first_batch_s = time.perf_counter() - began
        if number == warm_up:
            warm = time.perf_counter()
    ended = time.perf_counter()
    return Timing(
        steady_per_s=(total - warm_up) / (ended - warm),
        whole_per_s=total / (ended - began),
        first_batch_s=first_batch_s,
    )


def take_turns(
    case: Case, repeats: int, advance: Callable[[str], None]
) -> tuple[dict[str, list[Timing]], list[Row]]:
    """Measures every contender once a repeat, each repeat beginning with another of them.

    Args:
        case: what to measure.
        repeats: how often.
        advance: called with the contender's name before each measurement.
    """
    names = list(case.contenders)
    timings: dict[str, list[Timing]] = {name: [] for name in names}
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            advance(name)
            timings[name].append(quietly(case.contenders[name]))
    return timings, case.rows(timings)


def quietly(measure: Callable[[], T]) -> T:
    """Calls ``measure`` with no garbage of what came before, and without expected warnings."""
    gc.collect()
    with warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        return measure()
