"""`python -m benchmarks.watching`: the same loop, plain and watched in turn."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import machine

STEPS_MS = (1.0, 5.0, 20.0)
SECONDS = 4.0
ROOT = Path(__file__).resolve().parents[2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
def main(repeats: int) -> None:
    """Time ``next`` in a loop that nobody watches, and in the same loop watched."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    console = Console()
    console.print(str(machine.look()), highlight=False)
    table = Table()
    for name in ("workers", "step", "next, plain", "next, watched", "more", "of the step"):
        table.add_column(name, justify="right")
    for workers in (0, 1):
        for step_ms in STEPS_MS:
            table.add_row(*_row(workers, step_ms, repeats))
    console.print(table)


def _row(workers: int, step_ms: float, repeats: int) -> tuple[str, ...]:
    batches = int(1e3 * SECONDS / step_ms)
    plain, watched = [], []
    for _ in range(repeats):
        plain.append(_timed(workers, step_ms, batches, watch=False))
        watched.append(_timed(workers, step_ms, batches, watch=True))
    before_s, after_s = statistics.median(plain), statistics.median(watched)
    more_s = after_s - before_s
    return (
        str(workers),
        f"{step_ms:g} ms",
        f"{before_s * 1e6:.1f} us",
        f"{after_s * 1e6:.1f} us",
        f"{more_s * 1e6:.1f} us",
        f"{more_s / (step_ms / 1e3):.2%}",
    )


def _timed(workers: int, step_ms: float, batches: int, *, watch: bool) -> float:
    """Seconds that ``next`` takes on average."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        words = [
            "-m", "benchmarks.watching.program",
            str(workers), str(step_ms), str(batches), str(told),
        ]  # fmt: skip
        if watch:
            (Path(folder) / "watched").mkdir()
            words.append(str(Path(folder) / "watched"))
        subprocess.run([sys.executable, *words], check=True)
        return float(told.read_text())


if __name__ == "__main__":
    main()
