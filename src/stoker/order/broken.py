"""Samples that could not be read: what is told of them, and what is never their fault. Pure."""

from __future__ import annotations

import errno
import operator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

_MOST_CHARACTERS = 300
_EXHAUSTED = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})

Outcome = Literal["skipped", "replaced", "given"]


@dataclass(frozen=True)
class Broken:
    """A sample that could not be read.

    Attributes:
        index: Its index, see `known_as`.
        error: Type and text of what was raised, at most some 300 characters.
        where: File, line and function that raised it; empty where there is none.
        outcome: Whether its place was "skipped", another index has "replaced" it, or a value
            was "given" for it.
    """

    index: int | str
    error: str
    where: str
    outcome: Outcome


class Damage(NamedTuple):
    """What is broken in one batch.

    Attributes:
        places: How many samples the batch was to have.
        broken: What could not be read; with replacements, there may be several for one place.
    """

    places: int
    broken: tuple[Broken, ...]

    @property
    def is_whole(self) -> bool:
        """Whether possibly not one sample could be read."""
        return len(self.broken) >= self.places


def broken(index: Any, error: BaseException, outcome: Outcome) -> Broken:
    """What is to be told of a sample whose reading raised `error`."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be had)"
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Broken(known_as(index), _shortened(told), _raised_at(error), outcome)


def known_as(index: Any) -> int | str:
    """An index as it is told: an integer or text as it is, anything else as it is written."""
    try:
        return operator.index(index)
    except Exception:
        pass
    try:
        return _shortened(str(index) if isinstance(index, str) else repr(index))
    except Exception:
        return f"a {type(index).__name__}"


def is_exhaustion(error: BaseException) -> bool:
    """Whether this process has run out of something, so that no sample is to blame.

    Which sample meets that depends on who reads it and when: leaving it out would let batches
    depend on that too.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in _EXHAUSTED
    )


def _raised_at(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno}, in {code.co_name}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
