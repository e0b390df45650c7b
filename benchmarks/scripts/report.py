"""One table for the terminal and for Markdown, and everything for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from rich.table import Table

from benchmarks.auto.figures import MOST_OTHERS_CPUS
from benchmarks.figures import Figure
from benchmarks.machine import Machine
from benchmarks.scripts.figures import LEAST_SHARE, MOST_OF_SWEEP, MOST_S, Row

COLUMNS = (
    "script",
    "line",
    "best",
    "fewest",
    "answer",
    "share",
    "time",
    "start",
    "reached",
)
LEFT = ("script", "line", "reached")
KEY = (
    "line: the one that makes the loader. best: the count with the highest rate in the sweeps, "
    f"and its batches/s. fewest: that come within {1 - LEAST_SHARE:.0%} of it. answer: what "
    "stoker tune says without a sweep; share: its rate in the sweeps, of the best. time: "
    "of stoker tune, and of a sweep. start: what comes on top of either, a run that is stopped "
    "after one batch: the program's own start and end. reached: "
    f"a share of at least {LEAST_SHARE:.0%}, no more workers than the fewest, in at most "
    f"{MOST_S:g} s a loader or {MOST_OF_SWEEP:.0%} of a sweep."
)


def table(rows: Sequence[Row]) -> Table:
    result = Table(title="The answer for whole programs beside exhaustive sweeps")
    for column in COLUMNS:
        side: Literal["left", "right"] = "left" if column in LEFT else "right"
        result.add_column(column, justify=side, no_wrap=column == LEFT[0])
    for row in rows:
        result.add_row(*_cells(row))
    return result


def notes(rows: Sequence[Row]) -> list[str]:
    """How to read the table, what failed, and which rows to doubt."""
    first = {row.program: row for row in reversed(rows)}
    failed = [f"{row.program}: {why}" for row in first.values() for why in row.failures]
    doubts = [
        f"{row.program}: other programs used {row.others_cpus:.1f} CPUs meanwhile"
        for row in first.values()
        if row.others_cpus > MOST_OTHERS_CPUS
    ]
    return [KEY, *failed, *doubts] if rows else []


def markdown(machine: Machine, repeats: int, rows: Sequence[Row]) -> str:
    lines = [f"Medians of {repeats} sweeps. {machine}.", ""]
    lines += [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ["---"] * len(COLUMNS))]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    lines += ["", *(f"- {' '.join(line.split())}" for line in notes(rows))]
    return "\n".join(lines) + "\n"


def as_json(machine: Machine, repeats: int, rows: Sequence[Row]) -> str:
    """Every rate of every sweep, and what was answered."""
    facts = {
        "machine": asdict(machine),
        "repeats": repeats,
        "rows": [_row_facts(row) for row in rows],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)


def _row_facts(row: Row) -> dict[str, Any]:
    derived = {"best": row.best, "fewest": row.fewest, "answer": row.answer, "share": row.share}
    return asdict(row) | derived | {"of_sweep": row.of_sweep, "missed": row.missed()}


def _cells(row: Row) -> list[str]:
    return [
        row.program,
        row.loader.removeprefix(f"{row.program}.py:") or "-",
        _best(row),
        _or_dash(row.fewest, "d"),
        _or_dash(row.answer, "d"),
        _or_dash(row.share, ".1%"),
        _time(row),
        f"{row.start_s:.1f} s",
        ", ".join(row.missed()) or "yes",
    ]


def _best(row: Row) -> str:
    if row.best is None:
        return "-"
    figure = Figure.of(row.rates(row.best))
    spread = "" if figure.spread is None else f" ±{figure.spread:.0%}"
    return f"{row.best}: {figure.per_s:,.{0 if figure.per_s >= 1000 else 1}f}{spread}"


def _time(row: Row) -> str:
    if row.sweep_s is None:
        return f"{row.tune_s:.1f} s"
    return f"{row.tune_s:.1f} of {row.sweep_s:.0f} s, {row.of_sweep:.0%}"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
