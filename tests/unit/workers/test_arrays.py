"""Whether samples are guessed to be arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.workers.arrays import likely_arrays


def helper() -> Any:
    return [np.zeros(2) for _ in range(2)]


class Direct:
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3)


class ByHelper:
    def __getitem__(self, index: int) -> Any:
        return self.made()

    def made(self) -> Any:
        return helper()


class Inherits(Direct):
    pass


class Plain:
    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "text": "text"}


@pytest.mark.parametrize(
    "dataset",
    [
        Direct(),
        ByHelper(),
        Inherits(),
        Plain(np.zeros(2)),
        Plain([1, np.float32(2)]),
        Plain(helper),
        Plain(functools.partial(map, helper)),
        Plain(Plain(Direct())),
    ],
)
def test_arrays(dataset: Any) -> None:
    assert likely_arrays(dataset)


class Sums:
    def __init__(self) -> None:
        self.held = np.ones((3, 4))

    def __getitem__(self, index: int) -> int:
        return int(self.held[index].sum())


@pytest.mark.parametrize(
    "dataset",
    [Plain(), Plain([1, "text"]), [1, 2], range(3), Plain(stoker.packed([{"n": 1}])), Sums()],
)
def test_no_arrays(dataset: Any) -> None:
    assert not likely_arrays(dataset)
