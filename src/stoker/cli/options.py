"""Types of command line options that click does not have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # generic in the newest click only
    CountsType = click.ParamType[list[int]]
    SecondsType = click.ParamType[float]
else:
    CountsType = SecondsType = click.ParamType

MOST_WORKERS = 1024


class WorkerCounts(CountsType):
    """Numbers of workers with commas between: 0,2,4."""

    name = "counts"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Rising, each count once."""
        if isinstance(value, list):
            return value
        words = [word.strip() for word in str(value).split(",")]
        for word in words:
            if not (word.isascii() and word.isdecimal()):
                self.fail(f"'{word}' is not a number of workers; write it like 0,2,4", param, ctx)
            if int(word) > MOST_WORKERS:
                self.fail(f"{word} workers are more than {MOST_WORKERS}", param, ctx)
        return sorted({int(word) for word in words})


class Seconds(SecondsType):
    """A time in seconds above zero, up to a week."""

    name = "seconds"
    most = 7 * 24 * 3600.0

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a float."""
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= self.most:
            self.fail(f"'{value}' is not a number of seconds above 0", param, ctx)
        return seconds
