"""`python -m benchmarks`: one command, one table."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks import machine, report
from benchmarks.figures import Row, Timing
from benchmarks.measure import take_turns
from benchmarks.settings import QUICK, Settings, loader_classes
from benchmarks.works import WORKS

REPEATS = 5
OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)


def chosen_works(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    if value is None:
        return list(WORKS)
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in WORKS]
    if unknown or not names:
        raise click.BadParameter(f"{value!r}: choose from {', '.join(WORKS)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--works",
    callback=chosen_works,
    metavar="NAME,...",
    help=f"Only these works: {', '.join(WORKS)}.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=REPEATS, show_default=True)
@click.option("--quick", is_flag=True, help="Time a quarter as long: a look, not a figure.")
@click.option(
    "--loader",
    type=click.Choice(["torch", "stoker", "both"]),
    default="both",
    show_default=True,
    help="Which loaders to measure.",
)
@click.option("--json", "json_file", type=OUTPUT, help="Write every measurement to this file.")
@click.option("--markdown", "markdown_file", type=OUTPUT, help="Write the table to this file.")
def main(
    works: list[str],
    repeats: int,
    quick: bool,
    loader: str,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Measure Stoker's loader beside PyTorch's, and print one table.

    STOKER_MNIST names a folder with all of MNIST; without it, the shipped 10,000 images are read.
    """
    settings = Settings(loader_classes(loader), QUICK if quick else 1.0)
    console = Console()
    here = machine.look()
    console.print(str(here), highlight=False)
    rows: list[Row] = []
    timed: dict[str, dict[str, list[Timing]]] = {}
    try:
        for name in works:
            measure_work(name, settings, repeats, rows, timed)
    finally:
        # What was measured so far is kept, whatever ended the run.
        if rows:
            console.print(report.table(rows))
        for line in (*report.legend(rows), *report.notes(rows)):
            console.print(line, highlight=False, markup=False)
        if json_file:
            json_file.write_text(report.as_json(here, repeats, rows, timed) + "\n")
        if markdown_file:
            markdown_file.write_text(report.markdown(here, repeats, rows))


def measure_work(
    name: str,
    settings: Settings,
    repeats: int,
    rows: list[Row],
    timed: dict[str, dict[str, list[Timing]]],
) -> None:
    cases = WORKS[name].cases(settings)
    total = repeats * sum(len(case.contenders) for case in cases)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total)

        def advance(contender: str) -> None:
            progress.update(task, description=f"{name}: {contender}")
            progress.advance(task)

        for number, case in enumerate(cases):
            timings, case_rows = take_turns(case, repeats, advance)
            rows += case_rows
            timed[f"{name}[{number}]"] = timings


if __name__ == "__main__":
    main()
