"""Sizes of memory as people write them. No torch: the command line reads them too."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d+)?)\s*(?:([KMGT])(i?))?B\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_bytes(text: str) -> int | None:
    """Bytes in a size such as "500MB", "4GB" or "4GiB"; None where the text is none."""
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    base = 1024 if size[3] else 1000
    return int(float(size[1]) * base ** _POWERS[(size[2] or "").upper()])


def in_words(size_bytes: float) -> str:
    """Bytes as "512 bytes", "1.5 MiB" or "24 GiB"."""
    scale = 0
    while abs(size_bytes) >= 999.5 and scale < len(_UNITS) - 1:
        size_bytes /= 1024
        scale += 1
    digits = f"{size_bytes:,.0f}" if size_bytes >= 100 else f"{size_bytes:.3g}"
    return f"{digits} {_UNITS[scale]}"
