"""``stoker run SCRIPT``: a program as it is, on Stoker's loader."""

from __future__ import annotations

from typing import Literal

import click


@click.command(
    name="run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option(
    "--workers",
    type=click.Choice(["auto", "keep"]),
    default="auto",
    show_default=True,
    help="Choose the number of workers, or keep those of the program.",
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write the summary as JSON; - is standard output, and the program's goes to "
    "standard error.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENTS]...")
def command(
    workers: Literal["auto", "keep"], json_path: str | None, program: tuple[str, ...]
) -> int:
    """Run a training program on Stoker's loader.

    The program is not changed.

    PROGRAM is a script (train.py), a module (-m package.module) or a command (torchrun).
    Options of stoker come BEFORE it: all that comes after it is the program's own.
    Every DataLoader that it makes chooses its number of workers while it trains; no batch
    depends on that number. Nothing is printed until the end. Then a summary is, on standard
    error. Signals and the exit code are the program's.
    """
    from stoker.cli.running import Request, run_and_tell

    run_and_tell(Request(program, workers, json_path))
