"""What ``stoker simulate`` does once its command line is understood: read, foretell, show."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

from stoker.cli.output import STDOUT, accept_any_text, check_writable, write_stream, write_whole
from stoker.errors import RecordError, StokerError
from stoker.report.foretold import (
    assumptions_text,
    foretold_heading,
    foretold_json,
    foretold_table,
    foretold_verdict,
    names_text,
)
from stoker.report.recorded import report_from
from stoker.tuning.answer import Answer, Report
from stoker.tuning.foretold import Foretold, Machine
from stoker.tuning.simulate import foretell

LARGEST_BYTES = 1 << 30


@dataclass(frozen=True)
class Request:
    """What was asked on the command line; None where nothing was."""

    result: str
    cpus: float | None
    memory_bytes: int | None
    step_s: float | None
    cpu_speed: float
    loader: str | None
    json_path: str | None


def foretell_and_report(request: Request) -> int:
    """Read, foretell, print and write; returns the exit code.

    Raises:
        StokerError: The result can't be read, has no such loader, or can't be written.
    """
    accept_any_text()
    if request.json_path not in (None, STDOUT):
        check_writable(str(request.json_path))
    report = read_result(request.result)
    answers = _chosen(report, request.loader)
    here = cpus_of(report)
    memory_bytes = report.memory.value if request.memory_bytes is None else request.memory_bytes
    there = Machine(request.cpus or here, memory_bytes, request.step_s, request.cpu_speed)
    told, errors = _all_told(answers, here, there)
    stream = sys.stderr if request.json_path == STDOUT else sys.stdout
    for each in told:
        _print(each, there, stream)
    if request.json_path is not None:
        _write(request.json_path, foretold_json(told, report, here, there))
    for error in errors:
        write_stream(sys.stderr, f"Error: {error}\n")
    return 1 if errors else 0


def read_result(path: str) -> Report:
    """The report in a file, or on standard input for "-".

    Raises:
        StokerError: It can't be read, or holds no result.
    """
    try:
        if path == STDOUT:
            return report_from(sys.stdin.read(LARGEST_BYTES))
        with Path(path).open(encoding="utf-8") as stream:
            return report_from(stream.read(LARGEST_BYTES))
    except OSError as error:
        raise StokerError(
            f"Can't read '{path}': {error.strerror or error}.",
            doing="reading the result of stoker tune",
            change="name a file written with `stoker tune --json FILE ...`",
        ) from None
    except UnicodeDecodeError as error:
        raise RecordError(
            f"'{path}' is not a text: {error}.",
            doing="reading the result of stoker tune",
            change="name a file written with `stoker tune --json FILE ...`",
        ) from None


def cpus_of(report: Report) -> float:
    """CPUs that the measured program had; a quota bounds them to a fraction."""
    usable, quota = report.cpus.usable.value, report.cpus.quota.value
    return float(usable if quota is None else min(usable, quota))


def _chosen(report: Report, name: str | None) -> list[Answer]:
    found = [answer for answer in report.answers if name in (None, answer.name)]
    if found:
        return found
    what = f"The result has no loader '{name}'." if name else "The result has no loader."
    raise StokerError(
        what, likely=f"it has {names_text(report)}", change="--loader, or another result"
    )


def _all_told(
    answers: list[Answer], here: float, there: Machine
) -> tuple[list[Foretold], list[StokerError]]:
    """Those that can be foretold, and why the others can't."""
    told, errors = [], []
    for answer in answers:
        try:
            told.append(foretell(answer, here, there))
        except StokerError as error:
            errors.append(error)
    return told, errors


def _print(told: Foretold, there: Machine, stream: IO[str]) -> None:
    console = Console(file=stream, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(foretold_heading(told, there), markup=False)
        console.print(foretold_table(told, console))
    text = f"{capture.get()}{foretold_verdict(told)}\n\n{assumptions_text(told)}\n\n"
    write_stream(stream, text)


def _write(path: str, text: str) -> None:
    if path == STDOUT:
        write_stream(sys.stdout, text)
    else:
        write_whole(path, text)
