"""What ``stoker run`` does once its command line is understood: run, tell, end alike."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

from stoker.cli.output import (
    STDOUT,
    ReaderLeft,
    accept_any_text,
    check_writable,
    write_stream,
    write_whole,
)
from stoker.errors import StokerError
from stoker.report.run import run_json, summary
from stoker.watch import launch
from stoker.watch.folder import run_folder
from stoker.watch.parts import failures_in, served_in
from stoker.watch.program import Program
from stoker.watch.served import Outcome
from stoker.watch.settings import Settings
from stoker.watch.signals import ignore_ctrl_c


@dataclass(frozen=True)
class Request:
    """What was asked on the command line."""

    program: tuple[str, ...]
    workers: Literal["auto", "keep"]
    json_path: str | None


def run_and_tell(request: Request) -> NoReturn:
    """Run the program, tell of its loaders, and end as it ended.

    Raises:
        StokerError: There is no such program, or the result can't be written; found out
            before anything is run.
    """
    accept_any_text()
    program = Program.of(request.program)
    if request.json_path == STDOUT and sys.stdout is None:
        raise StokerError(
            "Standard output is closed, and --json - writes to it.",
            doing="checking it before the program is run",
            change="--json FILE, or leave standard output open",
        )
    if request.json_path not in (None, STDOUT):
        check_writable(str(request.json_path))
    ended, outcome = _run(program, request)
    _told_if_failed(lambda: _print(outcome))
    if request.json_path == STDOUT:
        _told_if_failed(lambda: write_stream(sys.stdout, run_json(outcome)))
    elif request.json_path is not None:
        path = request.json_path
        _told_if_failed(lambda: write_whole(path, run_json(outcome)))
    launch.end_like(ended)


def _run(program: Program, request: Request) -> tuple[launch.Ended, Outcome]:
    began_at = time.monotonic()
    with run_folder() as folder:
        settings = Settings("run", folder, workers=request.workers)
        to_stderr = request.json_path == STDOUT
        with launch.started(program, settings, stdout_to_stderr=to_stderr) as running:
            ended = running.wait()
            ignore_ctrl_c()
        outcome = Outcome(
            command=program.command,
            returncode=ended.returncode,
            elapsed_s=time.monotonic() - began_at,
            served=served_in(folder),
            failures=failures_in(folder),
        )
    return ended, outcome


def _print(outcome: Outcome) -> None:
    write_stream(sys.stderr, "\n".join(summary(outcome)) + "\n")


def _told_if_failed(write: Callable[[], None]) -> None:
    """The exit code is the program's, so what can't be written is only told."""
    try:
        write()
    except ReaderLeft:
        pass
    except StokerError as error:
        with contextlib.suppress(StokerError):
            write_stream(sys.stderr, f"Error: {error}\n")
