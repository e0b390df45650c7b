"""Waiting for several pipes and process sentinels at once."""

from __future__ import annotations

import itertools
import math
import selectors
import sys
import threading
import time
from collections.abc import Hashable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from stoker.errors import IteratorStopped
from stoker.host.interrupts import the_program_ends

# Windows waits for 64 things at once, of which Python wants one for Ctrl-C.
_MOST_AT_ONCE = 63 if sys.platform == "win32" else sys.maxsize
_TURN_S = 0.005


def wait_for(sources: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """As multiprocessing's `wait`, for any number of sources.

    Where the system can't wait for so many, it looks at all of them and then waits for a part, in
    turns: what happens is found some milliseconds later.

    Args:
        sources: Connections and sentinels.
        timeout_s: None: for ever.

    Returns:
        Those that can be read.
    """
    if len(sources) <= _MOST_AT_ONCE:
        return wait(sources, timeout_s)
    starts = range(0, len(sources), _MOST_AT_ONCE)
    parts = itertools.cycle([sources[start : start + _MOST_AT_ONCE] for start in starts])
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        ready = [each for _ in starts for each in wait(next(parts), 0)]
        left_s = end - time.monotonic()
        if ready or left_s <= 0:
            return ready
        wait(next(parts), min(left_s, _TURN_S))


class Waiter:
    """Tells which of its sources can be read; a source is a connection or a sentinel.

    Where the system can, the set is registered once and not built for every wait. Takes one
    descriptor until closed.
    """

    def __init__(self) -> None:
        self._closed = False
        self._tags: dict[Any, Hashable] = {}
        # Windows can wait for pipes, but not through a selector.
        self._selector = None if sys.platform == "win32" else selectors.DefaultSelector()

    def add(self, source: Connection | int, tag: Hashable) -> None:
        """Adds a source, which `wait` will name by `tag`."""
        self._tags[source] = tag
        if self._selector is not None:
            self._selector.register(source, selectors.EVENT_READ, tag)

    def remove(self, source: Connection | int) -> None:
        """Forgets a source; one that is not known is ignored."""
        if self._tags.pop(source, self) is not self and self._selector is not None:
            self._selector.unregister(source)

    def wait(self, timeout_s: float | None) -> list[Any]:
        """Blocks until a source can be read, or for `timeout_s`; returns their tags.

        Raises:
            IteratorStopped: It was closed meanwhile, in another thread.
        """
        try:
            tags = self._ready(timeout_s)
        except Exception:
            if not self._closed:
                raise
        if self._closed:
            raise _closed_elsewhere()
        return tags

    def _ready(self, timeout_s: float | None) -> list[Any]:
        if self._selector is None:
            return [self._tags[source] for source in wait_for(list(self._tags), timeout_s)]
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Gives the descriptor back. Sources stay open: they are their owners'."""
        self._closed = True
        self._tags.clear()
        if self._selector is not None:
            self._selector.close()


def _closed_elsewhere() -> IteratorStopped:
    """The error for it.

    A daemonic thread that is left behind when the program ends raises nothing, which would be
    printed: it is put to sleep, and ends with the interpreter.
    """
    while the_program_ends() and threading.current_thread().daemon:
        time.sleep(3600)
    return IteratorStopped(
        "This iterator was stopped in another thread",
        doing="waiting for a batch",
        change="an iterator for each thread",
    )
