"""Which stretches of a timeline are shown on a page. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stoker.tuning.answer import Span

SHOWN_SPANS = 600
"""More than that are not looked at one by one."""
BEGIN = 0.25
"""Share of a stretch that is left out: workers are filling up."""


def excerpt(spans: Sequence[Span], counts: Collection[int]) -> tuple[Span, ...]:
    """A stretch of each of these numbers of workers, in order of time and few enough to show."""
    each = SHOWN_SPANS // max(1, len(counts))
    shown = [span for count in sorted(counts) for span in _stretch(spans, count, each)]
    return tuple(sorted(shown, key=_begins))


def _stretch(spans: Sequence[Span], count: int, most: int) -> list[Span]:
    """The longest time in which nothing but this number ran, from a while after its begin on."""
    runs: list[list[Span]] = []
    before: int | None = None
    for span in sorted(spans, key=_begins):
        if span.name == "replay":
            before = None
            continue
        if span.num_workers == count:
            if before != count:
                runs.append([])
            runs[-1].append(span)
        before = span.num_workers
    longest = max(runs, key=len, default=[])
    skipped = min(int(BEGIN * len(longest)), max(0, len(longest) - most))
    return longest[skipped : skipped + most]


def _begins(span: Span) -> float:
    return span.start_s
