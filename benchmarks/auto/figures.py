"""What was seen of a loader that chooses, beside fixed numbers of workers. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_SHARE = 0.95
MOST_ABOVE = 1
MOST_OTHERS_CPUS = 0.1
SETTLED_S = 5.0
LONG_EPOCH_S = 600.0
LATEST_SHARE = 0.03


@dataclass(frozen=True)
class Change:
    """One change of the number of workers; `at_s` and `batch` since the first epoch began."""

    at_s: float
    batch: int
    before: int
    workers: int
    reason: str


@dataclass(frozen=True)
class Settling:
    """How a loader came to its number of workers.

    Attributes:
        workers: in the end.
        settled_s: seconds until the last change; 0 without any.
        settled_batches: batches until then.
        changes: in order of time.
        watched_s: seconds that were looked at.
    """

    workers: int
    settled_s: float
    settled_batches: int
    changes: Sequence[Change]
    watched_s: float


@dataclass(frozen=True)
class Contest:
    """Rates in batches/s, measured in turn.

    Attributes:
        fixed: by number of workers. Those that the first round has ruled out have one figure,
            all others one a round; one that was far from the best before it is left out.
        auto: of the loader that chooses, one a round.
        workers: how many it had at the end of each.
        changes: how often it changed them within these rounds.
        auto_s: seconds it ran for that.
    """

    fixed: Mapping[int, Sequence[float]]
    auto: Sequence[float]
    workers: Sequence[int]
    changes: int
    auto_s: float

    def median(self, count: int) -> float:
        return statistics.median(self.fixed[count])

    @property
    def best(self) -> int:
        """The fixed count with the highest rate, of those measured in every round."""
        rounds = len(self.auto)
        whole = [count for count, rates in self.fixed.items() if len(rates) == rounds]
        return max(whole, key=self.median)

    @property
    def fewest(self) -> int:
        """The fewest workers within 5 % of the best rate."""
        best = self.fixed[self.best]
        return min(
            count for count, rates in self.fixed.items() if _paired(rates, best) >= LEAST_SHARE
        )

    @property
    def share(self) -> float:
        """The loader's rate over the best."""
        return _paired(self.auto, self.fixed[self.best])


def _paired(rates: Sequence[float], others: Sequence[float]) -> float:
    """The median of ratios, each of the same round, so that the machine's drift cancels out."""
    return statistics.median(rate / other for rate, other in zip(rates, others, strict=False))


def finalists(rates: Mapping[int, float], chosen: int) -> list[int]:
    """Which counts need more than one figure.

    They are the best, or the fewest as good as it; the fewest close to it and the one below;
    the chosen one, and its neighbours, unless these are far from the best.
    """
    counts, most = sorted(rates), max(rates.values())

    def fewest(share: float) -> int:
        return next(count for count in counts if rates[count] >= share * most)

    at = counts.index(chosen)
    places = {counts.index(fewest(0.92)) - 1, at - 1, at + 1}
    beside = {
        counts[place]
        for place in places
        if 0 <= place < len(counts) and rates[counts[place]] >= 0.87 * most
    }
    return sorted({fewest(0.98), fewest(0.92), chosen, *beside})


@dataclass(frozen=True)
class Row:
    """One line of the table: a work and a consumer.

    Attributes:
        others_cpus: CPUs that other programs kept busy meanwhile, on average.
    """

    work: str
    consumer: str
    settling: Settling
    contest: Contest
    others_cpus: float

    @property
    def workers(self) -> int:
        return self.settling.workers

    def missed(self) -> list[str]:
        """What is off its target, in words; empty where all are reached."""
        return [
            *_share_missed(self.contest),
            *_count_missed(self.workers, self.contest),
            *settled_missed(self.settling),
        ]


def _share_missed(contest: Contest) -> list[str]:
    return [] if contest.share >= LEAST_SHARE else [f"rate {contest.share:.0%}"]


def _count_missed(workers: int, contest: Contest) -> list[str]:
    most = contest.fewest + MOST_ABOVE
    return [] if workers <= most else [f"{workers} workers, {contest.fewest} would do"]


def settled_missed(settling: Settling) -> list[str]:
    """Settled later than `SETTLED_S`; says whether that is early enough for a long epoch."""
    latest_s = LATEST_SHARE * LONG_EPOCH_S
    if settling.settled_s <= SETTLED_S:
        return []
    late = "" if settling.settled_s > latest_s else f", within {latest_s:g} s"
    return [f"settled late{late}"]


@dataclass(frozen=True)
class Finding:
    """One further figure.

    Attributes:
        name: of what was looked at.
        figure: with its unit, in words.
        target: in words; empty where there is none.
        missed: what is off the target; None without one.
        facts: the measurements, for JSON.
    """

    name: str
    figure: str
    target: str = ""
    missed: Sequence[str] | None = None
    facts: Mapping[str, object] | None = None
