"""Shows a report and writes it wherever it was asked for."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO

from rich.console import Console

from stoker.cli.output import STDOUT, ReaderLeft, check_writable, write_stream, write_whole
from stoker.errors import StokerError
from stoker.report.answers import answer_heading, footnote, heading, rates_table, verdict
from stoker.report.chart import rate_chart
from stoker.report.page import page_html
from stoker.report.record import report_json
from stoker.report.terminal import failure_text, grouped
from stoker.report.trace import trace_json
from stoker.tuning.answer import Answer, Report


@dataclass(frozen=True)
class Outputs:
    """Where a report goes besides the terminal: a file, "-" for standard output, None for nowhere.

    Standard output takes one of them, and then nothing else.
    """

    json: str | None = None
    html: str | None = None
    trace: str | None = None

    @property
    def on_stdout(self) -> bool:
        """Whether standard output is for one of them."""
        return STDOUT in (self.json, self.html, self.trace)

    def check(self) -> None:
        """Find out before anything is measured whether they can be written.

        Raises:
            StokerError: One can't, or two would be in the same place.
        """
        first: dict[str, str] = {}
        for option, path in (("--json", self.json), ("--html", self.html), ("--trace", self.trace)):
            if path is None:
                continue
            place = path if path == STDOUT else os.path.realpath(path)
            if place in first and not _is_nowhere(place):
                raise _both_in(path, first[place], option)
            first[place] = option
            if path != STDOUT:
                check_writable(path)


def _is_nowhere(place: str) -> bool:
    return place == os.devnull


def _both_in(path: str, one: str, other: str) -> StokerError:
    where = "standard output" if path == STDOUT else f"'{path}'"
    return StokerError(
        f"{one} and {other} both name {where}.",
        doing="checking it before anything is measured",
        change=f"name another file for {other}",
    )


def write_files(report: Report, outputs: Outputs) -> bool:
    """Write what was asked for; whether all of it was. What can't be is told."""
    texts = ((outputs.json, report_json), (outputs.html, page_html), (outputs.trace, trace_json))
    done = [told_if_failed(partial(_write, path, of, report)) for path, of in texts if path]
    return all(done)


def _write(path: str, text_of: Callable[[Report], str], report: Report) -> None:
    if path == STDOUT:
        write_stream(sys.stdout, text_of(report))
    else:
        write_whole(path, text_of(report))


def told_if_failed(write: Callable[[], None]) -> bool:
    """Whether it was written; what kept it from that is told on standard error.

    A reader that has gone is told of nothing.
    """
    try:
        write()
    except ReaderLeft:
        return False
    except StokerError as error:
        with contextlib.suppress(StokerError):
            write_stream(sys.stderr, f"Error: {error}\n")
        return False
    return True


def show(report: Report, outputs: Outputs) -> bool:
    """Print the report and its failures; whether that could be done."""
    stream = sys.stderr if outputs.on_stdout else sys.stdout
    printed = told_if_failed(lambda: _print(report, stream)) if report.answers else True
    for failure in grouped(report.failures):
        text = f"Error: {failure_text(failure)}\n"
        printed &= told_if_failed(partial(write_stream, sys.stderr, text))
    return printed


def _print(report: Report, stream: IO[str]) -> None:
    console = Console(file=stream, highlight=False, soft_wrap=True)
    parts = []
    with console.capture() as capture:
        console.print(heading(report), markup=False)
    parts.append(capture.get())
    parts += [_answer(answer, report, console) for answer in report.answers]
    write_stream(stream, "\n".join(part for part in parts if part) + "\n")


def _answer(answer: Answer, report: Report, console: Console) -> str:
    with console.capture() as capture:
        console.print(answer_heading(answer), markup=False)
        if answer.rates:
            console.print(rates_table(answer, console))
        note = footnote(answer)
        if note:
            console.print(note, markup=False)
    parts = [capture.get()]
    counts = tuple(
        rate.summary
        for rate in answer.rates
        if rate.engine == "torch" and rate.prefetch_factor is None
    )
    if console.encoding.startswith("utf") and len(counts) > 1:
        parts.append(rate_chart(counts, console.width) + "\n")
    parts.append(verdict(answer, partial=bool(report.failures)) + "\n")
    return "\n".join(parts)
