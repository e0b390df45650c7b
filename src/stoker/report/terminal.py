"""How a result of ``stoker tune`` looks in a terminal. Pure: rich renderables and text."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from stoker.report.width import fitting
from stoker.tuning.of_sweep import change_text
from stoker.tuning.recommend import CountSummary
from stoker.tuning.result import Failure, LoaderFacts, TuneResult
from stoker.tuning.wording import number, percent, workers

if TYPE_CHECKING:
    from stoker.host.cpus import CpuFacts

COLUMNS = ("workers", "batches/s", "± spread", "first batch s", "relative to best")
DISPENSABLE = ("± spread", "first batch s", "relative to best")
"""What a narrow terminal does without, the least important first."""


def heading(result: TuneResult) -> str:
    """Which loader was measured and with how many CPUs."""
    lines = [result.target, cpus_line(result.cpus)]
    if result.loader is not None:
        lines.insert(1, loader_line(result.loader))
    return "\n".join(lines)


def cpus_line(cpus: CpuFacts) -> str:
    """How many CPUs, and which limits were looked at."""
    count = cpus.usable.value
    return f"{count} CPU{'' if count == 1 else 's'} usable ({cpus.usable.source})"


def loader_line(loader: LoaderFacts) -> str:
    """Class, batch size and length of the loader."""
    parts = [loader.kind]
    if loader.batch_size is not None:
        parts.append(f"batch size {loader.batch_size}")
    if loader.epoch_batches is not None:
        parts.append(f"{loader.epoch_batches:,} batches an epoch")
    return ", ".join(parts)


def tune_table(result: TuneResult, console: Console) -> Table:
    """One row a count; the recommended one is marked with an arrow."""
    return fitting(console, lambda without: _tune_table(result, without), DISPENSABLE)


def _tune_table(result: TuneResult, without: Set[str]) -> Table:
    table = Table()
    table.add_column("", width=1)
    names = [name for name in COLUMNS if name not in without]
    for name in names:
        table.add_column(name, justify="right")
    chosen = result.recommendation.num_workers if result.recommendation else None
    whole = [each.epoch_batches_per_s for each in result.counts if each.complete]
    best = max(whole, default=0.0)
    for summary in result.counts:
        marked = summary.num_workers == chosen
        style = "bold green" if marked else None
        table.add_row(
            "→" if marked else "", *map(_cells(summary, best).__getitem__, names), style=style
        )
    return table


def _cells(summary: CountSummary, best: float) -> dict[str, str]:
    cells = (
        str(summary.num_workers),
        number(summary.batches_per_s) + _mark(summary),
        "one trial" if summary.spread is None else percent(summary.spread),
        number(summary.first_batch_s),
        percent(summary.epoch_batches_per_s / best) if best and summary.complete else "",
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _mark(summary: CountSummary) -> str:
    if not summary.complete:
        return " †"
    return {"steady": "", "epochs": " *", "brief": " ?"}[summary.method]


def footnotes(result: TuneResult) -> list[str]:
    """What the marks in the table mean, and when ranks and rates part."""
    notes = []
    counts = result.counts
    if any(each.method == "epochs" and each.complete for each in counts):
        notes.append("* an epoch is too short for a steady rate: across whole epochs")
    if any(each.method == "brief" and each.complete for each in counts):
        notes.append("? too few batches for a steady rate")
    if any(not each.complete for each in counts):
        notes.append("† cut short; not considered")
    if any(each.epoch_batches_per_s < 0.95 * each.batches_per_s for each in counts):
        notes.append("relative to best: over a whole epoch, start-up included")
    return notes


def verdict(result: TuneResult) -> str:
    """The reason and the change, in two lines; says so when there is no answer."""
    found = result.recommendation
    if found is None:
        return "No worker count was measured to the end, so none is recommended."
    lines = [found.reason, f"Use {change_text(result)}"]
    if result.failures:
        lines.insert(1, "This is partial: not everything could be measured.")
    elif not found.certain:
        lines.insert(1, "More repeats might change it: the noise is as large as the differences.")
    return "\n".join(lines)


def failure_text(failure: Failure) -> str:
    """A failure in four parts and the end of the user's own traceback."""
    lines = [failure.what]
    for name, part in (
        ("while", failure.doing),
        ("likely cause", failure.likely),
        ("to change it", failure.change),
    ):
        if part:
            lines.append(f"  {name}: {part}")
    if failure.detail:
        lines.extend(f"    {line}" for line in failure.detail.splitlines())
    return "\n".join(lines)


def grouped(failures: tuple[Failure, ...]) -> list[Failure]:
    """Failures that say the same at several counts, once each."""
    first: dict[tuple[str, str], Failure] = {}
    for failure in failures:
        first.setdefault((failure.kind, failure.what), failure)
    return list(first.values())


def progress_line(num_workers: int, batches_per_s: float | None) -> str:
    """A count and its rate, or that it is starting."""
    if batches_per_s is None:
        return f"{workers(num_workers)}: starting"
    return f"{workers(num_workers)}: {number(batches_per_s)} batches/s"
