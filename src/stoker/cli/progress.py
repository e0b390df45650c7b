"""How far a sweep is: a bar in a terminal, now and then a line elsewhere. On standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from stoker.report.terminal import progress_line
from stoker.tuning.sweep import Moment

LINE_EVERY_S = 10.0


@contextlib.contextmanager
def shown() -> Iterator[Callable[[Moment], None]]:
    """A function to call with every moment of a sweep."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Lines()


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[Moment], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("trials"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        task = progress.add_task("starting", total=None)

        def show(moment: Moment) -> None:
            text = _text(moment)
            progress.update(task, description=text, total=moment.planned, completed=moment.done)

        yield show


class _Lines:
    """A line when a trial ends, but not more often than every few seconds."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + LINE_EVERY_S

    def __call__(self, moment: Moment) -> None:
        now = time.monotonic()
        if moment.ended and now >= self._next_s:
            self._next_s = now + LINE_EVERY_S
            told = f"{moment.done} of {moment.planned} trials; {_text(moment)}"
            print(told, file=sys.stderr, flush=True)


def _text(moment: Moment) -> str:
    rate = moment.observation.batches_per_s if moment.observation else None
    return progress_line(moment.trial.num_workers, rate)
