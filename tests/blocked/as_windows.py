"""A pytest plugin for the run in `test_core`: tests that ask for fork get what Windows has."""

from __future__ import annotations

import multiprocessing.context
from typing import Any

import pytest

_contexts: Any = multiprocessing.context
_contexts._concrete_contexts["fork"] = _contexts._concrete_contexts["spawn"]
type(_contexts._default_context).get_all_start_methods = lambda self: ["spawn", "fork"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the other kind of memory, and the other way to start that is not there."""
    kept = []
    for item in items:
        given = getattr(item, "callspec", None)
        values = () if given is None else given.params.values()
        if not {"memfd", "forkserver"} & {value for value in values if isinstance(value, str)}:
            kept.append(item)
    items[:] = kept
