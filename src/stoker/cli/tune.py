"""``stoker tune TARGET``: how many workers should this loader have."""

from __future__ import annotations

import click

from stoker.cli.options import Seconds, WorkerCounts

TIMEOUT_S = 300.0


@click.command(name="tune")
@click.argument("target")
@click.option(
    "--workers",
    type=WorkerCounts(),
    help="Counts to measure, like 0,2,4.  [default: 0,1,2,4... up to twice the usable CPUs]",
)
@click.option("--exhaustive", is_flag=True, help="Measure every count up to twice the CPUs.")
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help="Measure this many batches a trial instead of whole epochs.",
)
@click.option(
    "--seconds",
    type=Seconds(),
    help="Measure for this long a trial instead of whole epochs of at most 10 seconds.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help="Trials for each count.  [default: 3 to 9, until the noise is known]",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds without a batch after which a trial has failed.",
)
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the result as JSON; - is standard output."
)
def command(
    target: str,
    workers: list[int] | None,
    exhaustive: bool,
    batches: int | None,
    seconds: float | None,
    repeats: int | None,
    timeout: float,
    json_path: str | None,
) -> int:
    """Measure a DataLoader at several numbers of workers and recommend one.

    TARGET is path/file.py:NAME or package.module:NAME, where NAME is a DataLoader or a
    function without arguments that returns one. Each trial runs in a fresh Python. The
    answer is the fewest workers whose rate is within noise of the best.
    """
    if workers and exhaustive:
        raise click.UsageError("--workers and --exhaustive exclude each other.")
    from stoker.cli.sweep import Request, run_and_report

    return run_and_report(
        Request(target, workers, exhaustive, batches, seconds, repeats, timeout, json_path)
    )
