"""A pytest plugin for the run in `test_core`."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

import stoker.loader
from stoker.feed import iteration
from stoker.workers import methods
from stoker.workers.fresh import FreshContext

_FORK = multiprocessing.get_context("fork")  # see `windows_like.FORK_IS_SPAWN`


def _context_of(loader: Any) -> Any:
    """Tests that ask for fork get fresh workers: what there is on Windows by default."""
    if loader.multiprocessing_context is _FORK:
        return FreshContext()
    return methods.context_of(loader)


stoker.loader.context_of = iteration.context_of = _context_of


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the other kind of memory, and the other way to start that is not there."""
    kept = []
    for item in items:
        given = getattr(item, "callspec", None)
        values = () if given is None else given.params.values()
        if not {"memfd", "forkserver"} & {value for value in values if isinstance(value, str)}:
            kept.append(item)
    items[:] = kept
