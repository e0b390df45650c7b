"""How a foretelling looks: in a terminal and as JSON, schema 1. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from stoker.report.width import fitting
from stoker.tuning.answer import Report
from stoker.tuning.foretold import Foretold, Machine, Range, Row
from stoker.tuning.table import memory
from stoker.tuning.wording import count_of, duration, number, percent, workers

SCHEMA = 1
COLUMNS = ("workers", "batches/s", "from .. to", "waiting", "memory")
DISPENSABLE = ("memory", "from .. to", "waiting")
"""What a narrow terminal does without, the least important first."""


def foretold_heading(told: Foretold, there: Machine) -> str:
    """Which loader, and on what machine."""
    cpus = f"{there.cpus:g} CPU{'' if there.cpus == 1 else 's'}"
    parts = [f"{told.name} on {cpus}", f"{memory(there.memory_bytes)} of memory"]
    if there.step_s is not None:
        parts.append(f"a step of {duration(there.step_s)}")
    return ", ".join(parts)


def foretold_table(told: Foretold, console: Console) -> Table:
    """One row a number of workers; the one to begin with is marked with an arrow."""
    return fitting(console, lambda without: _table(told, without), DISPENSABLE)


def _table(told: Foretold, without: Set[str]) -> Table:
    table = Table()
    table.add_column("", width=1)
    names = [name for name in COLUMNS if name not in without]
    for name in names:
        table.add_column(name, justify="right")
    for row in told.rows:
        marked = row.num_workers == told.num_workers
        style = "bold green" if marked else None
        table.add_row("→" if marked else "", *map(_cells(row).__getitem__, names), style=style)
    return table


def _cells(row: Row) -> dict[str, str]:
    cells = (
        str(row.num_workers),
        number(row.batches_per_s.expected),
        _ends(row.batches_per_s),
        percent(row.waiting.expected),
        "" if row.memory_bytes is None else memory(row.memory_bytes),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _ends(rates: Range) -> str:
    return f"{number(rates.low)} .. {number(rates.high)}"


def foretold_verdict(told: Foretold) -> str:
    """The number, its doubt and what it gives, in a few lines."""
    if not told.fits:
        return told.limit.sentence
    rates, waits = told.batches_per_s, told.waiting
    doubt = "" if told.fewest == told.most else f" ({told.fewest} to {told.most})"
    lines = [
        f"{workers(told.num_workers)}{doubt}: {number(rates.expected)} batches/s "
        f"({number(rates.low)} to {number(rates.high)}); the consumer waits "
        f"{percent(waits.expected)} of the time ({percent(waits.low)} to {percent(waits.high)}).",
        told.limit.sentence,
        f"Use num_workers={told.num_workers} there, and measure again: this is foretold.",
    ]
    return "\n".join(lines)


def assumptions_text(told: Foretold) -> str:
    """What it rests on, a line each."""
    return "\n".join(["It is assumed that", *(f"  - {each}" for each in told.assumptions)])


def foretold_json(told: Sequence[Foretold], report: Report, cpus: float, there: Machine) -> str:
    """The record as text that ends with a newline; docs/json.md names every key."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "simulation",
        "command": report.command,
        "machine": asdict(there),
        "measured_on": {"cpus": cpus, "memory_bytes": report.memory.value},
        "loaders": [asdict(each) for each in told],
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def names_text(report: Report) -> str:
    """The loaders of a report, for somebody who named another one."""
    names = ", ".join(f"'{answer.name}'" for answer in report.answers)
    return f"{count_of(len(report.answers), 'loader')}: {names}" if names else "no loader"
