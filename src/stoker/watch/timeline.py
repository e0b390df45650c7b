"""What the consumer and the workers did when, for people to look at. Bounded."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.tuning.answer import Span
from stoker.tuning.probing import Setting
from stoker.watch.marks import Mark
from stoker.watch.sources import Source

_A_SETTING, _ALL, _MOST = 400, 200_000, 20_000
"""Spans kept of one setting, of a whole run whose trace was asked for, and of one otherwise."""


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
        self._left: dict[Setting, int] = {}
        self._setting: Setting | None = None
        self._workers = 0

    def consumer(self, name: str, start_s: float, end_s: float, source: Source) -> None:
        """The consumer waited for a batch, or made it."""
        self._setting, self._workers = source.setting, source.workers
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
        elif not self._has_room():
            return
        start_s, end_s = start_s - self._began_s, end_s - self._began_s
        self.spans.append(Span(track, name, start_s, end_s, batch, self._workers))

    @property
    def wants_more(self) -> bool:
        """Whether single spans of this setting are still kept."""
        if self._keep_all or self._setting is None:
            return True
        return self._left.get(self._setting, _A_SETTING) > 0 and len(self.spans) < _MOST

    def _has_room(self) -> bool:
        if self._setting is None or len(self.spans) >= _MOST:
            return False
        left = self._left.get(self._setting, _A_SETTING)
        self._left[self._setting] = left - 1
        return left > 0
