"""docs/guarantees.md names tests that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"


def named() -> Iterator[tuple[str, str]]:
    """File and function of each test that the page names; a name alone is of the last file."""
    file = ""
    for place, name in re.findall(r"`([\w/]*(?:\.py)?)(?:::(\w+))?`", PAGE.read_text("utf-8")):
        if place and not place.endswith(".py"):
            continue
        file = place.removeprefix("tests/") or file
        yield file, name


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_many_are_named() -> None:
    assert len(set(named())) > 50


@pytest.mark.parametrize("file", sorted({file for file, _ in named()}))
def test_those_that_are_named_exist(file: str) -> None:
    assert {name for of, name in named() if of == file and name} - functions(file) == set()
