"""Plain text tables and sizes, for notebooks, logs and terminals. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.tuning.wording import number

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def memory(size_bytes: float) -> str:
    """Bytes as "512 bytes", "1.5 MiB" or "24 GiB"."""
    scale = 0
    while abs(size_bytes) >= 999.5 and scale < len(_UNITS) - 1:
        size_bytes /= 1024
        scale += 1
    return f"{number(size_bytes)} {_UNITS[scale]}"


def two_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Names on the left, values on the right; further lines of a value stand below its first."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, value in rows:
        first, *further = value.splitlines() or [""]
        lines.append(f"{name:<{width}}  {first}".rstrip())
        lines.extend(f"{'':<{width}}  {line}".rstrip() for line in further)
    return "\n".join(lines)
