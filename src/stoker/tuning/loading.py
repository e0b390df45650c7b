"""The loader that a target names, made in a process of its own."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.errors import TargetError
from stoker.tuning.named import STEP, check_file, is_file, named, parse
from stoker.tuning.target import make_loader


def load(target: str, seed: int, *, batch_size: int | None = None) -> Any:
    """The target's loader; seeded, so that what is measured is the same samples every time.

    Args:
        target: As the user gave it.
        seed: For the global generators.
        batch_size: For a target that is a data set; None where nobody has said.

    Raises:
        TargetError: There is no such loader, or making it failed.
    """
    place, _ = parse(target)
    if is_file(place):
        check_file(target, place)
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    return make_loader(target, named(target), batch_size=batch_size)


class Step:
    """What the consumer does with each batch.

    Args:
        name: A function as a target names it; empty for none.
        step_ms: Milliseconds to sleep where there is none.

    Attributes:
        running: Whether it was called and has not come back, as after an exception.

    Raises:
        TargetError: There is no such function, or it can't be called.
    """

    def __init__(self, name: str = "", step_ms: float = 0.0) -> None:
        self._name = name
        self._function = _function(name) if name else _sleep(step_ms / 1e3)
        self.running = False

    def __call__(self, batch: Any) -> None:
        self.running = True
        self._function(batch)
        self.running = False

    def doing(self, otherwise: str, batches: int) -> str:
        """What was being done when something was raised: this, or reading batches."""
        if not self.running:
            return otherwise
        return f"calling the step '{self._name}' of --step with batch {batches}"


def _sleep(seconds: float) -> Callable[[Any], object]:
    return lambda batch: time.sleep(seconds) if seconds > 0 else None


def _function(step: str) -> Callable[[Any], object]:
    found = named(step, STEP)
    if callable(found):
        return found
    raise TargetError(
        f"'{step}' can't be called: it is of type {type(found).__name__}.",
        doing=STEP.loading(step),
        change=f"name {STEP.kind}",
    )
