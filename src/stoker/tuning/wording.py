"""Numbers as people read them: three digits, and the unit that fits. Pure."""

from __future__ import annotations


def workers(count: int) -> str:
    """A count of workers, as in "2 workers"."""
    return count_of(count, "worker")


def count_of(count: int, noun: str) -> str:
    """A count and its noun: "1 batch", "2 batches", "3 epochs"."""
    plural = f"{noun}es" if noun.endswith("tch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def number(value: float) -> str:
    """Three digits, thousands marked: 1,234 · 812 · 43.2 · 0.0512."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds as "1.2 s", "48 ms" or "0.05 ms"."""
    if seconds >= 0.5:
        return f"{seconds:,.1f} s"
    milliseconds = seconds * 1e3
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def sentence(text: str) -> str:
    """A text with a full stop at its end and, unless it begins with code, a capital letter."""
    first = text.partition(" ")[0]
    if first.isalpha():
        text = text[:1].upper() + text[1:]
    return stopped(text)


def stopped(text: str) -> str:
    """A text with a full stop at its end, if it has none; an empty one stays empty."""
    return f"{text}." if text and text[-1] not in ".!?:" else text


def percent(share: float) -> str:
    """A share as "3 %", or "0.4 %" below one."""
    return f"{share * 100:.0f} %" if share >= 0.0095 else f"{share * 100:.1f} %"


def times(ratio: float) -> str:
    """A ratio as "1.9 times"."""
    return f"{ratio:.2f} times" if ratio < 1.095 else f"{ratio:,.1f} times"
