"""What the command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.utils.data

from benchmarks.figures import Case
from benchmarks.measure import LoaderClass, Window

QUICK = 0.25  # the part of each window that a quick run times


@dataclass(frozen=True)
class Settings:
    """Which loaders are compared, by name, and how much of each window is timed."""

    loaders: Mapping[str, LoaderClass]
    scale: float = 1.0

    def window(self, warm_up: int, batches: int, seconds: float = 0.0, round_of: int = 1) -> Window:
        return Window(warm_up, batches, seconds, round_of).scaled(self.scale)


@dataclass(frozen=True)
class Data:
    """What is loaded, the same for every loader.

    Attributes:
        title: says what one batch is.
        samples: the data set.
        arguments: what a loader gets beside it and a number of workers.
        batch_bytes: the size of a batch, where bytes are what counts.
    """

    title: str
    samples: torch.utils.data.Dataset[Any]
    arguments: Mapping[str, Any]
    batch_bytes: int | None = None


@dataclass(frozen=True)
class Work:
    """One kind of data to load, and how the loaders are compared with it.

    Attributes:
        data: builds the data, anew at every call.
        cases: what is measured to compare loaders.
    """

    name: str
    data: Callable[[], Data]
    cases: Callable[[Settings], list[Case]]


def loader_classes(choice: str) -> dict[str, LoaderClass]:
    """The loaders that ``choice`` names: torch, stoker or both."""
    classes: dict[str, LoaderClass] = {}
    if choice in ("torch", "both"):
        classes["torch"] = torch.utils.data.DataLoader
    if choice in ("stoker", "both"):
        from stoker import DataLoader

        classes["stoker"] = DataLoader
    return classes
