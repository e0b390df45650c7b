"""``stoker tune``: how many workers should this loader have, or those of this program."""

from __future__ import annotations

import click

from stoker.cli.options import Seconds, WorkerCounts
from stoker.tuning.named import is_target
from stoker.tuning.target import BATCH_SIZE

TIMEOUT_S = 300.0


class _TargetOrProgram(click.Command):
    """Options may follow a target. What follows a program is the program's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        words = self.make_parser(ctx).parse_args(args=list(args))[0].get("words")
        first = words[0] if isinstance(words, tuple) and words else ""
        ctx.allow_interspersed_args = is_target(first)
        return super().parse_args(ctx, args)


@click.command(
    name="tune",
    cls=_TargetOrProgram,
    options_metavar="[OPTIONS]",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TARGET | PROGRAM [ARGUMENTS]")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as in python -m.")
@click.option("--budget", type=Seconds(), help="Seconds to measure at most.  [default: 120]")
@click.option("--seconds", type=Seconds(), help="The same for a program; for --workers: a trial's.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Stop a program after so many batches; not for a target.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, max=3.6e6),
    help="Time a target's consumer takes for a batch.",
)
@click.option(
    "--step", metavar="FILE:NAME", help="A function that is called with each batch of a target."
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help=f"For a target that is a data set.  [default: {BATCH_SIZE}]",
)
@click.option(
    "--workers",
    type=WorkerCounts(),
    help="Measure exactly these counts, like 0,1,2,4; a target in fresh processes.",
)
@click.option("--exhaustive", is_flag=True, help="Measure every count up to twice the CPUs.")
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help="With --workers or --exhaustive: batches a trial instead of whole epochs.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help="With --workers or --exhaustive: trials for each count.  [default: 3 to 9]",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds without a batch after which a setting has failed.",
)
@click.option(
    "--cache/--no-cache",
    default=True,
    help='Keep the answer, so that num_workers="auto" begins with it.',
)
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the result as JSON; - is standard output."
)
@click.option("--html", "html_path", metavar="FILE", help="Write it as a page; - as above.")
@click.option(
    "--trace",
    "trace_path",
    metavar="FILE",
    help="Write a timeline for Perfetto or a browser; - as above.",
)
def command(
    words: tuple[str, ...],
    module: bool,
    budget: float | None,
    seconds: float | None,
    steps: int | None,
    step_ms: float | None,
    step: str | None,
    batch_size: int | None,
    workers: list[int] | None,
    exhaustive: bool,
    batches: int | None,
    repeats: int | None,
    timeout: float,
    cache: bool,
    json_path: str | None,
    html_path: str | None,
    trace_path: str | None,
) -> int:
    """Say how many workers the loaders should have.

    PROGRAM is a training script (train.py), a module (-m package.module) or a command
    (torchrun), with its arguments. It runs as it is, until every DataLoader that it iterates
    has an answer, and is then stopped. What it trains meanwhile is worth nothing. Options of
    stoker come BEFORE the program: all that comes after it is the program's own.

    TARGET is path/file.py:NAME or package.module:NAME, where NAME is a DataLoader, a data set,
    or a function without arguments that returns one.
    """
    if workers and exhaustive:
        raise click.UsageError("--workers and --exhaustive exclude each other.")
    if not words:
        raise click.UsageError("Missing argument: name a program or a target.")
    from stoker.cli.deliver import Outputs
    from stoker.cli.tuning import Request, run_and_report

    return run_and_report(
        Request(
            words=("-m", *words) if module else words,
            budget=budget,
            seconds=seconds,
            steps=steps,
            step_ms=step_ms,
            step=step,
            batch_size=batch_size,
            workers=workers,
            exhaustive=exhaustive,
            batches=batches,
            repeats=repeats,
            timeout_s=timeout,
            cache=cache,
            outputs=Outputs(json_path, html_path, trace_path),
        )
    )
