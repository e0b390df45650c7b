"""How long a setting is measured at a time, and how far that can be trusted. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stoker.tuning.visits import Visit

WINDOW_S = 0.25
"""Seconds of a window at least: less is told apart by chance."""
UNLIKE_S = 0.75
"""Seconds up to which a window is made longer where batches differ."""
LONG_S = 1.5
"""Seconds that a window should not be longer than, unless a batch takes that long."""
TURNS, SHORT_TURNS_S = 3, 0.75
"""Batches of each worker in a window, where these take no longer than that."""
FEW = 4
"""Batches of a window at least, where these take no longer than `LONG_S`."""
LIKE = 0.04
"""Share by which a rate may be off because batches differ, before a window is made longer."""
LEAST_SPREAD = 0.3
"""What batches are taken to differ by at least: a few may seem alike by chance."""
EVENED = 0.6
"""Of the spread of batches that much shows in the rate of workers, which work ahead."""


def length_of(count: int, visits: Mapping[int, Visit]) -> tuple[int, float]:
    """Batches and seconds of a window.

    Workers that were started together have their batches ready together, so a window is whole
    turns of all of them.

    Args:
        count: Workers.
        visits: What was measured so far, by number of workers.
    """
    each = max(1, count)
    rate_per_s = _rate_per_s(count, visits)
    if rate_per_s is None:
        return max(2, each), WINDOW_S
    turn_s = each / rate_per_s
    turns = TURNS if TURNS * turn_s <= SHORT_TURNS_S else 2 if 2 * turn_s <= LONG_S else 1
    few = min(FEW, math.floor(LONG_S * rate_per_s))
    alike = min((_spread(count, visits) / LIKE) ** 2, UNLIKE_S * rate_per_s)
    return max(turns * each, few, int(alike)), WINDOW_S


def unlike(count: int, batches: float, visits: Mapping[int, Visit]) -> float:
    """Share by which the rate of so many batches may be off because they are not alike."""
    return _spread(count, visits) / math.sqrt(batches)


def _spread(count: int, visits: Mapping[int, Visit]) -> float:
    """Standard deviation of what one batch takes, as a share: as the main process saw it."""
    main = visits.get(0)
    if main is None or main.count < 2:
        return 0.0
    return (EVENED if count else 1.0) * max(LEAST_SPREAD, main.batch_spread) * main.waiting


def _rate_per_s(count: int, visits: Mapping[int, Visit]) -> float | None:
    """The rate of so many workers, measured or, from what is nearest, not too high."""
    known = [n for n, visit in visits.items() if visit.count]
    if not known:
        return None
    near = min(known, key=lambda n: abs(n - count))
    return visits[near].rate_per_s * min(1.0, max(1, count) / max(1, near))
