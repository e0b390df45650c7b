"""``stoker simulate RESULT.json``: what the same work would want on another machine."""

from __future__ import annotations

import click

from stoker.cli.options import Cpus, Memory, Within

LONGEST_STEP_MS = 3_600_000.0
FASTEST = 10.0


@click.command(name="simulate")
@click.argument("result")
@click.option("--cpus", type=Cpus(), help="CPUs there, like 24 or 3.5.  [default: as here]")
@click.option("--memory", type=Memory(), help="Memory there, like 128GB.  [default: as here]")
@click.option(
    "--step-ms",
    type=Within(0, LONGEST_STEP_MS),
    metavar="MS",
    help="Milliseconds of the consumer's step for a batch.  [default: as measured]",
)
@click.option(
    "--cpu-speed",
    type=Within(1, FASTEST),
    default=1.0,
    show_default=True,
    metavar="TIMES",
    help="A CPU there is up to so many times as fast as here, or as slow.",
)
@click.option("--loader", metavar="NAME", help="This loader alone, as in the result.")
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the result as JSON; - is standard output."
)
def command(
    result: str,
    cpus: float | None,
    memory: int | None,
    step_ms: float | None,
    cpu_speed: float,
    loader: str | None,
    json_path: str | None,
) -> int:
    """Say what measured work would want elsewhere.

    Elsewhere is a machine that you do not have: its CPUs, memory and training step are options.

    RESULT is a file written by stoker tune --json; - is standard input. Nothing is run. The
    answer is a number of workers with its range of doubt, and what it assumes.
    """
    from stoker.cli.foretelling import Request, foretell_and_report

    step_s = None if step_ms is None else step_ms / 1e3
    return foretell_and_report(Request(result, cpus, memory, step_s, cpu_speed, loader, json_path))
