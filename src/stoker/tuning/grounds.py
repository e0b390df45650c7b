"""Why a number of workers is recommended, in one sentence. Pure.

It claims what was measured, and no more: settings that were measured in turn are compared, what
was a look at another time is told as "about".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.tuning.answer import Rate
from stoker.tuning.compared import SAME, Beside, compare
from stoker.tuning.site_record import SiteRecord
from stoker.tuning.wording import number, percent, times, workers

FED = 0.03
"""Share of waiting below which a consumer is fed."""
START = 0.05
"""Share of the rate that starting workers takes, from which on it is worth a word."""


@dataclass(frozen=True)
class Grounds:
    """What a recommendation rests on.

    Attributes:
        record: What was seen.
        plain: What was measured with PyTorch's loader and nothing but another number.
        chosen: The recommended one of these.
        own: The program's own; None where it has none.
        over_epochs: Whether rates over whole epochs, with the start of workers, count.
    """

    record: SiteRecord
    plain: Sequence[Rate]
    chosen: Rate
    own: Rate | None
    over_epochs: bool = False

    @property
    def count(self) -> int:
        return self.chosen.summary.num_workers

    def compare(self, one: Rate, other: Rate) -> Beside:
        """How `one` stands to `other`, with what their starts leave of it where that counts."""
        found = compare(self.record.seen, one, other)
        return found.times(self.left(one) / self.left(other)) if self.over_epochs else found

    def left(self, rate: Rate) -> float:
        """The share of a rate that is left over an epoch that begins with starting workers."""
        summary = rate.summary
        return summary.epoch_batches_per_s / summary.batches_per_s

    def beside(self, rate: Rate) -> Beside:
        """How `rate` stands to the recommended one."""
        return self.compare(rate, self.chosen)

    def per_s(self, rate: Rate) -> str:
        """Its rate in words; where starts count and take their part, over an epoch."""
        if not self.over_epochs or self.left(rate) >= 1 - START:
            return number(rate.summary.batches_per_s)
        return f"{number(rate.summary.epoch_batches_per_s)} over an epoch"


def reason(grounds: Grounds) -> str:
    """A sentence with the rate, what it is compared with, and how long the consumer waits."""
    told = f"{workers(grounds.count)}: {number(grounds.chosen.summary.batches_per_s)} batches/s"
    parts = [told + _than_now(grounds), _with_starts(grounds), _than_others(grounds)]
    parts += [_the_most(grounds), _waits(grounds)]
    return "; ".join(part for part in parts if part) + "."


def _than_now(grounds: Grounds) -> str:
    own, chosen = grounds.own, grounds.chosen
    if own is None or own is chosen:
        return ""
    found = grounds.compare(chosen, own)
    now = f"{grounds.per_s(own)} of now with {own.summary.num_workers}"
    if found.likely_faster and not found.faster:
        return f", probably about {times(found.ratio)} the {now}, although rates vary by as much"
    if not (found.faster or found.slower):
        return f", within the noise of the {now}"
    about = "" if found.pairs else "about "
    return f", {about}{times(found.ratio)} the {now}"


def _with_starts(grounds: Grounds) -> str:
    summary = grounds.chosen.summary
    whole = summary.epoch_batches_per_s
    if not grounds.over_epochs or whole >= (1 - START) * summary.batches_per_s:
        return ""
    return f"{number(whole)} over an epoch that begins with starting them"


def _than_others(grounds: Grounds) -> str:
    """The best of the others; one that was measured in turn with it says more than a look."""
    others = [rate for rate in grounds.plain if rate not in (grounds.chosen, grounds.own)]
    if len(grounds.plain) == 1 and grounds.record.rare:
        share = percent(grounds.record.rare)
        return f"no other number was measured: the program waits {share} of its time for it"
    if len(grounds.plain) == 1:
        return "no other number was measured"
    if not others:
        return ""
    found = {rate.summary.num_workers: grounds.beside(rate) for rate in others}
    in_turn = [rate for rate in others if found[rate.summary.num_workers].pairs]
    best = max(in_turn or others, key=lambda rate: rate.summary.batches_per_s)
    beside = found[best.summary.num_workers]
    count, per_s = best.summary.num_workers, grounds.per_s(best)
    if not beside.pairs:
        return f"a look at {workers(count)} gave about {per_s}"
    return f"{workers(count)} gave {per_s}{_more(grounds, count, beside)}"


def _more(grounds: Grounds, count: int, beside: Beside) -> str:
    if beside.ratio <= 1.001 or count < grounds.count:
        return ""
    told = f", {percent(beside.ratio - 1)} more round by round"
    if not beside.faster:
        return f"{told}, which is within the noise"
    return f"{told}, too little for {count - grounds.count} more"


def _the_most(grounds: Grounds) -> str:
    """That nothing above was tried, where the rate was still rising."""
    below = [r for r in grounds.plain if r.summary.num_workers < grounds.count]
    highest = max(rate.summary.num_workers for rate in grounds.plain)
    if not below or highest > grounds.count or grounds.chosen.waiting <= FED:
        return ""
    next_below = max(below, key=lambda rate: rate.summary.num_workers)
    beside = grounds.beside(next_below)
    if beside.ratio >= 1 - max(SAME, beside.doubt):
        return ""
    most, source = grounds.record.workers_most
    why = f" ({source})" if source and grounds.count >= most else ""
    return f"it is the most that was tried{why}"


def _waits(grounds: Grounds) -> str:
    share = grounds.chosen.waiting
    if share <= 0:
        return ""
    if grounds.count:
        return f"the consumer waits {percent(share)} of the time"
    return f"making batches takes {percent(share)} of the time"
