"""`python -m benchmarks.faults`: kills, and iterators by the thousand, also under tight limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.faults import kills, turns
from benchmarks.faults.limits import LIMITS, apply

ROOT = Path(__file__).resolve().parents[2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", "count", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--batches", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--turns", "rounds", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option(
    "--limit", "limits", multiple=True, type=click.Choice([*LIMITS, "all"]),
    help="The same under a limit of the system; a tenth of the size.",
)  # fmt: skip
@click.option("--within", type=click.Choice(list(LIMITS)), hidden=True)
@click.option("--json", "as_json", is_flag=True, hidden=True)
def main(
    count: int, batches: int, rounds: int, limits: tuple[str, ...], within: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Kill workers in one epoch, begin and stop iterators, and see what is lost or left."""
    if within is not None:
        apply(within)
    if as_json:
        click.echo(json.dumps(_figures(count, batches, rounds, lambda _: None)))
        return
    console = Console()
    console.print(str(machine.look()), highlight=False)
    found = _figures(count, batches, rounds, lambda text: console.print(text, style="dim"))
    table = _table()
    table.add_row("no limit", *_row(found))
    for name in LIMITS if "all" in limits else limits:
        table.add_row(name, *_row(_in_a_process(name, count // 10, batches // 10, rounds // 10)))
    console.print(table)
    if not found["good"]:
        sys.exit(1)


def _figures(count: int, batches: int, rounds: int, tell: Any) -> dict[str, Any]:
    killed = kills.run(kills.Plan(batches, count), tell)
    grown = turns.run(rounds, tell)
    return {
        "good": killed.is_good and grown.is_good,
        "kills": asdict(killed) | {"lost_s": killed.lost_s},
        "turns": asdict(grown),
        "left": [str(killed.left), str(grown.left)],
    }


def _in_a_process(name: str, count: int, batches: int, rounds: int) -> dict[str, Any]:
    """The figures of a fresh process under a limit, or why there are none."""
    words = [
        *LIMITS[name].wrapped, sys.executable, "-m", "benchmarks.faults", "--within", name, "--json",
        "--kills", str(count), "--batches", str(batches), "--turns", str(rounds),
    ]  # fmt: skip
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"why": lines[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _table() -> Table:
    table = Table()
    for name in ("limit", "killed", "batches the same", "lost a kill", "left by kills",
                 "turns", "grown by turns"):  # fmt: skip
        table.add_column(name)
    return table


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    if "why" in found:
        return (found["why"], "", "", "", "", "")
    killed, grown = found["kills"], found["turns"]
    return (
        f"{killed['killed']:,}",
        "yes" if killed["same"] else "NO",
        f"{killed['lost_s']:.3f} s",
        found["left"][0],
        f"{grown['turns']:,}",
        found["left"][1],
    )


if __name__ == "__main__":
    main()
