"""One table for the terminal and for Markdown, and everything for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.auto.figures import MOST_OTHERS_CPUS, Finding, Row
from benchmarks.figures import Figure
from benchmarks.machine import Machine

COLUMNS = (
    "work",
    "consumer",
    "best fixed",
    "fewest",
    "auto",
    "share",
    "settled",
    "changes",
    "reached",
)
LEFT = ("work", "consumer", "reached")
FURTHER = ("further", "measured", "target", "reached")
KEY = (
    "best fixed: a number of workers and its rate in batches/s. fewest: that come within 5 % of "
    "it. auto: the number that the loader chose; share: its rate, of the best. settled: time and "
    "batches from the start of a fresh loader to its last change. changes: until then, and, "
    "after the +, while the rates were measured. reached: a share of at least 95 %, at most one "
    "worker more than the fewest, settled within 5 s."
)


def tables(rows: Sequence[Row], findings: Sequence[Finding]) -> list[Table]:
    result = []
    if rows:
        result.append(_table("Auto beside fixed numbers of workers", COLUMNS, LEFT))
        for row in rows:
            result[-1].add_row(*_cells(row))
    if findings:
        result.append(_table(None, FURTHER, FURTHER))
        for finding in findings:
            result[-1].add_row(*_further(finding))
    return result


def _table(title: str | None, columns: Sequence[str], left: Sequence[str]) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table


def notes(rows: Sequence[Row], titles: Mapping[str, str]) -> list[str]:
    """How to read the table, what a batch of each work is, and which rows to doubt."""
    if not rows:
        return []
    doubts = [
        f"{row.work}, {row.consumer}: other programs used {row.others_cpus:.1f} CPUs meanwhile"
        for row in rows
        if row.others_cpus > MOST_OTHERS_CPUS
    ]
    return [KEY, *(f"{work}: {title}" for work, title in titles.items()), *doubts]


def markdown(
    machine: Machine,
    repeats: int,
    rows: Sequence[Row],
    findings: Sequence[Finding],
    titles: Mapping[str, str],
) -> str:
    lines = [f"Medians of {repeats} interleaved repeats. {machine}."]
    if rows:
        lines += ["", *_markdown_table(COLUMNS, [_cells(row) for row in rows])]
    if findings:
        lines += ["", *_markdown_table(FURTHER, [_further(finding) for finding in findings])]
    if rows:
        lines += ["", *(f"- {line}" for line in notes(rows, titles))]
    return "\n".join(lines) + "\n"


def as_json(
    machine: Machine, repeats: int, rows: Sequence[Row], findings: Sequence[Finding]
) -> str:
    """Every rate that was measured and every change of the number of workers, with its reason."""
    facts = {
        "machine": asdict(machine),
        "repeats": repeats,
        "rows": [_row_facts(row) for row in rows],
        "further": [asdict(finding) for finding in findings],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)


def _row_facts(row: Row) -> dict[str, Any]:
    contest = row.contest
    derived = {"best": contest.best, "fewest": contest.fewest, "share": contest.share}
    return asdict(row) | derived | {"missed": row.missed()}


def _cells(row: Row) -> list[str]:
    contest, settling = row.contest, row.settling
    steady = f" + {contest.changes}" if contest.changes else ""
    return [
        row.work,
        row.consumer,
        f"{contest.best}: {_rate(contest.fixed[contest.best])}",
        str(contest.fewest),
        str(row.workers),
        f"{contest.share:.1%}",
        f"{settling.settled_s:.1f} s, {settling.settled_batches:,}",
        f"{len(settling.changes)}{steady}",
        ", ".join(row.missed()) or "yes",
    ]


def _rate(rates: Sequence[float]) -> str:
    figure = Figure.of(rates)
    spread = "" if figure.spread is None else f" ±{figure.spread:.0%}"
    return f"{figure.per_s:,.{0 if figure.per_s >= 1000 else 1}f}{spread}"


def _further(finding: Finding) -> list[str]:
    reached = "-" if finding.missed is None else ", ".join(finding.missed) or "yes"
    return [finding.name, finding.figure, finding.target or "-", reached]


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
