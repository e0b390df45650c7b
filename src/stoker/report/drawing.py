"""What every plot of the page has in common: its look, its legend and its table. Pure.

Colours are the page's CSS variables. The page puts their values in when it draws, and again
when its reader goes from light to dark.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mark = Literal["block", "line", "dashed", "dot", "triangle", "cross", "ring", "diamond"]
CLEAR = "rgba(0,0,0,0)"


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; the first column names the row."""

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a CSS variable's name, as "--step", and what it stands for."""

    mark: Mark
    colour: str
    text: str


@dataclass(frozen=True)
class Stretch:
    """A part of the horizontal axis that a button leads to."""

    text: str
    from_s: float
    to_s: float


@dataclass(frozen=True)
class Plot:
    """A plot and all that stands around it.

    Attributes:
        title: Its heading.
        sentence: What is to be seen in it.
        spoken: What it shows, for those who can't see it.
        keys: Its legend.
        table: The same in numbers.
        figure: Plotly's JSON; None where there is too little to draw.
        height_px: How high it is drawn.
        stretches: Parts that a button leads to.
        more: Further tables, each with its name.
    """

    title: str
    sentence: str
    spoken: str
    keys: tuple[Key, ...]
    table: Table
    figure: str | None
    height_px: int = 300
    stretches: tuple[Stretch, ...] = ()
    more: tuple[tuple[str, Table], ...] = ()


def shown(text: str) -> str:
    """`text` for inside a figure, where plotly would take tags and entities for markup."""
    return html.escape(text, quote=False)


def colour(name: str) -> str:
    """The page's colour of that name."""
    return f"var({name})"


def axis(title: str = "", **others: Any) -> dict[str, Any]:
    """An axis that is quiet, and that a finger on a phone does not get caught in."""
    soft = {"color": colour("--soft"), "size": 12}
    return {
        "title": {"text": title, "font": soft, "standoff": 10},
        "tickfont": soft,
        "gridcolor": colour("--grid"),
        "linecolor": colour("--rule"),
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        **others,
    }


def figure_json(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    """A figure that plotly has checked, as JSON that may stand in a page's script element."""
    from plotly import graph_objects

    look = {
        "autosize": True,
        "margin": {"l": 8, "r": 14, "t": 12, "b": 8},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": colour("--ink")},
        "hoverlabel": {
            "bgcolor": colour("--paper"),
            "bordercolor": colour("--rule"),
            "font": {"color": colour("--ink"), "size": 13},
            "align": "left",
        },
    }
    figure = graph_objects.Figure(list(traces), {**look, **layout, "template": "none"})
    return script_json(figure.to_plotly_json())


def script_json(value: Any) -> str:
    """JSON without a character that could end a script element or start a comment in it."""
    text = json.dumps(_finite(value), allow_nan=False, ensure_ascii=True)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
