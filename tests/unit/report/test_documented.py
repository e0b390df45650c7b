"""docs/json.md names every key and every word that ``stoker tune --json`` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from stoker.report.record import report_record
from stoker.tuning.answer import LimitKind
from stoker.tuning.result import FailureKind
from tests.unit.report.samples import program, target, unmeasured

TOLD = (Path(__file__).parents[3] / "docs" / "json.md").read_text("utf-8")


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)


def test_every_key_is_named() -> None:
    records = [report_record(each) for each in (program(), target(), unmeasured())]
    words = TOLD.replace("host.", "").replace("`.", "`")
    found = {key for record in records for key in keys(record)} - {"host"}
    assert sorted(key for key in found if f"`{key}`" not in words) == []


@pytest.mark.parametrize("word", [*get_args(LimitKind), *get_args(FailureKind)])
def test_every_kind_is_named(word: str) -> None:
    assert f"`{word}`" in TOLD
