"""One setting of a loader beside another, from what was seen of a line. Pure.

Settings that were measured in turn are compared round by round: a machine that becomes slower
does so for both. What was seen at other times is a look, and known less well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.tuning.answer import Rate
from stoker.tuning.asks import IN_TURN
from stoker.tuning.noise import doubt
from stoker.tuning.probing import Setting
from stoker.tuning.site_record import Seen

SAME = 0.02
"""A difference that is less is none."""
AGREE = 0.05
"""Where every pair shows more than this, the pairs agree, however far they lie apart."""
LIKELY = 1.1
"""Times from which on a gain is taken before it is beyond all doubt: to forgo it costs more than
a needless worker."""
LOOKS = 0.05
"""Share by which rates may be off that were not measured in turn."""
ONE_WINDOW = 0.04
"""Standard error of a rate that was measured in one window."""


@dataclass(frozen=True)
class Beside:
    """How much faster one setting is than another.

    Attributes:
        ratio: Its rate over the other's.
        doubt: By how much `ratio` may be off.
        least: The smallest ratio of a pair; 0 where they were not measured in turn.
        pairs: Rounds in which both were measured.
    """

    ratio: float
    doubt: float
    least: float = 0.0
    pairs: int = 0

    @property
    def faster(self) -> bool:
        """Whether it is faster by more than noise."""
        agree = self.pairs > 1 and self.least > 1 + AGREE
        return self.ratio > 1 + SAME and (agree or self.ratio - 1 > self.doubt)

    @property
    def likely_faster(self) -> bool:
        """Whether it gains so much that what is more likely than noise is enough."""
        return self.pairs > 1 and self.ratio > LIKELY and self.ratio - 1 > self.doubt / 2

    @property
    def slower(self) -> bool:
        """Whether it is slower by more than noise."""
        return self.ratio < 1 - max(SAME, self.doubt)

    def times(self, factor: float) -> Beside:
        """The same with a known factor between both."""
        return Beside(
            self.ratio * factor, self.doubt * factor, self.least * factor, pairs=self.pairs
        )


def compare(seen: Sequence[Seen], one: Rate, other: Rate) -> Beside:
    """How `one` stands to `other`; in pairs where they were measured so."""
    ratios = _pairs(seen, setting_of(one), setting_of(other))
    if not ratios:
        ratio = _ratio(one.summary.batches_per_s, other.summary.batches_per_s)
        return Beside(ratio, ratio * math.hypot(LOOKS, _error(one), _error(other)))
    ratio = statistics.median(ratios)
    found = doubt(ratios)
    if found is None:  # one window of each
        found = 2 * math.hypot(ONE_WINDOW, ONE_WINDOW) * ratio
    return Beside(ratio, found, min(ratios), len(ratios))


def setting_of(rate: Rate) -> Setting:
    """What a rate was measured with."""
    return Setting(rate.summary.num_workers, rate.engine, rate.prefetch_factor)


def _pairs(seen: Sequence[Seen], one: Setting, other: Setting) -> list[float]:
    """Ratios of one round each; the extras of a line follow each other, turn by turn."""
    rounds: dict[Setting, dict[tuple[str, int], float]] = {one: {}, other: {}}
    turns = {one: 0, other: 0}
    for each in seen:
        if each.setting not in rounds:
            continue
        if each.stage in IN_TURN:
            rounds[each.setting]["in turn", each.round] = each.window.rate_per_s
        elif each.stage == "extras":
            rounds[each.setting][each.stage, turns[each.setting]] = each.window.rate_per_s
            turns[each.setting] += 1
    common = rounds[one].keys() & rounds[other].keys()
    return [_ratio(rounds[one][key], rounds[other][key]) for key in sorted(common)]


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else 1.0


def _error(rate: Rate) -> float:
    summary = rate.summary
    if summary.spread is None:
        return ONE_WINDOW
    return summary.spread / math.sqrt(max(1, summary.repeats))
