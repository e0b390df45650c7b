"""What the process that measures writes, and the command reads."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.site_record import Seen, SiteRecord, from_json, to_json
from tests.unit.report.random_reports import BOUNDS, FLOATS, TEXTS, made
from tests.unit.tuning.planted import own, record, replays, rounds

LINES = st.fixed_dictionaries(
    {
        "file": TEXTS,
        "line": st.integers(),
        "function": TEXTS,
        "callee": TEXTS,
        "collating": st.booleans(),
        "looks": st.integers(),
        "seconds": FLOATS,
    }
)
LISTS: dict[str, st.SearchStrategy[Any]] = {
    "seen": made(Seen),
    "starts_s": FLOATS,
    "waits": st.tuples(BOUNDS, st.integers()),
    "waits_s": FLOATS,
    "lines": LINES,
}


def _field(name: str, hint: Any) -> st.SearchStrategy[Any]:
    if name in LISTS:
        return st.lists(LISTS[name], max_size=3)
    if getattr(hint, "__origin__", None) is list:
        return st.lists(made(hint.__args__[0]), max_size=3)
    return made(hint)


HINTS = get_type_hints(SiteRecord)
RECORDS: st.SearchStrategy[SiteRecord] = st.builds(
    SiteRecord, **{each.name: _field(each.name, HINTS[each.name]) for each in fields(SiteRecord)}
)


@given(st.lists(RECORDS, max_size=3), TEXTS, st.booleans())
def test_what_is_read_is_what_was_written(
    records: list[SiteRecord], stopping: str, leads: bool
) -> None:
    text = to_json(records, stopping=stopping, leads=leads)
    assert from_json(text) == (records, {"stopping": stopping, "leads": leads})


def test_it_is_plain_text_and_tells_of_every_field() -> None:
    planted = record(own(0, 10.0), rounds({2: (20.0, 21.0)}), replays(30.0), chosen=2)
    told = json.loads(to_json([planted]))
    assert set(told["sites"][0]) == {each.name for each in fields(SiteRecord)}
    assert [each["stage"] for each in told["sites"][0]["seen"]] == [
        "own",
        "confirm",
        "confirm",
        "replay",
    ]


@pytest.mark.parametrize("text", ["", "{", '{"sites": [', "null garbage"])
def test_half_a_file_is_no_record(text: str) -> None:
    """It is read while it is written by another process."""
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)
