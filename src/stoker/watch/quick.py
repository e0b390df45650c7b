"""Batches handed out between two looks: as little as can be is done for each.

A full look costs some 50 µs. Steps that are shorter than `EVERY_S` are added up here in the
meantime, at a few µs each, so that being watched costs less than 1 % of a step of 1 ms.
"""

from __future__ import annotations

import math

from stoker.watch.roles import Epoch
from stoker.watch.sources import Source
from stoker.watch.stretches import Stretches

EVERY_S = 0.02
MOST = 256
"""Batches between two looks."""


class Quick:
    """See the module.

    Attributes:
        until_s: When the next look is due; 0 where every batch is looked at.
        count: Batches since the last look.
        spent_s: Seconds that getting them took.
    """

    def __init__(self) -> None:
        self.until_s = 0.0
        self.count = 0
        self.spent_s = 0.0
        self._away_s = 0.0
        self._took: list[float] = []
        self._last = math.inf
        self._number = 0
        self._workers = False

    def begin(self, iterator: Epoch, source: Source, now: float) -> None:
        """From now on, for a while, nothing but the batches is wanted."""
        self._number, self._workers = iterator.number, source.workers > 0
        self._last = math.inf if iterator.length is None else iterator.length - 1
        self.until_s = now + EVERY_S

    def serves(self, iterator: Epoch, now: float) -> bool:
        """Whether the next batch needs no look."""
        return (
            now < self.until_s
            and iterator.number == self._number
            and iterator.served < self._last
            and self.count < MOST
        )

    def took(self, away_s: float, seconds: float) -> None:
        """A batch was handed out, after a step of ``away_s``."""
        self.count += 1
        self.spent_s += seconds
        self._away_s += away_s
        self._took.append(seconds)

    def end(self) -> None:
        """The next batch is looked at."""
        self.until_s = 0.0

    def flush(self, stretches: Stretches, left_s: float) -> tuple[float, int]:
        """Adds up what happened since the last look.

        Args:
            stretches: Where to.
            left_s: When the last batch was handed out.

        Returns:
            Seconds that getting batches took, and how many there were.
        """
        count, spent_s = self.count, self.spent_s
        if count:
            stretches.several(self._took, self._away_s, left_s, workers=self._workers)
        self.count, self.spent_s, self._away_s, self._took = 0, 0.0, 0.0, []
        return spent_s, count
