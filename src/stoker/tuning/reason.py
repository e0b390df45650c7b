"""One sentence that says why a count was recommended. Pure.

It claims no more than was measured: a cause is named only where two measurements prove it.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.tuning.recommend import INDIFFERENT, CountSummary, Decision
from stoker.tuning.wording import duration, number, percent, times, workers

NOTABLE = 0.05


def reason(decision: Decision, summaries: list[CountSummary]) -> str:
    """Why ``decision.chosen``, in one sentence without names of variables."""
    counts = {summary.num_workers: summary for summary in summaries}
    head = f"{workers(decision.chosen)}: {number(counts[decision.chosen].batches_per_s)} batches/s"
    if len(counts) == 1:
        return f"{head}; no other count was measured to the end."
    parts = [
        _beside_fewest(decision, counts),
        _beside_rival(decision, counts),
        _once_running(decision, counts),
    ]
    return f"{head}, {'; '.join(part for part in parts if part)}."


def _beside_fewest(decision: Decision, counts: Mapping[int, CountSummary]) -> str:
    """What the chosen count gains over the fewest, or why the fewest is enough."""
    fewest = min(counts)
    if decision.chosen != fewest:
        gain = _epoch_rate(counts, decision.chosen) / _epoch_rate(counts, fewest)
        return f"{times(gain)} the rate of {fewest}{_basis(counts)}"
    if all(beside.within_noise for beside in decision.comparisons.values()):
        noise = max(beside.noise for beside in decision.comparisons.values())
        if noise < INDIFFERENT:
            return f"and all counts are within {percent(INDIFFERENT)} of each other"
        return f"and no count differs by more than the noise of {percent(noise)}"
    return _why_zero(decision, counts) if fewest == 0 else "the fewest measured"


def _why_zero(decision: Decision, counts: Mapping[int, CountSummary]) -> str:
    zero, other = counts[0], counts[_rival(decision, counts)]
    made_s, through_s = 1 / zero.batches_per_s, 1 / other.batches_per_s
    if other.method == "epochs" and other.epoch_s and other.first_batch_s > other.epoch_s / 2:
        return (
            f"an epoch is too short to pay for starting workers: with {other.num_workers}, "
            f"{duration(other.first_batch_s)} of {duration(other.epoch_s)} went by "
            f"before the first batch"
        )
    # Half, since on one CPU a batch is made and moved by turns: then only this proves it.
    if other.method == zero.method == "steady" and through_s > 2 * made_s:
        return (
            f"work per batch is {duration(made_s)}, less than moving it between processes "
            f"({duration(through_s)} a batch with {other.num_workers})"
        )
    return f"{duration(made_s)} a batch in the main process"


def _beside_rival(decision: Decision, counts: Mapping[int, CountSummary]) -> str:
    """The best count where it is another one; else the strongest above the chosen."""
    rival = _rival(decision, counts)
    if rival == decision.chosen:
        return ""
    chosen, beside = decision.comparisons[decision.chosen], decision.comparisons[rival]
    difference = (1 - beside.shortfall) / (1 - chosen.shortfall) - 1
    noise = max(chosen.noise, beside.noise)
    if abs(difference) < 0.001:
        return f"{workers(rival)} gave the same"
    told = (
        f"{workers(rival)} gave {percent(abs(difference))} {'more' if difference > 0 else 'less'}"
    )
    if decision.chosen == min(counts):
        told += _basis(counts)  # said once: else beside the fewest
    if abs(difference) <= noise:
        return f"{told}, within the noise of {percent(noise)}"
    return f"{told}, too little to matter" if abs(difference) <= INDIFFERENT else told


def _rival(decision: Decision, counts: Mapping[int, CountSummary]) -> int:
    if decision.best != decision.chosen:
        return decision.best
    more = [count for count in counts if count > decision.chosen]
    return max(more, key=lambda count: _epoch_rate(counts, count), default=decision.chosen)


def _once_running(decision: Decision, counts: Mapping[int, CountSummary]) -> str:
    """Said only where a count is faster once it runs and loses that by starting up."""
    chosen = counts[decision.chosen]
    faster = max(counts.values(), key=lambda summary: summary.batches_per_s)
    gain = faster.batches_per_s / chosen.batches_per_s - 1
    loses = faster.epoch_batches_per_s <= chosen.epoch_batches_per_s * (1 + INDIFFERENT)
    if gain <= NOTABLE or not loses or not faster.epoch_s:
        return ""
    return (
        f"once running, {workers(faster.num_workers)} gave {percent(gain)} more, but of an "
        f"epoch of {duration(faster.epoch_s)} {duration(faster.first_batch_s)} goes by "
        f"before the first batch"
    )


def _epoch_rate(counts: Mapping[int, CountSummary], count: int) -> float:
    return counts[count].epoch_batches_per_s


def _basis(counts: Mapping[int, CountSummary]) -> str:
    """Says so where counting start-up changes the figures."""
    shares = (each.epoch_batches_per_s / each.batches_per_s for each in counts.values())
    return " over a whole epoch" if any(abs(share - 1) > NOTABLE for share in shares) else ""
