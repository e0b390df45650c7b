"""The page of ``stoker tune``: one HTML file that needs no network. Pure.

It holds its style, its script and plotly.js. Whatever a user wrote (names, code, errors) is
escaped: by the template's autoescape in the page, and by `drawing` in its figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from stoker.report import plain_words as words
from stoker.report.drawing import Plot, Table
from stoker.report.machine import cost_table, loader_table, machine_table
from stoker.report.plot_batch import parts_plot, waits_plot
from stoker.report.plot_rates import first_batch_plot, memory_plot, rate_plot
from stoker.report.plot_timeline import timeline_plot
from stoker.report.terminal import grouped
from stoker.tuning.answer import Answer, Report
from stoker.tuning.wording import count_of, duration, percent, sentence

if TYPE_CHECKING:
    from jinja2 import Template

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""What a browser lets the page do: run what is in it, and ask nobody for anything."""


@dataclass(frozen=True)
class View:
    """An answer with everything that the page shows of it; the plots with their places."""

    place: int
    answer: Answer
    headline: str
    short: str
    gain: str
    waiting: str
    badge: str
    certainty: str
    limit: str
    help: str
    tiles: list[words.Tile]
    rates: Plot | None
    beside: list[Plot]
    further: list[Plot]
    loader: Table
    cost: Table | None
    missing: str

    @property
    def plots(self) -> list[Plot]:
        """Every plot, in the order of the page."""
        first = [] if self.rates is None else [self.rates]
        return [*first, *self.beside, *self.further]


def page_html(report: Report) -> str:
    """The whole page as text, about 5 MB: nearly all of it is plotly.js.

    Args:
        report: What was found; any part of it may be missing.
    """
    from markupsafe import Markup

    views = [view(answer, place) for place, answer in enumerate(report.answers, 1)]
    drawn = any(plot.figure for each in views for plot in each.plots)
    page = _template().render(
        report=report,
        views=views,
        failures=grouped(report.failures),
        machine=machine_table(report),
        summary=_summary(report),
        policy=POLICY,
        style=Markup(_file("page.css")),
        script=Markup(_file("page.js")),
        plotly=Markup(_plotly()) if drawn else None,
        safe=Markup,
    )
    return page.strip() + "\n"


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(percent=percent, sentence=sentence, tail=_tail, tied=_tied)
    return environment.from_string(_file("page.html.jinja"))


def _file(name: str) -> str:
    return (files("stoker.report") / "templates" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def view(answer: Answer, place: int) -> View:
    """`answer` as it is shown, the `place`-th on its page."""
    rates = rate_plot(answer)
    beside = [first_batch_plot(answer), memory_plot(answer)]
    further = [parts_plot(answer), timeline_plot(answer), waits_plot(answer)]
    badge, certainty = words.certainty(answer)
    limit, help_text = words.limit_words(answer)
    return View(
        place=place,
        answer=answer,
        headline=words.headline(answer),
        short=words.short_verdict(answer),
        gain=words.gain_sentence(answer),
        waiting=words.waiting_sentence(answer),
        badge=badge,
        certainty=certainty,
        limit=limit,
        help=help_text,
        tiles=words.tiles(answer),
        rates=rates,
        beside=[plot for plot in beside if plot],
        further=[plot for plot in further if plot],
        loader=loader_table(answer),
        cost=cost_table(answer),
        missing=_missing(rates, *beside, *further, answer.lines),
    )


def _missing(*parts: object) -> str:
    """What there was nothing to show of, in one sentence; empty where all is there."""
    names = (
        "speed by number of workers",
        "time to the first batch by number of workers",
        "memory by number of workers",
        "where the time of a batch goes",
        "the timeline",
        "the lengths of the waits",
        "the dearest lines",
    )
    absent = [name for name, part in zip(names, parts, strict=True) if not part]
    return "" if not absent else f"Not measured in this run: {', '.join(absent)}."


def _summary(report: Report) -> str:
    count = len(report.answers)
    parts = [count_of(count, "loader") if count else "no loader"]
    parts.append(f"measured in {duration(report.elapsed_s)}")
    if report.ended:
        parts.append(report.ended)
    if report.exit_code is not None:
        parts.append(f"exit code {report.exit_code}")
    return " · ".join(parts)


def _tied(text: str) -> str:
    """`text` with numbers that stay on one line with their units."""
    return re.sub(r"(?<=[0-9]) (?=(?:%|[mµ]?s\b|[KMGT]iB\b|workers?\b|times\b))", "\u00a0", text)


def _tail(path: str) -> str:
    """The last part of a path, of either kind."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path
