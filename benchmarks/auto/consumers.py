"""What a training step is to a loader: a time between two batches, on a CPU or off it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

_FLOATS = 32 * 1024  # 128 KiB: stays in a cache of its own, and takes some microseconds


class Compute:
    """Keeps one thread busy for so many seconds of CPU time, as a training step does.

    It is numpy's arithmetic, which lets other threads of the process run meanwhile.
    """

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        self._numbers = np.ones(_FLOATS, np.float32)

    def __call__(self) -> None:
        numbers = self._numbers
        until = time.thread_time() + self._cpu_s
        while time.thread_time() < until:
            np.multiply(numbers, numbers, out=numbers)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Consumer:
    """What happens between two batches.

    Attributes:
        name: for the command line.
        title: for people.
        step: does it once.
    """

    name: str
    title: str
    step: Callable[[], object]


CONSUMERS: dict[str, Consumer] = {
    consumer.name: consumer
    for consumer in (
        Consumer("0", "0 ms", _nothing),
        Consumer("sleep5", "sleeps 5 ms", partial(time.sleep, 0.005)),
        Consumer("sleep20", "sleeps 20 ms", partial(time.sleep, 0.02)),
        Consumer("compute5", "computes 5 ms", Compute(0.005)),
    )
}
