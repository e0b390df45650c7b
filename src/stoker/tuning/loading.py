"""The loader that a target names, made in a process of its own."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.tuning import target as targets


def load(target: str, seed: int, *, batch_size: int | None = None) -> Any:
    """The target's loader; seeded, so that what is measured is the same samples every time.

    Args:
        target: As the user gave it.
        seed: For the global generators.
        batch_size: For a target that is a data set; None where one is not welcome.

    Raises:
        TargetError: There is no such loader, or making it failed.
    """
    place, name = targets.parse_target(target)
    if targets.is_file(place):
        targets.check_file(target, place)
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    found = targets.find_name(target, targets.import_place(target, place), name)
    return targets.make_loader(target, found, batch_size=batch_size)


def step_of(step: str, step_ms: float) -> Callable[[Any], object]:
    """What the consumer does with each batch.

    Args:
        step: A function as a target names it; empty for none.
        step_ms: Milliseconds to sleep where there is none.

    Raises:
        TargetError: There is no such function.
    """
    if step:
        function: Callable[[Any], object] = targets.find_step(step)
        return function
    seconds = step_ms / 1e3
    return lambda batch: time.sleep(seconds) if seconds > 0 else None
