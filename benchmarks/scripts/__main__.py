"""`python -m benchmarks.scripts`: one command, one table."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks import machine
from benchmarks.scripts import report
from benchmarks.scripts.figures import Row
from benchmarks.scripts.plan import PROGRAMS, QUICK, WORK_PROGRAMS
from benchmarks.scripts.run import compare

REPEATS = 3
OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice([*PROGRAMS, *WORK_PROGRAMS]),
    help="Only this script; may be given more than once.",
)
@click.option("--works", is_flag=True, help="Seven works with four consumers, not the scripts.")
@click.option("--repeats", type=click.IntRange(min=1), help=f"Sweeps a script; {REPEATS}.")
@click.option("--quick", is_flag=True, help="One sweep of 0 to 2 workers: a look, not a figure.")
@click.option("--json", "json_file", type=OUTPUT, help="Write every measurement to this file.")
@click.option("--markdown", "markdown_file", type=OUTPUT, help="Write the table to this file.")
def main(
    names: tuple[str, ...],
    works: bool,
    repeats: int | None,
    quick: bool,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Hold what stoker tune answers for ten unedited scripts against exhaustive sweeps."""
    known = PROGRAMS | WORK_PROGRAMS
    programs = [known[name] for name in names or (WORK_PROGRAMS if works else PROGRAMS)]
    sweeps = repeats or (1 if quick else REPEATS)
    console, here = Console(), machine.look()
    console.print(str(here), highlight=False)
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(programs))
        try:
            for program in programs:
                counts = QUICK if quick else program.counts

                def tell(now: str, name: str = program.name) -> None:
                    progress.update(task, description=f"{name}: {now}")

                rows += compare(program, counts, sweeps, tell)
                progress.advance(task)
        finally:
            # What was measured so far is kept, whatever ended the run.
            progress.stop()
            show(console, rows)
            if json_file:
                json_file.write_text(report.as_json(here, sweeps, rows) + "\n", "utf-8")
            if markdown_file:
                markdown_file.write_text(report.markdown(here, sweeps, rows), "utf-8")


def show(console: Console, rows: list[Row]) -> None:
    console.print(report.table(rows))
    for line in report.notes(rows):
        console.print(line, highlight=False, markup=False)


if __name__ == "__main__":
    main()
