"""The timeline of the consumer and the workers. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.report.drawing import Key, Plot, Stretch, Table, axis, colour, figure_json, shown
from stoker.report.plot_rates import present, recommended
from stoker.tuning.answer import Answer, Span
from stoker.tuning.wording import count_of, duration, workers

MOST_SPANS = 4000
MOST_ROWS = 500
AT_FIRST = 120
MOST_STRETCHES = 6
PAUSE_S = 1.0
NAMES = {
    "step": ("--step", "training step"),
    "wait": ("--wait", "waiting for a batch"),
    "load": ("--load", "making a batch, training stands still"),
    "make": ("--make", "a worker makes a batch"),
    "start": ("--handling", "a worker starts"),
    "replay": ("--off", "replaying ready batches"),
}


def timeline_plot(answer: Answer) -> Plot | None:
    """A row for the consumer and for each worker; None without a timeline."""
    spans = _some(answer.timeline)
    if not spans:
        return None
    tracks = ordered_tracks(spans)
    names = list(dict.fromkeys(span.name for span in spans if span.end_s > span.start_s))
    stretches = _stretches(spans, _meanings(answer))
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "dragmode": "zoom",
        "xaxis": axis(
            "seconds since the start",
            fixedrange=False,
            range=[stretches[0].from_s, stretches[0].to_s],
        ),
        "yaxis": axis(
            type="category",
            categoryorder="array",
            categoryarray=[shown(_row(track)) for track in tracks],
            range=[len(tracks) - 0.5, -0.5],
            showgrid=False,
        ),
    }
    return Plot(
        "Timeline",
        _sentence(answer),
        _spoken(spans, tracks),
        tuple(Key("block", *_look(name)) for name in names),
        _totals(spans),
        figure_json([_trace(name, spans) for name in names], layout) if names else None,
        90 + 34 * len(tracks),
        stretches,
        ((f"Every stretch ({min(len(spans), MOST_ROWS):,})", _table(spans[:MOST_ROWS])),),
    )


def ordered_tracks(spans: Sequence[Span]) -> list[str]:
    """The consumer, then the workers by their numbers, then whatever else there is."""

    def place(track: str) -> tuple[int, int, str]:
        found = re.fullmatch(r"worker ([0-9]+)", track, re.ASCII)
        if found:
            return 1, int(found[1]), track
        return (0 if track == "consumer" else 2), 0, track

    return sorted({span.track for span in spans}, key=place)


def _row(track: str) -> str:
    return "training" if track == "consumer" else track


def _look(name: str) -> tuple[str, str]:
    return NAMES.get(name, ("--order", name))


def _sentence(answer: Answer) -> str:
    told = (
        "Who did what, and when: a good picture has the training's row full of steps. Drag over "
        "a part, or use the buttons, to look closer."
    )
    if len(answer.timeline) > MOST_SPANS:
        told += (
            f" This is a part of the {len(answer.timeline):,} stretches that were recorded; "
            "stoker tune --trace FILE writes them all."
        )
    return told


def _trace(name: str, spans: Sequence[Span]) -> dict[str, Any]:
    shade, _ = _look(name)
    those = [span for span in spans if span.name == name]
    return {
        "type": "bar",
        "orientation": "h",
        "name": shown(name),
        "y": [shown(_row(span.track)) for span in those],
        "base": [span.start_s for span in those],
        "x": [span.end_s - span.start_s for span in those],
        "text": [shown(_told(span)) for span in those],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour(shade), "line": {"width": 0}},
    }


def _told(span: Span) -> str:
    batch = "" if span.batch is None else f", batch {span.batch}"
    took = duration(span.end_s - span.start_s)
    return f"{_look(span.name)[1]}{batch}: {took} ({workers(span.num_workers)})"


def _meanings(answer: Answer) -> dict[int, str]:
    """What the numbers of workers are that matter, for the buttons."""
    found = {}
    for place, meaning in ((recommended(answer), "recommended"), (present(answer), "now")):
        if place is not None:
            found[place[0]] = meaning
    return found


def _some(spans: Sequence[Span]) -> Sequence[Span]:
    """At most `MOST_SPANS`: of many, the beginning of each run."""
    if len(spans) <= MOST_SPANS:
        return spans
    runs = _runs_by_count(spans)
    each = max(1, MOST_SPANS // len(runs))
    kept = [span for run in runs for span in run[:each]][:MOST_SPANS]
    return sorted(kept, key=lambda span: span.start_s)


def _runs_by_count(spans: Sequence[Span]) -> list[list[Span]]:
    counts = dict.fromkeys(span.num_workers for span in spans)
    return [run for n in counts for run in _runs([s for s in spans if s.num_workers == n])]


def _stretches(spans: Sequence[Span], meanings: Mapping[int, str]) -> tuple[Stretch, ...]:
    """Where something was seen with a number of workers without a pause; the beginning of each."""
    runs = _runs_by_count(spans)
    found = [_stretch(_named(run[0].num_workers, meanings), run[:AT_FIRST]) for run in runs]
    found.sort(key=lambda stretch: stretch.from_s)
    first = {stretch.text: stretch for stretch in reversed(found)}  # the same words lead to one
    kept = sorted(first.values(), key=lambda stretch: stretch.from_s)
    return (*kept[:MOST_STRETCHES], _stretch("everything", spans))


def _named(count: int, meanings: Mapping[int, str]) -> str:
    meaning = meanings.get(count)
    return f"{workers(count)} ({meaning})" if meaning else workers(count)


def _runs(spans: Sequence[Span]) -> list[list[Span]]:
    runs: list[list[Span]] = []
    end_s = -math.inf
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.start_s - end_s > PAUSE_S:
            runs.append([])
        runs[-1].append(span)
        end_s = max(end_s, span.end_s)
    return runs


def _stretch(text: str, spans: Sequence[Span]) -> Stretch:
    begin_s, end_s = min(span.start_s for span in spans), max(span.end_s for span in spans)
    margin_s = max((end_s - begin_s) * 0.01, 1e-6)
    return Stretch(text, begin_s - margin_s, end_s + margin_s)


def _spoken(spans: Sequence[Span], tracks: Sequence[str]) -> str:
    begin_s, end_s = min(s.start_s for s in spans), max(s.end_s for s in spans)
    rows = ", ".join(map(_row, tracks[:6])) + (", and more" if len(tracks) > 6 else "")
    when = f"from {begin_s:.2f} s to {end_s:.2f} s"
    return f"Timeline of {count_of(len(tracks), 'row')} ({rows}) {when}."


def _totals(spans: Sequence[Span]) -> Table:
    groups: dict[tuple[int, str, str], list[float]] = {}
    places = {track: place for place, track in enumerate(ordered_tracks(spans))}
    for span in sorted(spans, key=lambda span: (span.num_workers, places[span.track])):
        key = (span.num_workers, span.track, span.name)
        groups.setdefault(key, []).append(span.end_s - span.start_s)
    rows = tuple(
        (str(count), _row(track), _look(name)[1], f"{len(took):,}", duration(sum(took)))
        for (count, track, name), took in groups.items()
    )
    return Table(("workers", "row", "what", "how often", "together"), rows)


def _table(spans: Sequence[Span]) -> Table:
    rows = tuple(
        (
            _row(span.track),
            _look(span.name)[1],
            "" if span.batch is None else str(span.batch),
            f"{span.start_s:.4f}",
            duration(span.end_s - span.start_s),
            str(span.num_workers),
        )
        for span in spans
    )
    return Table(("row", "what", "batch", "from, s", "took", "workers"), rows)
