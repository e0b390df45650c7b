"""Where the time of a batch goes, and how long the waits were. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stoker.report.drawing import Key, Plot, Table, axis, colour, figure_json
from stoker.tuning.answer import Answer, Parts
from stoker.tuning.wording import count_of, duration, percent, workers

LONGER = "longer"

Piece = tuple[str, str, float]
"""What it is, the colour's name, and seconds."""


def parts_plot(answer: Answer) -> Plot | None:
    """The time of a batch now and as recommended; None where it was not measured."""
    best = None if answer.best_parts == answer.parts else answer.best_parts
    rows = [
        row
        for name, parts in (("now", answer.parts), ("recommended", best))
        if parts is not None
        for row in _rows(name, parts)
    ]
    shown_rows = [(label, told, pieces) for label, told, pieces in rows if pieces]
    if not shown_rows:
        return None
    table = Table(
        ("", "what", "time a batch", "share"),
        tuple(
            (told, what, duration(took_s), percent(took_s / sum(p[2] for p in pieces)))
            for _, told, pieces in shown_rows
            for what, _, took_s in pieces
        ),
    )
    keys = {(what, shade): None for _, _, pieces in shown_rows for what, shade, _ in pieces}
    return Plot(
        "Where the time of a batch goes",
        "The upper bar of each pair is the time between two batches as the training sees it; the "
        "lower one is the making of one batch, which several workers do at the same time.",
        " ".join(f"{told}: {_spoken(pieces)}." for _, told, pieces in shown_rows),
        tuple(Key("block", shade, what) for what, shade in keys),
        table,
        figure_json(_stacks(shown_rows), _stack_layout(shown_rows)),
        70 + 58 * len(shown_rows),
    )


def _rows(name: str, parts: Parts) -> list[tuple[str, str, list[Piece]]]:
    """Label, the same in full, and the pieces that take any time."""
    order_s = min(max(parts.order_s, 0.0), parts.waited_s)
    consumer = [
        ("training step", "--step", parts.step_s),
        ("waiting for a batch", "--wait", parts.waited_s - order_s),
        ("waiting, while a later batch was ready", "--order", order_s),
        ("receiving a batch", "--handling", parts.handling_s),
        ("making the batch, training stands still", "--load", parts.loading_s),
    ]
    making = [
        ("computing on a CPU", "--make", parts.computing_s),
        ("waiting for storage, network or a lock", "--off", parts.off_cpu_s),
        ("ready to run, but no CPU was free", "--starved", parts.starved_s),
    ]
    who = "a worker" if parts.num_workers else "making"
    told = f"{name}, with {workers(parts.num_workers)}"
    return [
        (f"<b>{name}</b><br>training", f"{told}: between two batches", _lasting(consumer)),
        (f"<b>{name}</b><br>{who}", f"{told}: making one batch", _lasting(making)),
    ]


def _lasting(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece[2] > 0]


def _spoken(pieces: Sequence[Piece]) -> str:
    return ", ".join(f"{what} {duration(took_s)}" for what, _, took_s in pieces)


def _stacks(rows: Sequence[tuple[str, str, list[Piece]]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": what,
            "y": [label],
            "x": [took_s * 1e3],
            "marker": {
                "color": colour(shade),
                "line": {"width": 1, "color": colour("--paper")},
            },
            "text": [duration(took_s)],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": colour("--on-bar")},
            "hovertemplate": f"{what}: %{{text}}<extra></extra>",
        }
        for label, _, pieces in rows
        for what, shade, took_s in pieces
    ]


def _stack_layout(rows: Sequence[tuple[str, str, list[Piece]]]) -> dict[str, Any]:
    labels = [label for label, _, _ in rows]
    return {
        "barmode": "stack",
        "bargap": 0.32,
        "uniformtext": {"minsize": 11, "mode": "hide"},
        "xaxis": axis("milliseconds a batch", nticks=6),
        "yaxis": axis(
            type="category",
            categoryorder="array",
            categoryarray=labels,
            range=[len(labels) - 0.5, -0.5],
            showgrid=False,
        ),
    }


def waits_plot(answer: Answer) -> Plot | None:
    """How many waits were how long; None where none were counted."""
    total = sum(count for _, count in answer.waits)
    if total <= 0:
        return None
    last = max(place for place, (_, count) in enumerate(answer.waits, 1) if count > 0)
    waits = answer.waits[:last]
    names = [duration(bound_s) if math.isfinite(bound_s) else LONGER for bound_s, _ in waits]
    counts = [count for _, count in waits]
    told = [
        f"{_bounded(name)}: {count_of(count, 'wait')}, {percent(count / total)}"
        for name, count in zip(names, counts, strict=True)
    ]
    trace = {
        "type": "bar",
        "x": list(range(len(counts))),
        "y": counts,
        "text": told,
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour("--wait"), "line": {"width": 0}},
    }
    layout = {
        "bargap": 0.06,
        "xaxis": axis(
            "a wait of up to",
            showgrid=False,
            tickvals=list(range(len(counts))),
            ticktext=names,
        ),
        "yaxis": axis("waits", rangemode="tozero", nticks=5),
    }
    rows = tuple(
        (_bounded(name), f"{count:,}", percent(count / total))
        for name, count in zip(names, counts, strict=True)
    )
    return Plot(
        "How long the waits were",
        "Every wait of the training for a batch, short ones on the left: what costs time is on "
        "the right.",
        "Waits by their length: " + "; ".join(told) + ".",
        (),
        Table(("wait", "how many", "share"), rows),
        figure_json([trace], layout),
        280,
    )


def _bounded(name: str) -> str:
    return name if name == LONGER else f"up to {name}"
