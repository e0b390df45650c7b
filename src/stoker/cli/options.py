"""Types of command line options that click does not have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from stoker.sizes import size_bytes

if TYPE_CHECKING:  # generic in the newest click only
    CountsType = click.ParamType[list[int]]
    NumberType = click.ParamType[float]
    SizeType = click.ParamType[int]
else:
    CountsType = NumberType = SizeType = click.ParamType

MOST_WORKERS = 1024
MOST_CPUS = 8192
MOST_BYTES = 1 << 50


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


class Seconds(NumberType):
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


class Cpus(NumberType):
    """A number of CPUs above zero; a quota is a fraction."""

    name = "cpus"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a float."""
        try:
            cpus = float(str(value))
        except ValueError:
            cpus = math.nan
        if not 0.01 <= cpus <= MOST_CPUS:
            self.fail(f"'{value}' is not a number of CPUs from 0.01 to {MOST_CPUS:,}", param, ctx)
        return cpus


class Memory(SizeType):
    """A size of memory, up to a pebibyte."""

    name = "memory"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """In bytes."""
        if isinstance(value, int):
            return value
        size = size_bytes(str(value))
        if size is None:
            self.fail(f"'{value}' is not a size; write it like 128GB or 64GiB", param, ctx)
        if not 0 < size <= MOST_BYTES:
            self.fail(f"'{value}' is not a size above 0 and up to 1 PiB", param, ctx)
        return size


class Within(NumberType):
    """A number between two others, both allowed; not a number is refused."""

    name = "number"

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a float."""
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            told = f"from {self.least:g} to {self.most:,g}"
            self.fail(f"'{value}' is not a number {told}", param, ctx)
        return number
