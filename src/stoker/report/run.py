"""What ``stoker run`` tells at the end, for people and for machines. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from stoker.tuning.startup import is_large
from stoker.tuning.wording import count_of, duration, number, percent, workers
from stoker.watch.served import Outcome, Served

SCHEMA = 1
MOST_LINES = 10
_MOST_CHARACTERS = 300


def summary(outcome: Outcome) -> list[str]:
    """At most `MOST_LINES` lines of text."""
    failures = [f"  PyTorch's own loader was used: {each}" for each in outcome.failures]
    told = [_line(line) for line in outcome.served]
    if not told and not failures:
        return ["stoker run: the program made no DataLoader"]
    head = f"stoker run: {count_of(len(told), 'loader')}" if told else "stoker run:"
    return [head, *_shortened(failures, MOST_LINES // 2), *_room_for(told, failures)]


def _room_for(told: list[str], failures: list[str]) -> list[str]:
    return _shortened(told, MOST_LINES - 1 - min(len(failures), MOST_LINES // 2))


def _shortened(lines: Sequence[str], most: int) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    left_out = len(lines) - most + 1
    return [*lines[: most - 1], f"  and {left_out} more; --json FILE tells all"]


def _line(line: Served) -> str:
    parts = [_who(line)]
    if line.fallback:
        parts.append(f"PyTorch's own loader with {_workers(line)}: {line.fallback}")
    elif not line.epochs:
        parts.append("was never asked for a batch")
    else:
        parts.append(", ".join([f"{_workers(line)}{_asked(line)}", *_pace(line)]))
        if line.reason:
            parts[-1] += f". Chosen last, because {line.reason[0].lower()}{line.reason[1:]}"
    text = "  " + ": ".join(parts)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _who(line: Served) -> str:
    site = line.site
    name = f"{PurePath(site.file).name}:{site.line}" if site.line else site.file
    through = f" by {site.library}" if site.library else ""
    several = f" in {line.processes} processes" if line.processes > 1 else ""
    return f"{name}{through}{several}"


def _workers(line: Served) -> str:
    fewest, most = line.workers
    return workers(most) if fewest == most else f"{fewest} to {workers(most)}"


def _asked(line: Served) -> str:
    if not line.automatic:
        return " as the program says"
    asked = " or ".join(map(str, line.asked))
    return f" (the program says {asked})"


def _pace(line: Served) -> list[str]:
    if line.rate_per_s is None or line.waiting is None:
        return []
    each = " in each" if line.processes > 1 else ""
    return [
        f"{number(line.rate_per_s)} batches/s{each}",
        f"waited {percent(line.waiting)} of the whole time{_with_search(line)}",
        *_starting(line),
    ]


def _starting(line: Served) -> list[str]:
    """Where much of the epochs went into it, as a running loader tells it too."""
    epochs_s = line.seconds + line.start_s - line.coming_up_s
    if not is_large(line.start_s, epochs_s, line.epochs):
        return []
    one = "one loader for all epochs, with " if line.made > 1 else ""
    saves = f" ({one}persistent_workers=True would save that)" if line.starts >= line.epochs else ""
    return [
        f"{duration(line.start_s / line.epochs)} of {duration(epochs_s / line.epochs)} an epoch "
        f"went into starting workers{saves}"
    ]


def _with_search(line: Served) -> str:
    """Of a number that was chosen on the way: the reason speaks of its end, the share of it all."""
    return ", starting and choosing included" if line.automatic else ""


def run_json(outcome: Outcome) -> str:
    """The record as text that ends with a newline, schema 1.

    Keys are only ever added within one schema number.
    """
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "command": outcome.command,
        "returncode": outcome.returncode,
        "elapsed_s": outcome.elapsed_s,
        "loaders": [_record(line) for line in outcome.served],
        "failures": list(outcome.failures),
    }
    return json.dumps(told, indent=2, allow_nan=False) + "\n"


def _record(line: Served) -> dict[str, Any]:
    told = asdict(line)
    fewest, most = told.pop("workers")
    return told | {
        "engine": "torch" if line.fallback else "stoker",
        "asked": list(line.asked),
        "fewest_workers": fewest,
        "most_workers": most,
        "rate_per_s": line.rate_per_s,
        "waiting": line.waiting,
    }
