"""Bases and metaclasses as of an installed module: what they write down does not go along."""

from __future__ import annotations

from typing import Any

WRITTEN: list[str] = []


class Writes:
    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        WRITTEN.append(cls.__name__)


class Meta(type):
    def __new__(cls, *given: Any) -> Any:
        WRITTEN.append("new")
        return super().__new__(cls, *given)

    def __init__(cls, *given: Any) -> None:
        WRITTEN.append("init")
        super().__init__(*given)


class MetaWith(type):
    def __new__(cls, *given: Any, word: str) -> Any:
        WRITTEN.append(word)
        return super().__new__(cls, *given)


def write(cls: Any) -> None:
    WRITTEN.append(cls.__name__)
