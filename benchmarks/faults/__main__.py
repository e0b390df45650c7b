"""`python -m benchmarks.faults`: kills, and iterators by the thousand, also under tight limits."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.faults import kills, turns
from benchmarks.faults.limits import LIMITS, LITTLE_MEMORY, apply, tighten

ROOT = Path(__file__).resolve().parents[2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", "count", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--batches", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--turns", "rounds", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option(
    "--limit", "limits", multiple=True, type=click.Choice([*LIMITS, "all"]),
    help="The same under a limit of the system, too.",
)  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), default=1, hidden=True)
@click.option("--within", type=click.Choice(list(LIMITS)), hidden=True)
@click.option("--json", "as_json", is_flag=True, hidden=True)
def main(
    count: int, batches: int, rounds: int, limits: tuple[str, ...], every: int,
    within: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Kill workers in one epoch, begin and stop iterators, and see what is lost or left."""
    logging.getLogger("stoker").setLevel(logging.ERROR)
    if within is not None:
        apply(within)
        if within == LITTLE_MEMORY:
            _take_what_is_needed(batches, rounds, every)
            tighten()
    if as_json:
        click.echo(json.dumps(_figures(count, batches, rounds, every)))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(str(machine.look()))

    def tell(text: str) -> None:
        console.print(text, style="dim")

    found = _figures(count, batches, rounds, every, tell)
    good = _show(console, "no limit", found)
    for name in LIMITS if "all" in limits else limits:
        limited = _in_a_process(name, count, batches, rounds)
        good = _show(console, name, limited) and good
    if not good:
        sys.exit(1)


def _take_what_is_needed(batches: int, rounds: int, every: int) -> None:
    """The whole epoch, of quick samples, and a few kills; a tenth of the iterators.

    Workers that stay come to have pages of their own only little by little.
    """
    kills.run(kills.Plan(batches, 2, sample_s=0.0))
    turns.run(max(1, rounds // 10), every=every)


def _figures(
    count: int, batches: int, rounds: int, every: int, tell: Any = lambda _: None
) -> dict[str, Any]:
    killed = kills.run(kills.Plan(batches, count), tell)
    grown = turns.run(rounds, tell, every=every)
    return {
        "good": killed.is_good and grown.is_good,
        "kills": asdict(killed) | {"lost_s": killed.lost_s},
        "turns": asdict(grown),
        "left": [str(killed.left), str(grown.left)],
    }


def _in_a_process(name: str, count: int, batches: int, rounds: int) -> dict[str, Any]:
    """The figures of a fresh process under a limit, or why there are none."""
    words = [
        *LIMITS[name].wrapped, sys.executable, "-m", "benchmarks.faults",
        "--within", name, "--json",
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


def _show(console: Console, name: str, found: dict[str, Any]) -> bool:
    """Prints what came of it; tells whether that is what was promised."""
    if "why" in found:
        console.print(f"[bold]{name}[/]: {found['why']}")
        return False
    killed, grown = found["kills"], found["turns"]
    same = "every batch the same" if killed["same"] else "[red]BATCHES DIFFER[/]"
    console.print(
        f"[bold]{name}[/]: {'as promised' if found['good'] else '[red]NOT as promised[/]'}"
    )
    console.print(
        f"  {killed['killed']:,} kills in {killed['plan']['batches']:,} batches: {same}; "
        f"{killed['lost_s']:.3f} s lost a kill, making its batches again included "
        f"({killed['epoch_s']:.1f} s, {killed['calm_s']:.1f} s in peace)"
    )
    console.print(f"  left behind: {found['left'][0]}")
    console.print(f"  {grown['turns']:,} iterators in {grown['seconds']:.0f} s: {found['left'][1]}")
    return bool(found["good"])


if __name__ == "__main__":
    main()
