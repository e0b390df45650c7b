"""The same call to torch's loader and to ours: what comes out, what is raised, what is warned."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import stoker

KINDS: dict[str, Any] = {"torch": torch.utils.data.DataLoader, "stoker": stoker.DataLoader}


@dataclass(frozen=True)
class Outcome:
    """What a call led to; `value` is None when it raised."""

    value: Any
    error: tuple[str, str] | None
    warnings: tuple[tuple[str, str], ...]


def outcome(call: Callable[[Any], Any], kind: Any) -> Outcome:
    """Calls with a kind of loader."""
    value, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call(kind)
        except Exception as raised:
            error = _family(raised), str(raised)
    said = tuple((w.category.__name__, str(w.message)) for w in caught)
    return Outcome(value, error, tuple(x for x in said if "ResourceWarning" not in x))


def _family(error: Exception) -> str:
    """The exception's type, or the one of Python's own that ours is a kind of."""
    family = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    return family[0].__name__


def both(call: Callable[[Any], Any]) -> tuple[Outcome, Outcome]:
    """The outcomes of the same call with torch's loader and with ours."""
    return outcome(call, KINDS["torch"]), outcome(call, KINDS["stoker"])
