"""Plain text tables and sizes, for notebooks, logs and terminals. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.sizes import in_words as memory

__all__ = ["memory", "two_columns"]


def two_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Names on the left, values on the right; further lines of a value stand below its first."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, value in rows:
        first, *further = value.splitlines() or [""]
        lines.append(f"{name:<{width}}  {first}".rstrip())
        lines.extend(f"{'':<{width}}  {line}".rstrip() for line in further)
    return "\n".join(lines)
