"""A worker looks at its own memory now and then, and tells the main process.

Its own, since that is allowed on every system, and takes time from no training step. Between looks
it costs a batch one reading of the clock. A look goes through all its pages only where it can have
got more of them, and the time to the next is a hundred times as long as that took, at first, and
a thousand times in the end. A forked worker begins with what it has when it is ready for its first
batch, one that was started afresh with what it has after it. Imports are no growth: who has
imported much since the look before begins anew.

The looks::

    first batch --0.25 s--> look --0.5 s--> look --1 s--> ... --30 s, or 1000 times its cost--> look
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.host.process_memory import open_files, process_memory, taken_bytes
from stoker.workers.census import Census, Holding, census
from stoker.workers.looks import Look, Suspect

_FIRST_S, _LONGEST_S = 0.25, 30.0
_COST_AT_FIRST, _COST_IN_THE_END = 100, 1000
_NO_NEWS_BYTES, _MUCH_BYTES = 4 << 20, 64 << 20
_LEAST_BYTES = 1 << 20
_LEAST_ENTRIES = 16
_TOLD_SUSPECTS = 3
_MANY_MODULES = 16


class GrowthWatch:
    """See the module.

    Args:
        roots: What may be to blame, by name: the data set, the collate function.
        forked: Whether this process began as a copy of another.
        tell: Takes what is to be told.
    """

    def __init__(
        self, roots: dict[str, Any], *, forked: bool, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._roots = roots
        self._forked = forked
        self._tell = tell
        self._batches = 0
        self._interval_s = _FIRST_S
        self._look_at = 0.0
        self._first: Census | None = None
        # A copy has nothing for itself that it was not given page by page.
        self._taken = taken_bytes() if forked else None
        self._modules = len(sys.modules)
        self._private = self._private_first = self._taken[0] if self._taken else 0

    def made(self) -> None:
        """A batch has been made, and sent."""
        self._batches += 1
        began = time.perf_counter()
        if began < self._look_at:
            return
        try:
            self._look()
        except Exception:  # No batch is worth less for that.
            self._look_at = float("inf")
            return
        cost_s = time.perf_counter() - began
        self._look_at = began + max(self._interval_s, _COST_AT_FIRST * cost_s)
        longest_s = max(_LONGEST_S, _COST_IN_THE_END * cost_s)
        self._interval_s = min(2 * self._interval_s, longest_s)

    def _look(self) -> None:
        taken = taken_bytes()
        if self._first is None:
            self._first = census(self._roots)
            if self._taken is not None:
                self._say("pages that it was given", batches=0)
                if not self._has_taken(taken, _MUCH_BYTES):
                    return
        elif not self._has_taken(taken, _NO_NEWS_BYTES):
            self._say("")
            return
        memory = process_memory(os.getpid())
        if memory is not None:
            self._taken, self._private = taken, memory.private_bytes.value
            imported = self._has_imported()
            if imported:
                self._private_first = self._private
            self._say(memory.private_bytes.source, imported=imported)

    def _has_taken(self, taken: tuple[int, int] | None, least_bytes: int) -> bool:
        """Whether there may be so much more private memory than at the last look at all pages."""
        if taken is None or self._taken is None:
            return True
        pairs = zip(taken, self._taken, strict=True)
        return max(now - before for now, before in pairs) >= least_bytes

    def _has_imported(self) -> bool:
        """Whether there are many more modules than when all pages were last gone through."""
        before, self._modules = self._modules, len(sys.modules)
        return self._modules - before >= _MANY_MODULES

    def _say(self, source: str, batches: int | None = None, *, imported: bool = False) -> None:
        self._private_first = self._private_first or self._private
        look = Look(
            os.getpid(),
            self._batches if batches is None else batches,
            self._private,
            source,
            open_files(),
            self._forked,
            self._suspects(),
            imported,
        )
        self._tell({"look": look})

    def _suspects(self) -> tuple[Suspect, ...]:
        first = self._first
        assert first is not None
        now = census(self._roots) if self._batches > 1 else first
        found = []
        for path, holding in now.holdings.items():
            was = first.holdings.get(path)
            if was is None and not first.is_whole:
                was = holding  # It may have been there.
            suspect = suspected(was, holding, forked=self._forked)
            if suspect is not None:
                found.append(suspect)
        return ranked(found, self._private - self._private_first)


def ranked(suspects: list[Suspect], grown_bytes: int) -> tuple[Suspect, ...]:
    """The likeliest first: those that explain most of the growth; of these, what has grown itself.

    Args:
        suspects: What may be to blame.
        grown_bytes: How much private memory has grown.
    """
    most = max(grown_bytes, 0)
    suspects.sort(key=lambda each: (min(each.size_bytes, most), each.has_grown), reverse=True)
    return tuple(suspects[:_TOLD_SUSPECTS])


def suspected(before: Holding | None, now: Holding, *, forked: bool) -> Suspect | None:
    """Whether a container may be why the memory of its worker grows.

    Args:
        before: As it was at the first look; None: it was not there.
        now: As it is.
        forked: Whether the worker began as a copy of another process.
    """
    count, size_bytes = (before.count, before.all_bytes) if before else (0, 0)
    grown = now.all_bytes - size_bytes
    longer = now.count - count >= _LEAST_ENTRIES
    if grown >= _LEAST_BYTES:
        return Suspect(now.path, now.kind, now.of, now.count, count, grown, True)
    if longer and now.kind == "cache of a function":
        return Suspect(now.path, now.kind, now.of, now.count, count, max(0, grown), True)
    if forked and now.object_bytes >= _LEAST_BYTES:
        return Suspect(now.path, now.kind, now.of, now.count, count, now.object_bytes, False)
    return None
