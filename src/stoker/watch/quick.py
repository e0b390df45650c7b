"""Batches handed out between two looks: as little as can be is done for each.

A full look runs some hundred lines, which takes 50 µs in a hot loop and several times that after
a step that has used the caches. In between `SiteIterator.__next__` only notes down when a batch
was asked for and when it came. What is left of the cost is in docs/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from stoker.watch.sampler import Loading
from stoker.watch.sources import Source
from stoker.watch.stretches import Stretches

EVERY_S = 0.1
MOST = 256
"""Batches between two looks."""


class Quick:
    """Of one iterator; its attributes are what ``__next__`` needs, and nothing refers back.

    Attributes:
        lock: Held while a batch is taken: it is not ended meanwhile by another thread.
        until_s: When the next look is due; 0 where every batch is looked at.
        left: Batches that may still come before it.
        take: Gives the next batch.
        load: Told when the main process makes one.
        times: When each batch was asked for and when it came, one after the other.
    """

    __slots__ = ("_since_s", "_workers", "left", "load", "lock", "take", "times", "until_s")

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self.lock = lock
        self.until_s = self._since_s = 0.0
        self.left = 0
        self.take: Callable[[], Any] = _nothing
        self.load = Loading()
        self.times: list[float] = []
        self._workers = False

    def begin(self, source: Source, load: Loading, left: float, now: float) -> None:
        """From now on, for a while, nothing but the batches is wanted.

        Args:
            source: Gives them.
            load: Told when the main process makes one.
            left: How many may come before the next look, because of what will be known then.
            now: The time; a batch was just handed out.
        """
        self._workers = source.workers > 0
        self.load = Loading() if self._workers else load
        self.take, self.left = source.take, int(min(MOST, left))
        self._since_s, self.until_s = now, now + EVERY_S

    def end(self) -> None:
        """The next batch is looked at."""
        self.until_s = 0.0

    @property
    def count(self) -> int:
        """Batches since the last look."""
        return len(self.times) // 2

    @property
    def last_s(self) -> float:
        """When the last of them was handed out; 0 where there was none."""
        return self.times[-1] if self.times else 0.0

    def flush(self, stretches: Stretches) -> tuple[float, int]:
        """Adds up what happened since the last look.

        Args:
            stretches: Where to.

        Returns:
            Seconds that getting batches took, and how many there were.
        """
        times, self.times = self.times, []
        self.take = _nothing  # or the workers would outlive their epoch
        if not times:
            return 0.0, 0
        asked, came = times[::2], times[1::2]
        took = [end - began for began, end in zip(asked, came, strict=True)]
        spent_s = math.fsum(took)
        away_s = came[-1] - self._since_s - spent_s
        stretches.several(took, away_s, came[-1], workers=self._workers)
        return spent_s, len(took)


def _nothing() -> Any:
    raise AssertionError("no source gives batches unseen yet")
