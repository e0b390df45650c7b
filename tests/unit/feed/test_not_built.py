"""What is said of a worker that can't build what it was sent."""

from __future__ import annotations

import sys
import types

import pytest

from stoker.feed.not_built import not_built
from stoker.workers.raised import Raised

LACKING = "Can't get attribute 'D' on <module '__mp_main__' from 'program.py'>"


def main_module(file: str | None) -> types.ModuleType:
    module = types.ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    return module


@pytest.mark.parametrize(
    ("file", "likely"),
    [
        (None, "something of a notebook's cell, of `python -c` or of an interactive session"),
        (__file__, "something of the program's main module that a process started by spawn"),
    ],
    ids=["no file", "file"],
)
def test_what_the_main_module_defines_is_advised_to_go_along(
    monkeypatch: pytest.MonkeyPatch, file: str | None, likely: str
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main_module(file))
    error = not_built(7, Raised.of(AttributeError(LACKING), ""))
    assert error.likely.startswith(likely)
    assert error.change.startswith("worker_method='fresh', without multiprocessing_context=; or")


def test_what_another_module_lacks_is_not_mended_by_fresh_workers() -> None:
    error = not_built(7, Raised.of(AttributeError("<module 'a' from 'a.py'> has no 'D'"), ""))
    assert "in its module" in error.likely
    assert "fresh" not in error.change
