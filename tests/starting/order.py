"""What a nursery is asked to start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """A program of Python's.

    Attributes:
        kind: How the first word names it: ``file``, ``-c`` or ``-m``.
        words: The program, and its arguments.
        environment: All of it.
        folder: Where it runs, absolute.
        new_session: Whether it leads a session of its own.
        passed: Numbers of descriptors that it has besides the standard ones.
        ignored: Whether SIGINT is ignored here, and so by it.
        owner: The process that asks, which will be its parent.
    """

    kind: str
    words: list[str]
    environment: dict[str, str]
    folder: str
    new_session: bool
    passed: list[int]
    ignored: bool
    owner: int

    @staticmethod
    def places(environment: Mapping[str, str]) -> list[str]:
        """The folders of PYTHONPATH."""
        named = environment.get("PYTHONPATH", "")
        return named.split(os.pathsep) if named else []
