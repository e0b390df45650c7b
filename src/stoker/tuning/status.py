"""What one running loader tells whoever looks on from outside: a small JSON message. Pure.

Writer and reader may be of different versions. A field that the reader doesn't know is
passed over; one that is missing, or is not what it should be, has its default.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stoker.tuning.statistics import Statistics, plain

SCHEMA = 1
LAST_DECISIONS = 5  # a long run has many, and the message is to stay small
FIRST_ERRORS = 3  # likewise


@dataclass(frozen=True)
class LoaderStatus:
    """A loader as it last told of itself.

    Attributes:
        name: What people know it by: its data set, samples and batch size.
        at_s: When it told, in seconds since the epoch of the system's clock.
        statistics: What it told; of its decisions only the last few.
    """

    name: str
    at_s: float
    statistics: Statistics


@dataclass(frozen=True)
class Pace:
    """How fast a loader is, over its latest stretch that is known.

    Attributes:
        rate_per_s: Batches a second; None before the first batch.
        waiting: Share of the time that the consumer waited or made batches; None as above.
    """

    rate_per_s: float | None
    waiting: float | None


def encode(statistics: Statistics, name: str, at_s: float) -> bytes:
    """The message, about 2 KB and up to 100 bytes more for each worker.

    Args:
        statistics: What to tell.
        name: As for `LoaderStatus`.
        at_s: Now, in seconds since the epoch of the system's clock.
    """
    last = replace(
        statistics,
        decisions=statistics.decisions[-LAST_DECISIONS:],
        errors=statistics.errors[:FIRST_ERRORS],
    )
    told = {"schema": SCHEMA, "name": name, "at_s": at_s, "statistics": plain(last)}
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()


def decode(text: bytes) -> LoaderStatus | None:
    """The status in a message; None where it is no such message at all."""
    try:
        status: LoaderStatus = _dataclass(LoaderStatus, json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    return status


def pace(before: LoaderStatus | None, now: LoaderStatus) -> Pace:
    """Between two messages; with one alone, in the last window or else over all.

    Args:
        before: An earlier message of the same loader; None without one.
        now: Its latest.
    """
    told = now.statistics
    if before is not None:
        then = before.statistics
        seconds, batches = told.seconds - then.seconds, told.batches - then.batches
        if seconds > 0 and batches > 0:
            lost_s = told.waited_s + told.loading_s - then.waited_s - then.loading_s
            return Pace(batches / seconds, min(1.0, max(0.0, lost_s / seconds)))
    if told.recent is not None and told.recent.seconds > 0:
        return Pace(told.recent.rate_per_s, told.recent.waiting)
    if told.batches and told.seconds > 0:
        return Pace(told.rate_per_s, told.waiting)
    return Pace(None, None)


def _read(kind: Any, value: Any) -> Any:
    """`value` from JSON as a `kind` that an annotation names.

    Raises:
        ValueError: It can't be one.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _any([p for p in parts if p is not _NONE], value)
    if origin is Literal:
        return _checked(value in parts, value)
    if origin is tuple:
        return _tuple(parts, _checked(isinstance(value, list), value))
    if is_dataclass(kind):
        return _dataclass(kind, value)
    if kind is float:  # None stands for what JSON has no number for
        return math.inf if value is None else float(_checked(_is_number(value), value))
    if kind is int:
        return int(_checked(_is_number(value) and value == int(value), value))
    return _checked(isinstance(value, kind), value)


_NONE = type(None)


def _any(kinds: list[Any], value: Any) -> Any:
    """`value` as the first of some kinds that it can be."""
    for kind in kinds[:-1]:
        try:
            return _read(kind, value)
        except ValueError:
            continue
    return _read(kinds[-1], value)


def _checked(fits: bool, value: Any) -> Any:
    if not fits:
        raise ValueError(f"not what it should be: {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _tuple(parts: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """Of one kind, without those that don't fit; or of so many kinds."""
    if parts[-1] is not Ellipsis:
        _checked(len(parts) == len(values), values)
        return tuple(_read(part, value) for part, value in zip(parts, values, strict=True))
    found = []
    for value in values:
        try:
            found.append(_read(parts[0], value))
        except ValueError:
            continue
    return tuple(found)


def _dataclass(kind: Any, value: Any) -> Any:
    given: Mapping[str, Any] = _checked(isinstance(value, dict), value)
    hints = get_type_hints(kind)
    found = {}
    for field in fields(kind):
        try:
            found[field.name] = _read(hints[field.name], given[field.name])
        except (ValueError, KeyError):
            if _is_required(field):
                raise ValueError(f"{field.name} is missing or wrong") from None
    return kind(**found)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
