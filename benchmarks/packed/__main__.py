"""`python -m benchmarks.packed`: records as a list, packed, and none, each in a fresh process."""

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
from rich.table import Table

from benchmarks import machine
from benchmarks.packed.program import WORKERS
from stoker.sizes import in_words

FORMS = ("none", "packed", "list")
METHODS = ("fork", "fresh", "spawn")
COLUMNS = (
    "start", "data", "made in", "memory of it", "first batch", "epoch",
    "a worker's own", "of none", "all together",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--records", type=click.IntRange(min=10_000), default=2_000_000, show_default=True)
@click.option("--quick", is_flag=True, help="A tenth of the records: a look, not a figure.")
@click.option("--method", "methods", multiple=True, type=click.Choice(METHODS), default=METHODS)
def main(records: int, quick: bool, methods: tuple[str, ...]) -> None:
    """Measure what records cost each of four workers, and how long these take to start."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    count = records // 10 if quick else records
    console = Console(highlight=False, soft_wrap=True, width=120)
    console.print(str(machine.look()))
    console.print(f"{count:,} records, {WORKERS} workers, all records read once")
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("start", "data") else "right")
    notes = []
    for method in methods:
        found = {form: _measured(form, method, count) for form in FORMS}
        for form in FORMS:
            table.add_row(*_row(method, form, found))
        if method == "fork":
            notes += _notes(found)
    console.print(table)
    for line in notes:
        console.print(line)


def _measured(form: str, method: str, count: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.packed.program", form, method, str(count)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(method: str, form: str, found: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    own, none = (statistics.mean(found[each]["worker_bytes"]) for each in (form, "none"))
    this = found[form]
    has_data = form != "none"
    return (
        method,
        form,
        f"{this['made_s']:.1f} s" if has_data else "-",
        in_words(this["data_bytes"]) if has_data else "-",
        f"{this['first_s']:.2f} s",
        f"{this['epoch_s']:.1f} s",
        in_words(own),
        f"{own / none:.0%}",
        in_words(this["all_bytes"]),
    )


def _notes(found: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"packing the list: {found['list']['packing_s']:.1f} s",
        *(
            f"one record of what is {form}, at random: {found[form]['access_s'] * 1e6:.2f} us"
            for form in ("list", "packed")
        ),
    ]


if __name__ == "__main__":
    main()
