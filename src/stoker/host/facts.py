"""A fact about the machine: a value and who said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A number about this machine and where it came from.

    Attributes:
        value: The number; its unit is in the name of the attribute that holds the fact.
        source: In plain words: the file, call or variable that said so.
    """

    value: T
    source: str
