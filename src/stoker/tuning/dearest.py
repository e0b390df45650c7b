"""The dearest lines of loading code, from what samplers of several processes counted. Pure.

Shares are of all the loading time that was looked at, so that they need not add up to one: the
rest is the loader's own work, and lines that are not worth naming.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from stoker.tuning.answer import Line

MOST_LINES = 8
LEAST_SHARE = 0.02
"""A line that takes less is not worth naming: making it free would gain less than noise."""


class Counted(TypedDict):
    """What one process found at one place; plain, for JSON and pipes.

    ``file`` is empty for looks that found none of the user's code nor a library's: the loader's
    own work, or places beyond the bound on memory.
    """

    file: str
    line: int
    function: str
    callee: str
    collating: bool
    looks: int
    seconds: float


@dataclass
class _Sum:
    function: str
    looks: int = 0
    seconds: float = 0.0
    callees: dict[str, float] = field(default_factory=dict)

    def add(self, counted: Counted) -> None:
        self.looks += counted["looks"]
        self.seconds += counted["seconds"]
        callee = counted["callee"]
        self.callees[callee] = self.callees.get(callee, 0.0) + counted["seconds"]

    def callee(self) -> str:
        """The function below it in which most of the time went; empty where in none."""
        return max(sorted(self.callees), key=lambda name: self.callees[name])


def merge(
    counts: Iterable[Sequence[Counted]],
    *,
    source: Callable[[str, int], str] = linecache.getline,
) -> tuple[Line, ...]:
    """The dearest lines, dearest first: at most 8, each with at least 2 % of the loading time.

    Args:
        counts: `Sampler.counts` of each process.
        source: Gives a line of a file, or "" where it can't be read.
    """
    sums: dict[tuple[str, int], _Sum] = {}
    total_s = 0.0
    for counted in (one for of_process in counts for one in of_process):
        total_s += counted["seconds"]
        if counted["file"]:
            place = counted["file"], counted["line"]
            sums.setdefault(place, _Sum(counted["function"])).add(counted)
    if total_s <= 0:
        return ()
    ranked = sorted(sums.items(), key=lambda item: (-item[1].seconds, item[0]))
    dear = [item for item in ranked if item[1].seconds >= LEAST_SHARE * total_s]
    return tuple(_line(place, found, total_s, source) for place, found in dear[:MOST_LINES])


def _line(
    place: tuple[str, int], found: _Sum, total_s: float, source: Callable[[str, int], str]
) -> Line:
    return Line(
        file=place[0],
        line=place[1],
        function=found.function,
        code=source(*place).strip(),
        share=min(1.0, found.seconds / total_s),
        samples=found.looks,
        callee=found.callee(),
    )


def collating(counts: Iterable[Sequence[Counted]]) -> float | None:
    """Share of the loading time that the collate function took; None without a look."""
    found = [one for of_process in counts for one in of_process]
    total_s = sum(one["seconds"] for one in found)
    if total_s <= 0:
        return None
    return sum(one["seconds"] for one in found if one["collating"]) / total_s
