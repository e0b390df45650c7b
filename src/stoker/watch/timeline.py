"""What the consumer and the workers did when, for people to look at. Bounded."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.tuning.answer import Span
from stoker.watch.marks import Mark
from stoker.watch.sources import Source

_A_SOURCE, _ALL = 400, 200_000
"""Spans kept of one visit to a setting, and of a whole run whose trace was asked for."""


class Timeline:
    """Spans of one site.

    Args:
        began_s: What the spans' seconds count from.
        keep_all: Whether every span is wanted, up to a bound.
    """

    def __init__(self, began_s: float, *, keep_all: bool) -> None:
        self.spans: list[Span] = []
        self._began_s = began_s
        self._keep_all = keep_all
        self._of: Source | None = None
        self._left = _A_SOURCE
        self._workers = 0

    def consumer(self, name: str, start_s: float, end_s: float, source: Source) -> None:
        """The consumer waited for a batch, or made it."""
        if source is not self._of:
            self._of, self._left, self._workers = source, _A_SOURCE, source.workers
        self._add("consumer", name, start_s, end_s, source.served - 1)

    def step(self, start_s: float, end_s: float) -> None:
        """The consumer's own step."""
        self._add("consumer", "step", start_s, end_s, None)

    def replay(self, now: float) -> None:
        """A batch that was ready was handed out."""
        self._add("consumer", "replay", now, now, None)

    def workers(self, marks: Iterable[tuple[int, Mark]], source: Source) -> None:
        """Workers have made batches."""
        for worker, mark in marks:
            if mark.end_s:
                number = mark.first * max(1, source.workers) + worker
                self._add(f"worker {worker}", "make", mark.start_s, mark.end_s, number)

    def _add(self, track: str, name: str, start_s: float, end_s: float, batch: int | None) -> None:
        if self._keep_all:
            if len(self.spans) >= _ALL:
                return
        elif self._left <= 0:
            return
        self._left -= 1
        start_s, end_s = start_s - self._began_s, end_s - self._began_s
        self.spans.append(Span(track, name, start_s, end_s, batch, self._workers))
