"""What is asked of a program that is measured, and what came of it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stoker.feed.window import Window
from stoker.tuning.visits import Visit

Stage = Literal["own", "search", "confirm", "again", "extras", "replay", "done"]
IN_TURN = ("confirm", "again")
"""Stages in which numbers are measured in rounds, so that a round's can be compared."""

HANDLING = 0.35
"""Share of the time that the main process spends on receiving batches, from which on another
way of bringing them is worth a try."""
ORDER = 0.2
"""Share of the time in which a later batch was ready, from which on more in advance may help."""


@dataclass(frozen=True)
class Setting:
    """A way to run the loader.

    Attributes:
        workers: Its number of workers.
        engine: "torch", or "stoker" for Stoker's loader with as many workers.
        prefetch_factor: Batches in advance for each worker; None for the loader's own.
    """

    workers: int
    engine: Literal["torch", "stoker"] = "torch"
    prefetch_factor: int | None = None


@dataclass(frozen=True)
class Ask:
    """What to measure next.

    Attributes:
        stage: Why: see the module.
        setting: How the loader is to run.
        batches: Batches that the window needs at least.
        seconds: Seconds that it needs at least.
        round: Settings measured in one round are compared as pairs.
        fresh: Whether workers that run already with this setting must be started anew.
    """

    stage: Stage
    setting: Setting
    batches: int
    seconds: float
    round: int = 0
    fresh: bool = False


@dataclass(frozen=True)
class Trial:
    """A window, and what it was measured for."""

    setting: Setting
    stage: Stage
    round: int
    window: Window


def others_worth_a_try(visit: Visit) -> list[Setting]:
    """Settings other than the number that might give more with it, and the plain one beside them.

    Args:
        visit: What was measured with the number.
    """
    count, found = visit.workers, []
    if not count:
        return []
    if visit.handling_each_s * visit.rate_per_s > HANDLING:
        found.append(Setting(count, "stoker"))
    order_s = math.fsum(window.order_s for window in visit.windows)
    if order_s > ORDER * math.fsum(window.seconds for window in visit.windows):
        found.append(Setting(count, "torch", 4))
    return [Setting(count), *found] if found else []
