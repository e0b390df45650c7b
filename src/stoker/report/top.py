"""How ``stoker top`` looks: running loaders as terminal text and as JSON. Pure.

Names and reasons come from other processes, so nothing in them reaches the terminal as a
command to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stoker.tuning.statistics import Statistics, WorkerState, plain
from stoker.tuning.status import LoaderStatus, Pace
from stoker.tuning.table import memory
from stoker.tuning.wording import count_of, duration, number, percent

SCHEMA = 1
LONG_S = 5.0
COMMAND_WIDTH = 60
NOBODY = "No Stoker loader of this user is running."


@dataclass(frozen=True)
class LoaderView:
    """One loader as it is shown.

    Attributes:
        status: What it last told.
        pace: How fast it is.
        cpu_percent: CPU use of its workers by their number, 100 for one whole CPU; without
            those for which it is not known.
    """

    status: LoaderStatus
    pace: Pace
    cpu_percent: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessView:
    """A process and its loaders.

    Attributes:
        pid: Its process id.
        command: Its command line; empty when unknown.
        loaders: In the order in which they were published.
    """

    pid: int
    command: str
    loaders: tuple[LoaderView, ...]


def top_json(processes: Sequence[ProcessView], now_s: float) -> str:
    """One line: every loader with all it told. Keys are only ever added within a schema.

    Args:
        processes: What was found.
        now_s: When, in seconds since the epoch of the system's clock.
    """
    record = {
        "schema": SCHEMA,
        "at_s": now_s,
        "processes": [
            {
                "pid": each.pid,
                "command": each.command,
                "loaders": [_loader_record(loader, now_s) for loader in each.loaders],
            }
            for each in processes
        ],
    }
    return json.dumps(record, allow_nan=False) + "\n"


def _loader_record(loader: LoaderView, now_s: float) -> dict[str, Any]:
    statistics = loader.status.statistics.as_dict()
    for worker in statistics["workers"]:
        worker["cpu_percent"] = plain(loader.cpu_percent.get(worker["number"]))
    return {
        "name": loader.status.name,
        "age_s": plain(_age_s(loader.status, now_s)),
        "rate_per_s": plain(loader.pace.rate_per_s),
        "waiting": plain(loader.pace.waiting),
        "statistics": statistics,
    }


def top_text(processes: Sequence[ProcessView], now_s: float) -> RenderableType:
    """The view for a terminal; arguments as for `top_json`."""
    if not processes:
        return Text(NOBODY)
    parts: list[RenderableType] = []
    for process in processes:
        command = shortened(printable(process.command))
        parts.append(Text(f"{process.pid}  {command}".rstrip(), style="bold"))
        parts.extend(_loader(loader, now_s) for loader in process.loaders)
    return Group(*parts)


def _loader(loader: LoaderView, now_s: float) -> Table:
    told = loader.status.statistics
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=12)
    grid.add_column(overflow="fold")
    grid.add_row("  loader", Text(printable(loader.status.name)))
    for name, value in (
        ("told", _age(loader.status, now_s)),
        ("epoch", _epoch(told)),
        ("pace", _pace(loader.pace)),
        ("workers", _workers(told)),
        ("", _each_worker(told.workers, loader.cpu_percent)),
        ("queue", f"{count_of(told.in_flight, 'batch')} in flight (at most {told.peak_in_flight})"),
        ("memory", _memory(told)),
        ("decision", _decision(told)),
    ):
        if value:
            grid.add_row(f"    {name}", Text(printable(value)))
    return grid


def _age_s(status: LoaderStatus, now_s: float) -> float:
    return max(0.0, now_s - status.at_s)  # a clock may be set back


def _age(status: LoaderStatus, now_s: float) -> str:
    age_s = _age_s(status, now_s)
    told = f"{duration(age_s)} ago" if age_s >= 0.05 else "just now"
    return f"{told}; the loop may be in a long step" if age_s >= LONG_S else told


def _epoch(told: Statistics) -> str:
    length = "" if told.length is None else f"; {count_of(told.length, 'batch')} in each epoch"
    return f"{told.epochs:,}, after {count_of(told.batches, 'batch')} in all{length}"


def _pace(pace: Pace) -> str:
    if pace.rate_per_s is None or pace.waiting is None:
        return "no batch yet"
    return f"{number(pace.rate_per_s)} batches/s, the consumer waits {percent(pace.waiting)}"


def _workers(told: Statistics) -> str:
    chosen = "chosen by the loader" if told.automatic else "as given"
    states = Counter(worker.state for worker in told.workers)
    parts = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{told.num_workers}, {chosen} (at most {told.peak_workers})" + (parts and f": {parts}")


def _each_worker(workers: Sequence[WorkerState], cpu_percent: Mapping[int, float]) -> str:
    """Number, state and CPU use of each."""
    cells = []
    for worker in workers:
        used = cpu_percent.get(worker.number)
        cpu = "" if used is None else f" {used:.0f} % CPU"
        cells.append(f"#{worker.number} {worker.state}{cpu}")
    return "   ".join(cells)


def _memory(told: Statistics) -> str:
    limit = "" if told.memory_limit is None else f" of {memory(told.memory_limit)}"
    return (
        f"{memory(told.slot_bytes)}{limit} for batches in flight; "
        f"{memory(told.total_bytes)} handed out"
    )


def _decision(told: Statistics) -> str:
    if not told.decisions:
        return ""
    last = told.decisions[-1]
    return f"{last.before} -> {last.workers} workers after {duration(last.at_s)}: {last.reason}"


def shortened(text: str, width: int = COMMAND_WIDTH) -> str:
    """At most so many characters; the middle makes way."""
    if len(text) <= width:
        return text
    tail = (width - 3) // 3
    return f"{text[: width - 3 - tail]}...{text[len(text) - tail :]}"


def printable(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
