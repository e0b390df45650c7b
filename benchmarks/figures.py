"""What is measured, and what is made of it: pure values, nothing here takes time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Timing:
    """One measurement of one contender.

    Attributes:
        steady_per_s: batches a second, the start left out.
        whole_per_s: batches a second over a whole epoch, start and end included; None where no
            whole epoch was run.
        first_batch_s: seconds from the call of ``iter`` to the first batch, for a loader.
    """

    steady_per_s: float
    whole_per_s: float | None = None
    first_batch_s: float | None = None


@dataclass(frozen=True)
class Figure:
    """The median of interleaved repeats, in batches a second, with their spread.

    Attributes:
        spread: half of (largest - smallest), as a share of the median; None after one repeat.
        chosen: what the figure belongs to where it is the best of several, "2 workers" for one.
    """

    per_s: float
    spread: float | None
    chosen: str | None = None

    @classmethod
    def of(cls, values: Sequence[float], chosen: str | None = None) -> Figure:
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / 2 / middle if len(values) > 1 else None
        return cls(middle, spread, chosen)


@dataclass(frozen=True)
class Target:
    """Stoker's rate should be at least ``least`` times that of ``against``, the lowest of them."""

    least: float
    against: tuple[str, ...]

    def __str__(self) -> str:
        least = f"{self.least:g} ×" if self.against == ("torch",) else f"{self.least:.0%} of"
        return f"{least} {' or '.join(self.against)}"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        work: its short name.
        title: what a batch is.
        workers: how many, or which counts the best was taken from.
        figures: by contender: "torch", "stoker", and the names of limits.
        how: how each limit was found, by its name.
        batch_bytes: the size of a batch, where bytes are what counts.
    """

    work: str
    title: str
    workers: str
    figures: Mapping[str, Figure]
    targets: tuple[Target, ...]
    how: Mapping[str, str] = field(default_factory=dict)
    batch_bytes: int | None = None

    @property
    def limits(self) -> list[str]:
        return [name for name in self.figures if name not in ("torch", "stoker")]

    def share(self, contender: str, of: str) -> float | None:
        if contender not in self.figures or of not in self.figures:
            return None
        return self.figures[contender].per_s / self.figures[of].per_s

    def measured(self, target: Target) -> float | None:
        """What ``target`` asks about: stoker's share of the lowest that it may be held against."""
        shares = [self.share("stoker", name) for name in target.against]
        return max((share for share in shares if share is not None), default=None)


Timings = Mapping[str, Sequence[Timing]]


@dataclass(frozen=True)
class Case:
    """Contenders that are measured in turn, and the rows that follow from what they did."""

    contenders: Mapping[str, Callable[[], Timing]]
    rows: Callable[[Timings], list[Row]]


def steady(timings: Sequence[Timing], chosen: str | None = None) -> Figure:
    return Figure.of([timing.steady_per_s for timing in timings], chosen)


def whole(timings: Sequence[Timing], chosen: str | None = None) -> Figure:
    values = [timing.whole_per_s for timing in timings if timing.whole_per_s is not None]
    return Figure.of(values, chosen)
