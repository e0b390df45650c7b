"""A record of ``stoker tune`` read back. Pure.

The types of the records say what every key has to hold. Keys that are not known are passed
over: a later version may have added them.
"""

from __future__ import annotations

import json
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from stoker.errors import RecordError
from stoker.host.cpus import CpuFacts
from stoker.host.facts import Fact
from stoker.host.software import SoftwareFacts
from stoker.report.record import SCHEMA
from stoker.tuning.answer import Answer, Rate, Report
from stoker.tuning.result import Failure

_NAMES = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
_AGAIN = "write one with `stoker tune --json FILE ...`"


def report_from(text: str) -> Report:
    """The report that `text`, a file written by ``stoker tune --json``, holds.

    Raises:
        RecordError: The text is no JSON, or no record of ours that this version knows.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(
            f"The file is not JSON: {error}", likely="another file was meant", change=_AGAIN
        ) from None
    return report_of(record)


def report_of(record: Any) -> Report:
    """The report that `record`, as `report_record` makes it, was made from.

    Raises:
        RecordError: It is no record of ours, or of a schema that this version does not know.
    """
    _check_schema(record)
    host = _entry(record, "host", "")
    errors = _read(tuple[dict[str, Any], ...], record.get("errors", []), "errors")
    return Report(
        command=_read(str, _entry(record, "command", ""), "command"),
        kind=_read(Literal["target", "program"], _entry(record, "kind", ""), "kind"),
        answers=_read(tuple[Answer, ...], _entry(record, "loaders", ""), "loaders"),
        failures=_read(tuple[Failure, ...], [_failure(each) for each in errors], "errors"),
        cpus=_read(CpuFacts, _entry(host, "cpus", "host."), "host.cpus"),
        memory=_read(Fact[int], _entry(host, "memory_bytes", "host."), "host.memory_bytes"),
        software=_read(SoftwareFacts, host, "host"),
        elapsed_s=_read(float, _entry(record, "elapsed_s", ""), "elapsed_s"),
        ended=_read(str, record.get("ended", ""), "ended"),
        exit_code=_read(Union[int, None], record.get("exit_code"), "exit_code"),  # noqa: UP007
    )


def _check_schema(record: Any) -> None:
    schema = record.get("schema") if isinstance(record, dict) else None
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise RecordError(
            "The file is not a result of `stoker tune`: it has no schema number.",
            likely="another file was meant",
            change=_AGAIN,
        )
    if schema > SCHEMA:
        raise RecordError(
            f"The file has schema {schema}, and this version of Stoker knows {SCHEMA}.",
            likely="a newer version of Stoker wrote it",
            change="install that version, or measure again with this one",
        )


def _failure(error: dict[str, Any]) -> dict[str, Any]:
    return {**error, "what": error.get("message")}


def _entry(record: Any, key: str, path: str) -> Any:
    if not isinstance(record, dict):
        _refuse(path.rstrip("."), "a group of keys", record)
    if key not in record:
        raise RecordError(
            f"The file is not a whole result of `stoker tune`: it has no `{path}{key}`.",
            likely="it was cut, edited or written by an earlier version",
            change=_AGAIN,
        )
    return record[key]


def _read(kind: Any, value: Any, path: str) -> Any:
    """`value` as the type `kind`; `path` names it in errors."""
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _object(kind, value, path)
    if origin is Fact:
        inner = _read(parts[0], _entry(value, "value", f"{path}."), f"{path}.value")
        return Fact(inner, _read(str, _entry(value, "source", f"{path}."), f"{path}.source"))
    if origin in (Union, types.UnionType):
        return None if value is None else _read(parts[0], value, path)
    if origin is tuple:
        return _several(parts, value, path)
    if origin is Literal:
        return value if value in parts else _refuse(path, f"one of {', '.join(parts)}", value)
    if origin is dict:
        return value if isinstance(value, dict) else _refuse(path, "a group of keys", value)
    return _single(kind, value, path)


def _several(kinds: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _refuse(path, "a list", value)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        _refuse(path, f"a list of {len(kinds)}", value)
    pairs = zip(kinds, value, strict=True)
    return tuple(_read(kind, each, f"{path}[{at}]") for at, (kind, each) in enumerate(pairs))


def _single(kind: type, value: Any, path: str) -> Any:
    """A number, a text or a truth; None stands for a number that has no end."""
    if kind is float:
        if value is None:
            return math.inf
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (whole and abs(value) < 1 << 1000) or isinstance(value, float):
            number = float(value)
            if math.isfinite(number):
                return number
        _refuse(path, _NAMES[float], value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        _refuse(path, _NAMES[kind], value)
    return value


def _object(kind: type, value: Any, path: str) -> Any:
    if kind is Rate:
        value = {**value, "summary": value} if isinstance(value, dict) else value
    hints, found = get_type_hints(kind), {}
    for each in fields(kind):
        if isinstance(value, dict) and each.name not in value and each.default is not MISSING:
            continue
        entry = _entry(value, each.name, f"{path}.")
        found[each.name] = _read(hints[each.name], entry, f"{path}.{each.name}")
    return kind(**found)


def _refuse(path: str, wanted: str, value: Any) -> NoReturn:
    shown = repr(value)
    shown = f"{shown[:57]}..." if len(shown) > 60 else shown
    raise RecordError(
        f"The file is no result of `stoker tune`: `{path}` is to be {wanted}, but is {shown}.",
        likely="it was edited, or written by another version",
        change=_AGAIN,
    )
