"""docs/json.md names every key and every word that ``stoker tune --json`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from stoker.report.record import report_record
from stoker.report.run import run_json
from stoker.tuning.answer import LimitKind, Site
from stoker.tuning.result import FailureKind
from stoker.watch.served import Outcome, Served
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


def test_every_key_of_a_run_is_named() -> None:
    served = Served(Site("train.py", 3, "<module>", ""), (2,))
    record = json.loads(run_json(Outcome("train.py", 0, 1.0, (served,))))
    part = TOLD.partition("## stoker run")[2].partition("\n## ")[0]
    assert sorted(key for key in {*keys(record)} if f"`{key}`" not in part) == []


@pytest.mark.parametrize("word", [*get_args(LimitKind), *get_args(FailureKind)])
def test_every_kind_is_named(word: str) -> None:
    assert f"`{word}`" in TOLD
