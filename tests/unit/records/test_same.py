"""Equality that sees types, the sign of zero and NaN, at any depth."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if dataclasses.is_dataclass(one):
        return same(vars(one), vars(other))
    return bool(one == other)


def test_it_sees_what_equality_does_not() -> None:
    assert same([float("nan"), -0.0, {"a": (1,)}], [float("nan"), -0.0, {"a": (1,)}])
    for one, other in [(0.0, -0.0), (1, True), (1, 1.0), ((1,), [1]), ({1: 2, 3: 4}, {3: 4, 1: 2})]:
        assert not same([one], [other])
