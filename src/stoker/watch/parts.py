"""What the processes of a program have written into the run's folder."""

from __future__ import annotations

from pathlib import Path

from stoker.watch.served import Served, decode, merged


def served_in(folder: str) -> tuple[Served, ...]:
    """The loaders of all processes; what can't be read is passed over."""
    found: list[Served] = []
    for path in sorted(Path(folder).glob("part-*.json")):
        try:
            found += decode(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return merged(found)


def failures_in(folder: str) -> tuple[str, ...]:
    """Why Stoker could do nothing in a process, a sentence each; each once."""
    found: dict[str, None] = {}
    for path in sorted(Path(folder).glob("failed-*.txt")):
        try:
            found[path.read_text(encoding="utf-8").partition("\n")[0]] = None
        except (OSError, ValueError):
            continue
    return tuple(found)
