"""Runs ``stoker tune`` on a program, as its user would, and reads what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.auto.others import OthersWatch
from benchmarks.scripts.figures import Row, Run, Seen, rows
from benchmarks.scripts.plan import Program

PATIENCE_S = 900.0
SWEEP_S = 150.0  # what the counts of one loader take, in a script that starts slowly
_TAIL = 600  # characters of what a failed run wrote last


def compare(
    program: Program, counts: Sequence[int], repeats: int, tell: Callable[[str], None]
) -> list[Row]:
    """Asks for the answer first, then sweeps; every sweep has the answered counts too."""
    others = OthersWatch()
    tell("starting and ending")
    started = tune(program, ["--steps", "1"])
    tell("the answer")
    tuned = tune(program, [])
    answers = {seen.answer for seen in tuned.loaders.values() if seen.answer is not None}
    wanted = sorted({*counts, *answers})
    sweeps = []
    for number in range(1, repeats + 1):
        tell(f"sweep {number} of {repeats}")
        sweeps.append(tune(program, _sweep(wanted)))
    return rows(program.name, started, tuned, sweeps, others.cpus())


def _sweep(counts: Sequence[int]) -> list[str]:
    """The options that have these numbers measured and no others."""
    return ["--budget", f"{SWEEP_S:g}", "--workers", ",".join(map(str, counts))]


def tune(program: Program, options: Sequence[str]) -> Run:
    """One run with these options of the command; blocks up to `PATIENCE_S`.

    The program starts in an empty folder. What was answered before is not known to it.
    """
    with tempfile.TemporaryDirectory(prefix="tuned-") as name:
        folder = Path(name)
        answer = folder / "answer.json"
        (folder / "here").mkdir()
        command = [sys.executable, "-m", "stoker", "tune", *options, "--json", str(answer)]
        began = time.perf_counter()
        wrote = _run([*command, *program.command()], program.environment, folder)
        seconds = time.perf_counter() - began
        try:
            return Run(seconds, loaders_of(json.loads(answer.read_text("utf-8"))))
        except (OSError, ValueError, KeyError, TypeError) as error:
            return Run(seconds, {}, f"{type(error).__name__}: {error}; {wrote}")


def _run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """Runs to the end; returns how it ended and the last that it wrote."""
    settings = {**os.environ, **environment, "XDG_CACHE_HOME": str(folder / "cache")}
    written = folder / "written"
    with written.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder / "here",
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            ended = f"exit code {process.wait(PATIENCE_S)}"
        except subprocess.TimeoutExpired:
            ended = f"not ended after {PATIENCE_S:g} s"
        finally:
            _end(process)
    return f"{ended}: {written.read_text('utf-8', errors='replace')[-_TAIL:].strip()}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run that is still going on, with all that it has started."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.kill()
        process.wait()


def loaders_of(record: Mapping[str, Any]) -> dict[str, Seen]:
    """Reads what ``stoker tune --json`` wrote of a program.

    Raises:
        KeyError: the record lacks something that it must have.
    """
    return {loader["name"]: _seen(loader) for loader in record["loaders"]}


def _seen(loader: Mapping[str, Any]) -> Seen:
    advice = loader["advice"]
    return Seen(
        rates=_rates(loader["rates"]),
        answer=None if advice is None else advice["num_workers"],
        waiting=loader["waiting"],
        step_s=loader["step_s"],
    )


def _rates(measured: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """By number of workers, of the loader and the queue that the script has: torch's, as it is."""
    plain = [
        rate
        for rate in measured
        if rate.get("engine", "torch") == "torch" and rate.get("prefetch_factor") is None
    ]
    return {rate["num_workers"]: rate["batches_per_s"] for rate in plain or measured}
