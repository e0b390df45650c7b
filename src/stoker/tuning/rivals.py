"""Which of several numbers of workers is best, and by how much, from rounds. Pure.

In a round each number is measured once, one after the other. What changes from round to round
(the machine becomes slower, a disk warms up) is the same for all numbers in it, and is taken
out: the logarithm of a rate is what the number gives, plus what the round gave to all, plus
noise. Windows that fit badly count for little.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

NOISE, NOISE_WEIGHT = 0.03, 4
"""Before anything is known, rates are taken to differ by 3 %, with the weight of four windows:
two that agree by chance prove nothing."""
SIGMA_OVER_MAD = 1.4826
FAR = 2.0
"""Deviations from which on a window counts for less."""
PASSES = 12
DOUBT = 1.5
"""Standard errors of a difference that are its doubt."""


@dataclass(frozen=True)
class Standing:
    """How a number stands to another one.

    Attributes:
        short: Share by which it is slower.
        least, most: What that could be as well.
    """

    short: float
    least: float
    most: float

    def at_most(self, share: float) -> Standing:
        """The same where it is known that no more than that is lacking."""
        return Standing(*(min(each, share) for each in (self.short, self.least, self.most)))


@dataclass
class _Cell:
    """One number in one round: logarithm of the rate, its error, and how well it fits, 0 to 1."""

    count: int
    round: int
    log: float
    error: float
    fits: float = 1.0

    @property
    def weight(self) -> float:
        return self.fits / self.error**2


class Rounds:
    """Rates of several numbers of workers, by round."""

    def __init__(self) -> None:
        self._cells: list[_Cell] = []
        self._levels: dict[int, float] = {}
        self._shifts: dict[int, float] = {}
        self._scale = 1.0

    def add(self, count: int, round: int, rate_per_s: float, unlike: float = 0.0) -> None:
        """A number was measured in a round.

        Args:
            count: Workers.
            round: The round; -1 for what was measured before them, and counts for little.
            rate_per_s: Batches a second.
            unlike: Share by which the rate may be off because it is of few, unlike batches.
        """
        self._cells.append(_Cell(count, round, math.log(rate_per_s), math.hypot(NOISE, unlike)))
        self._fit()

    def drop(self, count: int) -> None:
        """A number does not work: it is no rival any more."""
        self._cells = [cell for cell in self._cells if cell.count != count]
        self._fit()

    @property
    def counts(self) -> list[int]:
        """The numbers that were measured, in order."""
        return sorted({cell.count for cell in self._cells if cell.round >= 0})

    def times(self, count: int) -> int:
        """In how many rounds a number was measured."""
        return sum(cell.count == count and cell.round >= 0 for cell in self._cells)

    def best(self, counts: Iterable[int]) -> int:
        """The number with the highest rate; of equals the smallest."""
        return max(sorted(counts), key=lambda n: self._levels[n])

    def standing(self, count: int, other: int) -> Standing:
        """How much slower a number is than another one."""
        if count == other:
            return Standing(0.0, 0.0, 0.0)
        error = self._scale * math.hypot(self._error(count), self._error(other))
        short = 1 - math.exp(min(50.0, self._levels[count] - self._levels[other]))
        return Standing(short, short - DOUBT * error, short + DOUBT * error)

    def error(self, count: int) -> float:
        """Standard error of a number's rate, as a share of it."""
        return self._scale * self._error(count)

    def _error(self, count: int) -> float:
        return 1 / math.sqrt(math.fsum(1 / c.error**2 for c in self._cells if c.count == count))

    def _fit(self) -> None:
        """Least squares for numbers and rounds, with less weight for what lies far off."""
        if not self._cells:
            return
        self._levels = {
            n: statistics.median(cell.log for cell in self._cells if cell.count == n)
            for n in {cell.count for cell in self._cells}
        }
        for cell in self._cells:
            cell.fits = 1.0
        for _ in range(PASSES):
            self._shifts = _means(self._cells, _round, lambda c: c.log - self._levels[c.count])
            self._levels = _means(self._cells, _count, lambda c: c.log - self._shifts[c.round])
            off = [abs(each) for each in self._left()]
            usual = FAR * max(1.0, SIGMA_OVER_MAD * statistics.median(off))
            for cell, each in zip(self._cells, off, strict=True):
                cell.fits = min(1.0, usual / max(1e-9, each))
        squares = math.fsum(each * each for each in self._left())
        free = max(0, len(self._cells) - len(self._levels) - len(self._shifts) + 1)
        self._scale = math.sqrt((NOISE_WEIGHT + squares) / (NOISE_WEIGHT + free))

    def _left(self) -> Iterator[float]:
        """What neither number nor round explains, in errors."""
        for cell in self._cells:
            yield (cell.log - self._levels[cell.count] - self._shifts[cell.round]) / cell.error


def _means(
    cells: list[_Cell], key: Callable[[_Cell], int], value: Callable[[_Cell], float]
) -> dict[int, float]:
    """The weighted mean of a value, by number or by round."""
    sums: dict[int, tuple[float, float]] = {}
    for cell in cells:
        total, weight = sums.get(key(cell), (0.0, 0.0))
        sums[key(cell)] = total + cell.weight * value(cell), weight + cell.weight
    return {each: total / weight for each, (total, weight) in sums.items()}


def _round(cell: _Cell) -> int:
    return cell.round


def _count(cell: _Cell) -> int:
    return cell.count
