"""Kinds of records that are defined in a module."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple


class Text(str):
    """Equal to the string, and not of its type."""


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Row:
    path: str
    box: list[float]


class Pair(NamedTuple):
    left: Any
    right: Any


class Outer:
    class Inner(NamedTuple):
        value: Any


class Stubborn(Exception):
    """Pickles, and can't be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


class Chameleon:
    """Comes back as something else."""

    def __reduce__(self) -> Any:
        return list, ()
