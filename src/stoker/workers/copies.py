"""Pools in a forked copy of this process: the workers are the original's."""

from __future__ import annotations

import weakref
from multiprocessing import process
from typing import Any

from stoker.host.forks import at_fork

EVERY_POOL: weakref.WeakSet[Any] = weakref.WeakSet()
"""Pools of processes, each with its `processes`."""


def _after_fork_in_child() -> None:
    """In a forked copy, multiprocessing would ask after the original's workers at exit."""
    children: Any = getattr(process, "_children", set())
    for pool in list(EVERY_POOL):
        children.difference_update(pool.processes)


at_fork(after_in_child=_after_fork_in_child)
