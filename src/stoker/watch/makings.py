"""What the workers of a source have noted down, read by the process that watches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stoker.watch.marks import Mark, MarkReader
from stoker.watch.sources import Source

_KEPT_ENDS = 4096


class Makings:
    """Reads what the workers of one source make; for sources with workers.

    Args:
        source: Whose.
        folder: Where workers note it down.
    """

    def __init__(self, source: Source, folder: str) -> None:
        self._source, self._folder = source, folder
        self._readers: list[MarkReader] = []
        self._totals: Any = None
        self._ends: dict[int, float] = {}
        self._known = True
        account = getattr(source.loader, "_account", None)
        self._meter = account.meter if account is not None else None
        if self._meter is None:
            self._readers = [MarkReader(folder, pid) for pid in source.pids]
            if source.stays:  # they may have served before
                self._known = sum(each.skip() for each in self._readers) == 0
        else:
            self._totals = self._meter.totals.copy()

    def new(self) -> Iterator[tuple[int, Mark]]:
        """What came since the last call, with the number of its worker."""
        if self._meter is not None:
            yield 0, self._of_stoker()
            return
        for worker, reader in enumerate(self._readers):
            for mark in reader.new():
                self._note_ends(worker, mark)
                yield worker, mark

    def out_of_turn_s(self, batch: int, entered_s: float, got_s: float) -> float:
        """Of the wait for a batch, how long a later one was ready and it was not.

        Args:
            batch: Number of the batch that was waited for, among all of the source.
            entered_s: When the wait began.
            got_s: When it ended.
        """
        ready = [end for later, end in self._ends.items() if later > batch]
        made_s = min(got_s, self._ends.get(batch, got_s))  # what follows is bringing it over
        return max(0.0, made_s - max(entered_s, min(ready, default=made_s)))

    @property
    def order_s(self) -> float:
        """Of all waits, how long a later batch was ready; as Stoker's own loader counts it."""
        return float(self._meter.totals.order_s) if self._meter is not None else 0.0

    def close(self) -> None:
        """Its workers have ended, unless they stay: what they noted down is removed."""
        if self._source.stays:
            return
        for reader in self._readers:
            reader.forget()

    def _of_stoker(self) -> Mark:
        assert self._meter is not None
        before, after = self._totals, self._meter.totals.copy()
        self._totals = after
        starved_s = after.starved_s - before.starved_s if self._meter.starved_known else -1.0
        return Mark(
            first=before.made,
            count=after.made - before.made,
            start_s=0.0,
            end_s=0.0,
            busy_s=after.busy_s - before.busy_s,
            cpu_s=after.cpu_s - before.cpu_s,
            starved_s=starved_s,
            size_bytes=self._meter.batch_bytes,
        )

    def _note_ends(self, worker: int, mark: Mark) -> None:
        """PyTorch's workers take batches in turn: batch k is made by worker k modulo n."""
        if self._source.served_before or not self._known:  # no longer known in a second epoch
            return
        for made in range(mark.first, mark.first + mark.count):
            self._ends[made * len(self._readers) + worker] = mark.end_s
        for old in sorted(self._ends)[: max(0, len(self._ends) - _KEPT_ENDS)]:
            del self._ends[old]
