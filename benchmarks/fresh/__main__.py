"""`python -m benchmarks.fresh`: fresh workers beside torch's spawned ones."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.fresh.program import WORKERS

ROOT = Path(__file__).resolve().parents[2]
_TRIVIAL_MB = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--quick", is_flag=True, help="An array of 300 MB and one repeat, and not 1 GB and three."
)
def main(quick: bool) -> None:
    """Memory for an array with four fresh workers, and seconds to the first batch."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(str(machine.look()))
    console.print(f"load of the machine before: {os.getloadavg()[0]:.1f}", style="dim")
    megabytes, repeats = (300, 1) if quick else (1000, 3)
    turns = [
        {name: _figures(name, megabytes) for name in ("torch", "stoker")} for _ in range(repeats)
    ]
    for name in ("torch", "stoker"):
        _show(console, name, megabytes, [turn[name] for turn in turns])
    console.print(f"load of the machine after: {os.getloadavg()[0]:.1f}", style="dim")


def _figures(name: str, megabytes: int) -> dict[str, float]:
    little, large = _of_program(name, _TRIVIAL_MB), _of_program(name, megabytes)
    more_bytes = large["tree_bytes"] - little["tree_bytes"]
    return {
        "copies": more_bytes / ((megabytes - _TRIVIAL_MB) * 1e6),
        "trivial": little["first_s"],
        "array": large["first_s"],
        "again": large["again_s"],
    }


def _of_program(name: str, megabytes: int) -> dict[str, Any]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fresh.program", name, str(megabytes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _show(console: Console, name: str, megabytes: int, turns: list[dict[str, float]]) -> None:
    middle = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    console.print(
        f"[bold]{name}[/]: {middle['copies']:.2f} copies of {megabytes:,} MB with {WORKERS} "
        f"workers; first batch {middle['trivial']:.2f} s, with the array {middle['array']:.2f} s, "
        f"in a second epoch {middle['again']:.2f} s"
    )


if __name__ == "__main__":
    main()
