"""One table for the terminal and for Markdown, and everything for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.table import Table

from benchmarks.figures import Figure, Row, Target, Timing
from benchmarks.machine import Machine

COLUMNS = ("work", "workers", "torch", "stoker", "ratio", "target", "reached")
Timed = Mapping[str, Mapping[str, Sequence[Timing]]]


def table(rows: Sequence[Row]) -> Table:
    result = Table(title="Batches a second, medians of interleaved repeats")
    for number, column in enumerate(COLUMNS):
        result.add_column(column, justify="left" if number in (0, 5) else "right")
    for row in rows:
        result.add_row(*_cells(row))
    return result


def legend(rows: Sequence[Row]) -> list[str]:
    """What a batch of each work is."""
    return [f"{work}: {title}" for work, title in {row.work: row.title for row in rows}.items()]


def notes(rows: Sequence[Row]) -> list[str]:
    """What each limit came to, how it was found, and each loader's share of it."""
    return [
        f"{row.work}, {row.workers} workers: {name} = {_limit(row, name)}: {row.how[name]}"
        f"{_shares(row, name)}"
        for row in rows
        for name in row.limits
    ]


def _limit(row: Row, name: str) -> str:
    per_s = row.figures[name].per_s
    rate = f"{per_s:,.1f} batches/s"
    return f"{rate} ({per_s * row.batch_bytes / 1e9:.1f} GB/s)" if row.batch_bytes else rate


def markdown(machine: Machine, repeats: int, rows: Sequence[Row]) -> str:
    lines = [
        f"Batches a second, medians of {repeats} interleaved repeats. {machine}.",
        "",
        _markdown_row(COLUMNS),
        _markdown_row(["---"] * len(COLUMNS)),
        *(_markdown_row([cell.replace("\n", "<br>") for cell in _cells(row)]) for row in rows),
        "",
        *(f"- {line}" for line in (*legend(rows), *notes(rows))),
    ]
    return "\n".join(lines).rstrip() + "\n"


def as_json(machine: Machine, repeats: int, rows: Sequence[Row], timed: Timed) -> str:
    """The rows with their verdicts, and under "timings" every single measurement, by work."""
    return json.dumps(
        {
            "machine": asdict(machine),
            "repeats": repeats,
            "rows": [_row_facts(row) for row in rows],
            "timings": {
                work: {name: [asdict(timing) for timing in values] for name, values in by.items()}
                for work, by in timed.items()
            },
        },
        indent=2,
        ensure_ascii=False,
    )


def _row_facts(row: Row) -> dict[str, object]:
    return {
        "work": row.work,
        "title": row.title,
        "workers": row.workers,
        "batches_per_s": {name: asdict(figure) for name, figure in row.figures.items()},
        "how": dict(row.how),
        "targets": [
            {
                "least": target.least,
                "against": target.against,
                "measured": (measured := row.measured(target)),
                "reached": None if measured is None else measured >= target.least,
            }
            for target in row.targets
        ],
    }


def _cells(row: Row) -> list[str]:
    ratio = row.share("stoker", "torch")
    return [
        row.work,
        row.workers,
        _figure(row.figures.get("torch")),
        _figure(row.figures.get("stoker")),
        "-" if ratio is None else f"{ratio:.2f}",
        "\n".join(map(str, row.targets)),
        "\n".join(_verdict(row, target) for target in row.targets),
    ]


def _verdict(row: Row, target: Target) -> str:
    measured = row.measured(target)
    if measured is None:
        return "-"
    verdict = "yes" if measured >= target.least else "no"
    return verdict if target.against == ("torch",) else f"{verdict}, {measured:.1%}"


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    digits = 0 if figure.per_s >= 1000 else 1
    spread = "" if figure.spread is None else f" ±{figure.spread:.0%}"
    chosen = "" if figure.chosen is None else f" ({figure.chosen})"
    return f"{figure.per_s:,.{digits}f}{spread}{chosen}"


def _shares(row: Row, limit: str) -> str:
    shares = [
        f"{contender} {share:.1%}"
        for contender in ("torch", "stoker")
        if (share := row.share(contender, limit)) is not None
    ]
    return f"; {', '.join(shares)}" if shares else ""


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
