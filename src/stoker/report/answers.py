"""How the answers of ``stoker tune`` look in a terminal. Pure: rich renderables and text."""

from __future__ import annotations

from collections.abc import Set

from rich.console import Console
from rich.table import Table

from stoker.report.terminal import cpus_line, loader_line
from stoker.report.width import fitting
from stoker.tuning.answer import Answer, Line, Parts, Rate, Report
from stoker.tuning.wording import count_of, duration, number, percent, stopped, times, workers

COLUMNS = ("workers", "batches/s", "± spread", "first batch s", "waiting", "CPUs", "memory")
DISPENSABLE = ("± spread", "CPUs", "memory", "first batch s", "waiting")
"""What a narrow terminal does without, the least important first."""
MOST_LINES = 3
NOTABLE = 0.05
FAR_ABOVE = 20.0
"""A bound that is so many times the rate now says only that loading is all there is to wait for."""


def heading(report: Report) -> str:
    """What was measured, on which CPUs, and how it ended."""
    lines = [report.command, cpus_line(report.cpus)]
    if report.kind == "program":
        loaders = count_of(len(report.answers), "loader")
        ended = f"; {report.ended}" if report.ended else ""
        lines.append(f"{loaders}, {duration(report.elapsed_s)} with starting and ending{ended}")
    return "\n".join(lines)


def answer_heading(answer: Answer) -> str:
    """The line that made a loader, and what it is."""
    lines = []
    if answer.site is not None:
        through = f" (through {answer.site.library})" if answer.site.library else ""
        lines.append(f"{answer.name}{through}  {answer.site.code}".rstrip())
    if answer.loader is not None:
        lines.append(loader_line(answer.loader))
    lines.append(f"used by {answer.consumer}")
    return "\n".join(lines)


def rates_table(answer: Answer, console: Console) -> Table:
    """One row a setting; the recommended one is marked with an arrow."""
    return fitting(console, lambda without: _rates_table(answer, without), DISPENSABLE)


def _rates_table(answer: Answer, without: Set[str]) -> Table:
    table = Table()
    table.add_column("", width=1)
    names = [name for name in COLUMNS if name not in without]
    for name in names:
        table.add_column(name, justify="right")
    chosen = answer.advice.num_workers if answer.advice else None
    for rate in answer.rates:
        plain = rate.engine == "torch" and rate.prefetch_factor is None
        marked = plain and rate.summary.num_workers == chosen
        style = "bold green" if marked else None
        table.add_row("→" if marked else "", *map(_cells(rate).__getitem__, names), style=style)
    return table


def _cells(rate: Rate) -> dict[str, str]:
    summary = rate.summary
    name = str(summary.num_workers)
    if rate.engine == "stoker":
        name += " (Stoker's)"
    if rate.prefetch_factor is not None:
        name += f" (prefetch {rate.prefetch_factor})"
    if rate.own:
        name += " (now)"
    star = " *" if summary.method == "epochs" else ""
    cells = (
        name,
        number(summary.batches_per_s) + star,
        "one look" if summary.spread is None else percent(summary.spread),
        number(summary.first_batch_s),
        percent(rate.waiting),
        "" if rate.cpus_used is None else f"{rate.cpus_used:.1f}",
        _memory(rate.memory_bytes),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _memory(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"


def footnote(answer: Answer) -> str:
    """What the star in the table means; empty without one."""
    if any(rate.summary.method == "epochs" for rate in answer.rates):
        return "* an epoch is too short for a steady rate: across whole epochs"
    return ""


def verdict(answer: Answer, *, partial: bool) -> str:
    """The answer in a few lines: waiting, limit, gain and the change."""
    lines = [line for line in (_waiting(answer), _bound(answer)) if line]
    if answer.limit.sentence:
        lines.append(f"Limit ({answer.limit.kind}): {stopped(answer.limit.sentence)}")
    lines += [f"Also: {stopped(remark)}" for remark in answer.remarks]
    lines += _dearest(answer.lines, answer.best_parts or answer.parts)
    lines += _advice(answer, partial)
    return "\n".join(lines)


def _waiting(answer: Answer) -> str:
    if answer.waiting is None or answer.parts is None or answer.now_per_s is None:
        return ""
    lost_s = answer.parts.waited_s + answer.parts.loading_s
    now = workers(answer.parts.num_workers)
    return (
        f"Now, with {now}: {number(answer.now_per_s)} batches/s; "
        f"{percent(answer.waiting)} of the time goes into waiting for batches "
        f"({duration(lost_s)} a batch, beside a step of {duration(answer.parts.step_s)})."
    )


def _bound(answer: Answer) -> str:
    if answer.bound_per_s is None:
        return ""
    told = f"With batches that are ready: {number(answer.bound_per_s)} batches/s"
    if answer.most_gain is None:
        return f"{told}; no loader setting gives more."
    if answer.most_gain > FAR_ABOVE:
        return f"Making batches takes nearly all of the time: {told[0].lower()}{told[1:]}."
    if answer.most_gain < 1 + NOTABLE:
        return f"{told}: no loader setting gains more than {percent(answer.most_gain - 1)}."
    return f"{told}: no loader setting gains more than {times(answer.most_gain)}."


def _dearest(lines: tuple[Line, ...], parts: Parts | None) -> list[str]:
    """Where loading spends its time, where loading is worth a word at all."""
    if not lines or parts is None or parts.service_s <= 0:
        return []
    told = [f"Making a batch takes {duration(parts.service_s)}; most of that in"]
    for line in lines[:MOST_LINES]:
        below = f", in {line.callee}" if line.callee else ""
        code = f": {line.code}" if line.code else ""
        told.append(f"  {percent(line.share)}  {_place(line)}{code}{below}")
    return told


def _place(line: Line) -> str:
    return f"{line.file.replace(chr(92), '/').rpartition('/')[2]}:{line.line}"


def _advice(answer: Answer, partial: bool) -> list[str]:
    advice = answer.advice
    if advice is None:
        return ["No setting was measured to the end, so none is recommended."]
    lines = [stopped(advice.reason)]
    if partial:
        lines.append("This is partial: not everything could be measured.")
    elif not advice.certain:
        lines.append("It is not certain: rates vary much here, or there was no time for more.")
    if answer.change is None:
        return [*lines, _keep(answer)]
    text = answer.change.text
    lines.append(
        f"Use {text}" if "=" in text.partition(" ")[0] else f"{text[:1].upper()}{text[1:]}"
    )
    if answer.change.after:
        lines.append(f"  {_file(answer)}:{answer.change.line}")
        lines += [f"  - {each.strip()}" for each in answer.change.before.splitlines()]
        lines += [f"  + {each.strip()}" for each in answer.change.after.splitlines()]
    return lines


def _keep(answer: Answer) -> str:
    """One setting alone, in a run that was cut short, is no proof that there is nothing to gain."""
    uncertain = answer.advice is not None and not answer.advice.certain
    if uncertain and len(answer.rates) == 1:
        return f"Keep {_now(answer)} for now: nothing else was measured."
    if answer.loader is not None and answer.loader.automatic:
        return "Nothing to change: the loader chooses its number while it runs."
    return f"Nothing to gain: keep {_now(answer)}."


def _now(answer: Answer) -> str:
    return f"num_workers={answer.loader.num_workers}" if answer.loader else "it as it is"


def _file(answer: Answer) -> str:
    assert answer.change is not None
    return answer.change.file.replace("\\", "/").rpartition("/")[2]
