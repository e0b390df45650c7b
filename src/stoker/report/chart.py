"""A small chart for the terminal. Pure: no colours, no questions to the terminal."""

from __future__ import annotations

import plotext

from stoker.tuning.recommend import CountSummary
from stoker.tuning.wording import number

WIDTH, HEIGHT = 64, 11
MOST_BARS = 12


def rate_chart(counts: tuple[CountSummary, ...], width: int = WIDTH) -> str:
    """Batches a second by number of workers; empty with fewer than two counts.

    Args:
        counts: What was measured.
        width: Columns there are room for.
    """
    if len(counts) < 2:
        return ""
    rates = [summary.batches_per_s for summary in counts]
    places = list(range(1, len(counts) + 1))
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(min(width, WIDTH), HEIGHT)
    figure.title("batches/s by num_workers")
    if len(counts) <= MOST_BARS:
        figure.draw(figure.bar(places, rates, width=0.3))
    else:
        figure.draw(figure.signal(places, rates, marker="•"))
    step = -(-len(counts) // MOST_BARS)
    labels = [str(summary.num_workers) for summary in counts]
    figure.ruler("x").ticks(places[::step], labels[::step])
    figure.ruler("x").lim(0.5, len(counts) + 0.5)
    figure.ruler("y").lim(0, max(rates) * 1.1)
    marks = [0.0, max(rates) / 2, max(rates)]
    figure.ruler("y").ticks(marks, [number(mark) for mark in marks])
    lines = str(plotext.uncolorize(figure.build())).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())
