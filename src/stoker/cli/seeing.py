"""Reads what a program that is measured has written so far, and shows it while it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from stoker.report.terminal import progress_line
from stoker.tuning.site_record import SiteRecord, from_json


def records_in(folder: Path) -> tuple[list[SiteRecord], str]:
    """What the process that leads has seen, and why it stopped the program."""
    records: list[SiteRecord] = []
    stopping = ""
    for path in sorted(folder.glob("sites-*.json")):
        try:
            found, told = from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if told["leads"]:
            records += found
            stopping = stopping or told["stopping"]
    return records, stopping


@contextlib.contextmanager
def shown(*, wanted: bool) -> Iterator[Callable[[Path], object]]:
    """A function that shows what was measured last; in a terminal, on standard error.

    It starts no thread: signals are waited for meanwhile, and have to come to this one.

    Args:
        wanted: Whether the terminal is ours; a user's own program writes there itself.
    """
    if not (wanted and sys.stderr.isatty()):
        yield lambda folder: None
        return
    from rich.console import Console
    from rich.live import Live

    live = Live(
        "measuring",
        console=Console(stderr=True, highlight=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield lambda folder: live.update(_last(records_in(folder)[0]), refresh=True)


def _last(records: list[SiteRecord]) -> str:
    seen = [each for record in records for each in record.seen if each.stage != "replay"]
    if not seen:
        return "measuring"
    return f"measured {progress_line(seen[-1].setting.workers, seen[-1].window.rate_per_s)}"
