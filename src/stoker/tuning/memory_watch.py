"""Tells once, by a warning, that the memory of a loader's workers grows; or their open files."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

from stoker.feed.meter import Meter
from stoker.host.memory import memory_facts
from stoker.host.process_memory import open_files_limit
from stoker.tuning.growth import (
    LEAST_BYTES,
    WorkerMemory,
    files_warning,
    is_substantial,
    too_many_files,
    warning,
    worker_memory,
)

_log = logging.getLogger("stoker")


class MemoryWatch:
    """See the module. Part of an account; called whenever a worker tells of its memory.

    Args:
        meter: What the workers tell.
        length: Tells how many batches an epoch has; None when unknown.
    """

    def __init__(self, meter: Meter, length: Callable[[], int | None]) -> None:
        self._meter = meter
        self._length = length
        self._told: set[str] = set()
        look = weakref.WeakMethod(self._look)
        meter.growing.heard = lambda: (call := look()) and call()

    def now(self) -> WorkerMemory | None:
        """What the workers have told until now; None where none has."""
        growing = self._meter.growing
        return worker_memory(
            list(growing.histories.values()), growing.peak_bytes, self._batches_left()
        )

    def _batches_left(self) -> int | None:
        length, totals = self._length(), self._meter.totals
        if not length:
            return None
        return length - totals.batches % length

    def _look(self) -> None:
        told = self.now()
        if told is None:
            return
        self._look_at_files()
        if told.grown_bytes < LEAST_BYTES:
            return
        self._meter.growing.likely = told.growth_likely, told.growth_change
        if "memory" in self._told:
            return
        available = memory_facts().available_bytes
        if is_substantial(told, available.value):
            self._told.add("memory")
            _log.warning("%s", warning(told, available.value, available.source))

    def _look_at_files(self) -> None:
        if "files" in self._told:
            return
        limit = open_files_limit()
        more = too_many_files(list(self._meter.growing.histories.values()), limit)
        if more is not None and limit is not None:
            self._told.add("files")
            _log.warning("%s", files_warning(more, limit))
