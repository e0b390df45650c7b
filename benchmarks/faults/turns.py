"""Iterators begun and stopped again and again, at every stage of an epoch: does anything grow?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import stoker
from benchmarks.faults.held import Held, held_now
from benchmarks.faults.works import Stream, Work

_BATCH_SIZE, _BATCHES, _WIDTH = 2, 6, 8192
STAGES = (
    "not begun",
    "begun",
    "first batch",
    "in the middle",
    "last batch",
    "over",
    "after its end",
    "an error",
    "a batch kept",
)
_GROWTH_MIB = 16.0
_SETTLE_S = 3.0


class Failing(Work):
    """Its fourth batch is an error."""

    def __getitem__(self, index: int) -> Any:
        if index == 3 * _BATCH_SIZE:
            raise ValueError("broken")
        return super().__getitem__(index)


@dataclass(frozen=True)
class Grown:
    """What there was after many turns more than after a few.

    Attributes:
        turns: How many iterators.
        seconds: How long all of them took.
        left: The difference.
    """

    turns: int
    seconds: float
    left: Held

    @property
    def is_good(self) -> bool:
        """Whether nothing has grown."""
        left = self.left
        nothing = not any((left.descriptors, left.segments, left.threads, left.processes))
        return nothing and left.memory_mib < _GROWTH_MIB


def _loaders(every: int) -> Iterator[tuple[Any, bool]]:
    """Loaders of every kind, or every so manieth, and whether each fails in its epoch."""
    samples = _BATCHES * _BATCH_SIZE
    works: list[tuple[Any, bool]] = [
        (Work(samples, 0.0, _WIDTH), False),
        (Stream(samples, _WIDTH), False),
        (Failing(samples, 0.0, _WIDTH), True),
    ]
    kinds: list[dict[str, Any]] = [
        {"num_workers": 1},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 0},
        {"num_workers": 2, "prefetch_factor": 4, "in_order": False},
        {"num_workers": "auto"},
    ]
    for (work, fails), options in itertools.islice(itertools.product(works, kinds), 0, None, every):
        if options["num_workers"] != 0:
            options = options | {"multiprocessing_context": "fork"}
        yield stoker.DataLoader(work, batch_size=_BATCH_SIZE, **options), fails


def turn(made: Any, stage: str, fails: bool) -> None:
    """Begins an epoch, and leaves it at a stage."""
    if stage == "not begun":
        return
    iterator = iter(made)
    wanted = {"begun": 0, "first batch": 1, "in the middle": 3, "last batch": _BATCHES}
    kept = []
    try:
        for _ in range(wanted.get(stage, _BATCHES + 1)):
            batch = next(iterator)
            if stage == "a batch kept":
                kept.append(batch)
        if stage == "after its end":
            next(iterator, None)
    except StopIteration:
        pass
    except ValueError:
        if not fails:
            raise
    del iterator


def run(turns: int, tell: Callable[[str], None] = lambda _: None, *, every: int = 1) -> Grown:
    """Turns over all kinds of loaders and stages; those of the first round are not compared.

    Args:
        turns: How many.
        tell: Told of the progress.
        every: Only every so manieth kind of loader.
    """
    kinds = list(_loaders(every))
    rounds = itertools.cycle(itertools.product(STAGES, range(len(kinds))))
    warm = max(len(STAGES) * len(kinds), turns // 10)
    before, began = None, time.perf_counter()
    for number, (stage, at) in enumerate(itertools.islice(rounds, warm + turns)):
        if number == warm:
            before, began = _settled(kinds), time.perf_counter()
        made, fails = kinds[at]
        turn(made, stage, fails)
        if number % 500 == 499:
            tell(f"{number + 1:,} of {warm + turns:,}")
    seconds = time.perf_counter() - began
    assert before is not None
    return Grown(turns, seconds, _settled(kinds).above(before))


def _settled(kinds: list[tuple[Any, bool]]) -> Held:
    """What is held when no loader has workers: those that stay are let go."""
    for made, _ in kinds:
        made._iterator = None
        made._account.drop_spare()
    found, deadline = held_now(), time.monotonic() + _SETTLE_S
    while found.processes and time.monotonic() < deadline:
        time.sleep(0.05)
        found = held_now()
    return found
