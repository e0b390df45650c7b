"""What was measured with each number of workers: speed, first batch, memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stoker.report.drawing import Key, Mark, Plot, Table, axis, colour, figure_json
from stoker.tuning.answer import Answer, Rate
from stoker.tuning.table import memory
from stoker.tuning.wording import count_of, duration, number, percent, workers

SERIES_COLOURS = ("--accent", "--second", "--third", "--fourth")
SERIES_SYMBOLS = ("circle", "square", "triangle-up", "cross")
SERIES_MARKS: tuple[Mark, ...] = ("dot", "block", "triangle", "cross")
FAR_AWAY = 3.0
"""A bound so many times above all that was measured would flatten the plot."""

Series = dict[str, list[Rate]]


def rate_plot(answer: Answer) -> Plot | None:
    """Batches a second by number of workers; None where nothing was measured."""
    if not answer.rates:
        return None
    groups = series(answer.rates)
    top = max(each.summary.batches_per_s + _spread_per_s(each) for each in answer.rates)
    bound = answer.bound_per_s
    near = bound is not None and 0 < bound <= FAR_AWAY * top
    traces, keys = _lines(groups, lambda rate: rate.summary.batches_per_s, _rate_text)
    for trace, rates in zip(traces, groups.values(), strict=True):
        trace["error_y"] = _spread_bars(rates)
    marks, mark_keys = _marks(answer)
    keys += mark_keys
    shapes: list[dict[str, Any]] = []
    if bound is not None and near:
        line = {"color": colour("--bound"), "width": 2, "dash": "dash"}
        shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": bound, "y1": bound}]
        shapes[0]["line"] = line
        keys.append(Key("dashed", "--bound", f"the most possible: {number(bound)}"))
        top = max(top, bound)
    figure = None
    if len(answer.rates) > 1 and top > 0:
        layout = {
            "xaxis": _count_axis(answer),
            "yaxis": axis("batches a second", range=[0, top * 1.14]),
            "shapes": shapes,
        }
        figure = figure_json([*traces, *marks], layout)
    return Plot(
        "Speed by number of workers",
        _rate_sentence(bound, near),
        "Batches a second by number of workers: " + _spoken(answer.rates, _rate_text),
        tuple(keys),
        rate_table(answer),
        figure,
        360,
    )


def _rate_sentence(bound: float | None, near: bool) -> str:
    told = (
        "Each point is a measurement on this machine; the higher, the faster, and the thin bars "
        "show how much repeats differed."
    )
    if bound is None:
        return told
    if near:
        return f"{told} The dashed line is the speed with batches that are all ready in advance."
    return f"{told} With all batches ready in advance it would be {number(bound)}, far above this."


def series(rates: Sequence[Rate]) -> Series:
    """The rates by whose loader and which prefetch; the largest group first."""
    groups: Series = {}
    for each in rates:
        groups.setdefault(series_name(each), []).append(each)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def series_name(rate: Rate) -> str:
    """Whose loader it was, and its prefetch where that is not the default."""
    name = "Stoker's loader" if rate.engine == "stoker" else "PyTorch's loader"
    if rate.prefetch_factor is None:
        return name
    return f"{name}, prefetch_factor={rate.prefetch_factor}"


def _lines(
    groups: Series, height: Callable[[Rate], float], told: Callable[[Rate], str]
) -> tuple[list[dict[str, Any]], list[Key]]:
    """A line for each group, over the number of workers."""
    traces, keys = [], []
    for place, (name, rates) in enumerate(groups.items()):
        shade = SERIES_COLOURS[place % len(SERIES_COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [_tick(each) for each in rates],
                "y": [height(each) for each in rates],
                "line": {"color": colour(shade), "width": 2},
                "marker": {
                    "color": colour(shade),
                    "size": 8,
                    "symbol": [_symbol(each, place) for each in rates],
                },
                "text": [f"{workers(each.summary.num_workers)}: {told(each)}" for each in rates],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
        mark: Mark = "line" if len(rates) > 1 else SERIES_MARKS[place % len(SERIES_MARKS)]
        keys.append(Key(mark, shade, name))
    return traces, keys


def _symbol(rate: Rate, place: int) -> str:
    symbol = SERIES_SYMBOLS[place % len(SERIES_SYMBOLS)]
    return symbol if rate.summary.complete else f"{symbol}-open"


def _spread_per_s(rate: Rate) -> float:
    return rate.summary.batches_per_s * (rate.summary.spread or 0.0)


def _spread_bars(rates: Sequence[Rate]) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [_spread_per_s(each) for each in rates],
        "thickness": 1.5,
        "width": 4,
    }


def _marks(answer: Answer) -> tuple[list[dict[str, Any]], list[Key]]:
    """The present setting and the recommended one, each as a sign around its point."""
    traces, keys = [], []
    for place, mark, symbol, shade, size, text in (
        (present(answer), "diamond", "diamond-open", "--now", 20, "now"),
        (recommended(answer), "ring", "circle-open", "--good", 22, "recommended"),
    ):
        if place is None:
            continue
        count, per_s = place
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": text,
                "x": [str(count)],
                "y": [per_s],
                "marker": {
                    "symbol": symbol,
                    "size": size,
                    "color": colour(shade),
                    "line": {"color": colour(shade), "width": 3},
                },
                "hoverinfo": "skip",
            }
        )
        sign: Mark = "ring" if mark == "ring" else "diamond"
        keys.append(Key(sign, shade, f"{text}: {workers(count)}"))
    return traces, keys


def present(answer: Answer) -> tuple[int, float] | None:
    """The number of workers that there are now, and the rate with it."""
    for each in answer.rates:
        if each.own:
            return each.summary.num_workers, each.summary.batches_per_s
    if answer.loader is None or answer.now_per_s is None:
        return None
    return answer.loader.num_workers, answer.now_per_s


def recommended(answer: Answer) -> tuple[int, float] | None:
    """The recommended number of workers, and the measured rate that is nearest to its own."""
    if answer.advice is None:
        return None
    count, per_s = answer.advice.num_workers, answer.advice.batches_per_s
    those = [each.summary for each in answer.rates if each.summary.num_workers == count]
    rates = [each.batches_per_s for each in those]
    return count, min(rates, key=lambda rate: abs(rate - per_s), default=per_s)


def _tick(rate: Rate) -> str:
    return str(rate.summary.num_workers)


def _count_axis(answer: Answer) -> dict[str, Any]:
    counts = {each.summary.num_workers for each in answer.rates}
    counts |= {place[0] for place in (present(answer), recommended(answer)) if place}
    ticks = [str(count) for count in sorted(counts)]
    return axis(
        "workers (num_workers)",
        type="category",
        categoryorder="array",
        categoryarray=ticks,
        range=[-0.6, len(ticks) - 0.4],
        showgrid=False,
        tickangle=0,
    )


def _rate_text(rate: Rate) -> str:
    spread = rate.summary.spread
    off = "" if spread is None else f" ± {percent(spread)}"
    return f"{number(rate.summary.batches_per_s)}{off}"


def _spoken(rates: Sequence[Rate], told: Callable[[Rate], str]) -> str:
    return "; ".join(f"{workers(each.summary.num_workers)} {told(each)}" for each in rates) + "."


def rate_table(answer: Answer) -> Table:
    """Everything measured, a row a setting; columns that nobody filled are left out."""
    chosen = recommended(answer)
    columns: list[tuple[str, list[str]]] = [
        ("workers", [_tick(each) for each in answer.rates]),
        ("loader", [series_name(each) for each in answer.rates]),
        ("batches/s", [number(each.summary.batches_per_s) for each in answer.rates]),
        ("± spread", [_share(each.summary.spread) for each in answer.rates]),
        ("whole epoch, batches/s", [number(r.summary.epoch_batches_per_s) for r in answer.rates]),
        ("waiting", [percent(each.waiting) for each in answer.rates]),
        ("first batch after", [_first_batch(each) for each in answer.rates]),
        ("memory", [_memory(each.memory_bytes) for each in answer.rates]),
        ("workers busy", [_number(each.busy_workers) for each in answer.rates]),
        ("CPUs used", [_number(each.cpus_used) for each in answer.rates]),
        ("measured", [count_of(each.summary.repeats, "time") for each in answer.rates]),
        ("", [_remark(each, chosen) for each in answer.rates]),
    ]
    filled = [column for column in columns if any(column[1])]
    rows = zip(*(cells for _, cells in filled), strict=True)
    return Table(tuple(name for name, _ in filled), tuple(rows))


def _remark(rate: Rate, chosen: tuple[int, float] | None) -> str:
    place = rate.summary.num_workers, rate.summary.batches_per_s
    told = [
        text
        for text, holds in (
            ("now", rate.own),
            ("recommended", place == chosen),
            ("cut short", not rate.summary.complete),
            ("too few batches for a steady rate", rate.summary.method == "brief"),
        )
        if holds
    ]
    return ", ".join(told)


def _first_batch(rate: Rate) -> str:
    """Empty for 0, which is written where no epoch's beginning was seen."""
    first_s = rate.summary.first_batch_s
    return duration(first_s) if first_s > 0 else ""


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def _memory(size_bytes: int | None) -> str:
    return "" if size_bytes is None else memory(size_bytes)


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def first_batch_plot(answer: Answer) -> Plot | None:
    """Time to the first batch by number of workers; None with fewer than two settings."""
    timed = [each for each in answer.rates if each.summary.first_batch_s > 0]
    told = {each: each.summary.first_batch_s for each in timed}
    if len(told) < 2:
        return None
    return _cost_plot(
        answer,
        told,
        duration,
        (1.0, "seconds") if max(told.values()) >= 1 else (1e3, "milliseconds"),
        "Time to the first batch",
        "How long an epoch takes to deliver its first batch: workers have to be started, and "
        "more of them take longer.",
    )


def memory_plot(answer: Answer) -> Plot | None:
    """Memory by number of workers; None where it is known for fewer than two settings."""
    told = {each: each.memory_bytes for each in answer.rates if each.memory_bytes is not None}
    if len(told) < 2 or not any(told.values()):
        return None
    unit = (1 / 2**30, "GiB") if max(told.values()) >= 2**30 else (1 / 2**20, "MiB")
    return _cost_plot(
        answer,
        {rate: float(size) for rate, size in told.items()},
        memory,
        unit,
        "Memory",
        "What the workers need for themselves, with the batches that wait to be used.",
    )


def _cost_plot(
    answer: Answer,
    told: dict[Rate, float],
    words: Callable[[float], str],
    unit: tuple[float, str],
    title: str,
    sentence: str,
) -> Plot:
    scale, unit_name = unit
    traces, keys = _lines(
        series(tuple(told)), lambda rate: told[rate] * scale, lambda rate: words(told[rate])
    )
    layout = {
        "xaxis": _count_axis(answer),
        "yaxis": axis(unit_name, rangemode="tozero", nticks=5),
    }
    rows = tuple((_tick(rate), series_name(rate), words(value)) for rate, value in told.items())
    spoken = f"{title} by number of workers: " + _spoken(tuple(told), lambda r: words(told[r]))
    drawn = figure_json(traces, layout)
    return Plot(
        title, sentence, spoken, tuple(keys), Table(("workers", "loader", title), rows), drawn, 250
    )
