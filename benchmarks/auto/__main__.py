"""`python -m benchmarks.auto`: one command, one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks import machine
from benchmarks.auto import extras, report, turning
from benchmarks.auto.consumers import CONSUMERS, Consumer
from benchmarks.auto.contest import Setup, contest
from benchmarks.auto.extras import Asked
from benchmarks.auto.figures import Finding, Row
from benchmarks.auto.others import OthersWatch
from benchmarks.auto.plan import PLANS, QUICK
from benchmarks.auto.run import AutoRun
from benchmarks.measure import quietly
from benchmarks.settings import Data
from benchmarks.works import WORKS

REPEATS = 3
OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)
EXTRAS: dict[str, Callable[[Asked], list[Finding]]] = {
    "memory": extras.memory,
    "epoch": extras.epoch,
    "turn": turning.turn,
    "minute": extras.minute,
    "meter": extras.meter,
}


def names_of(known: Mapping[str, Any]) -> Callable[..., list[str] | None]:
    def chosen(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
        if value is None:
            return None
        names = [name.strip() for name in value.split(",") if name.strip()]
        if not names or any(name not in known for name in names):
            raise click.BadParameter(f"{value!r}: choose from {', '.join(known)}")
        return names

    return chosen


@dataclass
class Bench:
    """What is to be measured, and what was so far."""

    repeats: int
    scale: float
    progress: Progress
    task: TaskID
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)

    def work(self, name: str, consumers: Iterable[Consumer]) -> None:
        data = WORKS[name].data()
        self.titles[name] = data.title
        for consumer in consumers:
            self.rows.append(self._row(name, data, consumer))
            self.progress.advance(self.task)

    def _row(self, name: str, data: Data, consumer: Consumer) -> Row:
        tell = self._telling(f"{name}, {consumer.title}")
        setup = Setup(data, consumer, PLANS[name].scaled(self.scale), self.repeats, tell)
        tell("settles")
        others = OthersWatch()
        auto = AutoRun(data, consumer)
        settling = quietly(lambda: auto.settle(setup.plan))
        seen = contest(setup, auto)
        return Row(name, consumer.title, settling, seen, others.cpus())

    def extra(self, name: str) -> None:
        asked = Asked(self.repeats, self.scale, self._telling(name))
        self.findings += EXTRAS[name](asked)
        self.progress.advance(self.task)

    def _telling(self, what: str) -> Callable[[str], None]:
        return lambda now: self.progress.update(self.task, description=f"{what}: {now}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--works",
    callback=names_of(WORKS),
    metavar="NAME,...",
    help=f"Only these works, and no extras: {', '.join(WORKS)}.",
)
@click.option(
    "--consumers",
    callback=names_of(CONSUMERS),
    metavar="NAME,...",
    help=f"Only these consumers: {', '.join(CONSUMERS)}.",
)
@click.option(
    "--extras",
    "further",
    callback=names_of(EXTRAS),
    metavar="NAME,...",
    help=f"Only these extras, beside the works that --works names: {', '.join(EXTRAS)}.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=REPEATS, show_default=True)
@click.option("--quick", is_flag=True, help="Time half as long: a look, not a figure.")
@click.option("--json", "json_file", type=OUTPUT, help="Write every measurement to this file.")
@click.option("--markdown", "markdown_file", type=OUTPUT, help="Write the tables to this file.")
def main(
    works: list[str] | None,
    consumers: list[str] | None,
    further: list[str] | None,
    repeats: int,
    quick: bool,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Hold the number of workers that the loader chooses against fixed ones.

    STOKER_MNIST names a folder with all of MNIST; without it, the shipped 10,000 images are read.
    """
    everything = works is None and further is None
    works = list(WORKS) if everything else works or []
    further = list(EXTRAS) if everything else further or []
    steps = [CONSUMERS[name] for name in consumers or CONSUMERS]
    console, here = Console(), machine.look()
    console.print(str(here), highlight=False)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(works) * len(steps) + len(further))
        bench = Bench(repeats, QUICK if quick else 1.0, progress, task)
        try:
            for name in works:
                bench.work(name, steps)
            for name in further:
                bench.extra(name)
        finally:
            # What was measured so far is kept, whatever ended the run.
            progress.stop()
            show(console, bench)
            told = bench.rows, bench.findings
            if json_file:
                json_file.write_text(report.as_json(here, repeats, *told) + "\n")
            if markdown_file:
                markdown_file.write_text(report.markdown(here, repeats, *told, bench.titles))


def show(console: Console, bench: Bench) -> None:
    for table in report.tables(bench.rows, bench.findings):
        console.print(table)
    for line in report.notes(bench.rows, bench.titles):
        console.print(line, highlight=False, markup=False)


if __name__ == "__main__":
    main()
