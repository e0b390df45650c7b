"""``stoker top [PID]``: what every running loader is doing now."""

from __future__ import annotations

import click

from stoker.cli.options import Seconds

INTERVAL_S = 1.0


@click.command(name="top")
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option(
    "--interval",
    type=Seconds(),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look once and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each look.")
def command(pid: int | None, interval: float, once: bool, as_json: bool) -> int:
    """Show every running Stoker loader of this user.

    With PID, those of that process. The loaders are not slowed by it. Ctrl-C ends it.
    Without a terminal it looks once, unless it prints JSON.
    """
    try:
        from stoker.cli.live import watch

        return watch(pid, interval, once, as_json)
    except KeyboardInterrupt:
        return 0  # how a live view is ended
