"""Reports of every shape, made from the types of their records."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from stoker.host.cpus import CpuFacts
from stoker.host.facts import Fact
from stoker.host.software import SoftwareFacts
from stoker.tuning.answer import Answer, Report
from stoker.tuning.result import Failure

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=6)
BOUNDS = FLOATS | st.just(float("inf"))
SINGLE: dict[Any, st.SearchStrategy[Any]] = {
    float: FLOATS,
    int: st.integers(),
    str: TEXTS,
    bool: st.booleans(),
}


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the type `kind`, whatever they mean."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        each = {field.name: made(hints[field.name]) for field in fields(kind)}
        if kind is Answer:
            each["waits"] = st.lists(st.tuples(BOUNDS, st.integers()), max_size=3).map(tuple)
        return st.builds(kind, **each)  # type: ignore[arg-type]
    if origin is Fact:
        return st.builds(Fact, made(parts[0]), TEXTS)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if part is type(None) else made(part) for part in parts])
    if origin is tuple and parts[-1] is Ellipsis:
        return st.lists(made(parts[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(made, parts))
    if origin is Literal:
        return st.sampled_from(parts)
    return SINGLE[kind]


REPORTS: st.SearchStrategy[Report] = st.builds(
    Report,
    command=TEXTS,
    kind=st.sampled_from(["target", "program"]),
    answers=made(tuple[Answer, ...]),
    failures=made(tuple[Failure, ...]),
    cpus=made(CpuFacts),
    memory=made(Fact[int]),
    software=made(SoftwareFacts),
    elapsed_s=FLOATS,
    ended=TEXTS,
    exit_code=st.none() | st.integers(),
)
