"""The fewest workers within noise of the best. Pure.

A count is within noise of the best when the median of its rate over the best's, round by
round, falls short of 1 by no more than the doubt of that median, or than ``INDIFFERENT``.
The rate compared is the one over a whole epoch, start-up included, since that is what a
training loop gets.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stoker.tuning.meter import Method, Observation
from stoker.tuning.noise import doubt, spread

INDIFFERENT = 0.02
ACCEPTABLE = 0.05
HOPELESS = 0.10
UNKNOWN_NOISE = 0.10


def epoch_rate(observation: Observation) -> float:
    """Batches a second over a whole epoch; the steady rate where start-up is paid once."""
    batches, rate = observation.epoch_batches, observation.batches_per_s
    if observation.method == "epochs" or observation.persistent or not batches:
        return rate
    epoch_s = observation.epoch_s or observation.first_batch_s + (batches - 1) / rate
    return batches / epoch_s if epoch_s > 0 else rate


@dataclass(frozen=True)
class CountSummary:
    """All trials at one worker count.

    Attributes:
        num_workers: The count.
        batches_per_s: Median over the trials.
        epoch_batches_per_s: Median of the rate over a whole epoch, start-up included.
        first_batch_s: Median seconds to the first batch.
        epoch_s: Median seconds of a whole epoch; None when none was seen whole.
        spread: Relative deviation of ``batches_per_s``: 0.03 is 3 %; None with one trial.
        repeats: Trials behind these numbers.
        method: How the rate was taken, as in ``Observation``.
        complete: False when no trial at this count ran to its end.
    """

    num_workers: int
    batches_per_s: float
    epoch_batches_per_s: float
    first_batch_s: float
    epoch_s: float | None
    spread: float | None
    repeats: int
    method: Method
    complete: bool


@dataclass(frozen=True)
class Comparison:
    """One count beside the best one.

    Attributes:
        num_workers: The count.
        shortfall: By which share it is slower than the best; negative when faster.
        noise: Doubt of ``shortfall``.
        pairs: Rounds in which both were measured.
    """

    num_workers: int
    shortfall: float
    noise: float
    pairs: int

    @property
    def within_noise(self) -> bool:
        """Whether the difference to the best may be chance or does not matter."""
        return self.shortfall <= max(INDIFFERENT, self.noise)

    @property
    def certain(self) -> bool:
        """Whether more repeats would hardly turn ``within_noise`` around."""
        if self.within_noise:
            return self.shortfall + self.noise <= ACCEPTABLE
        return self.shortfall - self.noise > INDIFFERENT

    @property
    def may_lead(self) -> bool:
        """Whether more repeats might show it notably faster than the best so far."""
        return self.noise - self.shortfall > ACCEPTABLE

    @property
    def hopeless(self) -> bool:
        """Whether measuring it further is a waste."""
        return self.pairs >= 2 and self.shortfall - 2 * self.noise > HOPELESS


@dataclass(frozen=True)
class Decision:
    """The choice and what it rests on.

    Attributes:
        chosen: The recommended count.
        best: The count with the highest rate.
        comparisons: Every count beside the best, by count, the best itself included.
        contested: Counts to measure again before the choice is certain; empty when it is.
    """

    chosen: int
    best: int
    comparisons: Mapping[int, Comparison]
    contested: frozenset[int]


def summarise(observations: Iterable[Observation]) -> list[CountSummary]:
    """One summary a count, by rising count; a trial cut short counts only where none ran whole."""
    return [_summary(trials) for _, trials in sorted(_by_count(observations).items())]


def decide(observations: Iterable[Observation]) -> Decision | None:
    """The fewest workers within noise of the best; None without an observation."""
    trials = _by_count(observations)
    if not trials:
        return None
    rates = {
        count: {trial.repeat: epoch_rate(trial) for trial in of_count}
        for count, of_count in trials.items()
    }
    medians = {count: statistics.median(by_round.values()) for count, by_round in rates.items()}
    best = max(sorted(medians), key=lambda count: medians[count])
    comparisons = {count: _compare(count, rates[count], rates[best]) for count in sorted(rates)}
    chosen = min(count for count, beside in comparisons.items() if beside.within_noise)
    open_counts = {
        count
        for count, beside in comparisons.items()
        if (beside.may_lead if count > chosen else not beside.certain)
    }
    contested = open_counts | {chosen, best} if open_counts else set()
    return Decision(chosen, best, comparisons, frozenset(contested))


def _by_count(observations: Iterable[Observation]) -> dict[int, list[Observation]]:
    trials: dict[int, list[Observation]] = {}
    for observation in observations:
        trials.setdefault(observation.num_workers, []).append(observation)
    return {count: _whole_ones(of_count) for count, of_count in trials.items()}


def _whole_ones(trials: list[Observation]) -> list[Observation]:
    return [trial for trial in trials if trial.complete] or trials[-1:]


def _compare(count: int, own: Mapping[int, float], best: Mapping[int, float]) -> Comparison:
    ratios = [own[round_] / best[round_] for round_ in own if round_ in best]
    if not ratios:
        ratios = [statistics.median(own.values()) / statistics.median(best.values())]
    return Comparison(count, 1.0 - statistics.median(ratios), _doubt(ratios), len(ratios))


def _doubt(ratios: Sequence[float]) -> float:
    """Doubt of the median of ``ratios``; one ratio alone gets ``UNKNOWN_NOISE``."""
    found = doubt(ratios)
    return UNKNOWN_NOISE if found is None else found


def _summary(trials: list[Observation]) -> CountSummary:
    epochs = [trial.epoch_s for trial in trials if trial.epoch_s is not None]
    rates = [trial.batches_per_s for trial in trials]
    return CountSummary(
        num_workers=trials[0].num_workers,
        batches_per_s=statistics.median(rates),
        epoch_batches_per_s=statistics.median(epoch_rate(trial) for trial in trials),
        first_batch_s=statistics.median(trial.first_batch_s for trial in trials),
        epoch_s=statistics.median(epochs) if epochs else None,
        spread=spread(rates),
        repeats=len(trials),
        method=trials[0].method,
        complete=all(trial.complete for trial in trials),
    )
