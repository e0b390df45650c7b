"""Which setting is recommended, from what was seen of a line, and what it would gain. Pure.

The number comes from the prober. Here it is held against the program's own setting: a gain that
may be noise is none, and then what there is stays. Where every epoch starts its workers and
nothing can keep them, rates over whole epochs count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.tuning import startup
from stoker.tuning.answer import Advice, Rate
from stoker.tuning.compared import SAME, Beside, compare
from stoker.tuning.costs import parts_of
from stoker.tuning.grounds import Grounds, reason
from stoker.tuning.rates import is_plain, only_early, plain_seen
from stoker.tuning.site_record import SiteRecord

WORTH = 1.05
"""Times by which another setting than the number must be faster to be worth an argument."""
DEAR, MANY, LITTLE = 2, 4, 1.1
"""A number that is so many times, and so many workers, more than another one has to be shown to be
faster: up to the third, noise may be all that it gains."""
WITHOUT_PAIRS = 0.8
"""Share of the rate with far more workers that fewer must give where only looks were compared."""


def advice_of(record: SiteRecord, rates: Sequence[Rate], given: int | None = None) -> Advice | None:
    """The recommended setting; None where nothing was measured.

    Args:
        record: What was seen.
        rates: What was measured.
        given: The number that it has to be, where it was measured; None for the best.
    """
    plain = [rate for rate in rates if is_plain(rate)]
    if not plain:
        return None
    own = next((rate for rate in plain if rate.own), None)
    chosen, moved = _best(record, plain, own)
    chosen = next((r for r in plain if r.summary.num_workers == given), chosen)
    more = _more_in_advance(record, rates, chosen)
    persistent = startup.arguments_for(starts_of(record, chosen))
    arguments = (*persistent, *more.arguments) if chosen.summary.num_workers else ()
    return Advice(
        num_workers=chosen.summary.num_workers,
        batches_per_s=chosen.summary.batches_per_s,
        reason=reason(Grounds(record, plain, chosen, own, over_epochs=starts_count(record))),
        certain=_is_certain(record, own, chosen, moved),
        arguments=arguments,
        gain=_gain(record, own, chosen, kept=bool(persistent), more=more.ratio),
    )


def _is_certain(record: SiteRecord, own: Rate | None, chosen: Rate, moved: bool) -> bool:
    """Whether more measuring would hardly change what is recommended."""
    if not record.certain or moved:
        return False
    return own is None or not (only_early(record) or _is_guess(record, own, chosen))


def _is_guess(record: SiteRecord, own: Rate, chosen: Rate) -> bool:
    """Whether more workers than now are likely, but not shown, to be faster."""
    if chosen.summary.num_workers <= own.summary.num_workers:
        return False
    beside = _beside_own(record, own, chosen)
    return beside.likely_faster and not beside.faster


def _beside_own(record: SiteRecord, own: Rate, chosen: Rate) -> Beside:
    """A setting beside the program's own; over whole epochs, where these start their workers."""
    factor = _start(chosen) / _start(own) if starts_count(record) else 1.0
    return compare(record.seen, chosen, own).times(factor)


def _best(record: SiteRecord, plain: Sequence[Rate], own: Rate | None) -> tuple[Rate, bool]:
    """The best setting, and whether it is another than the prober has found."""
    found = next((r for r in plain if r.summary.num_workers == record.chosen), None)
    chosen = found or max(plain, key=lambda rate: rate.summary.batches_per_s)
    if starts_count(record):
        chosen = _over_whole_epochs(record, plain, chosen)
    if own is not None and _stays(record, own, chosen):
        return own, False
    return _no_dearer(record, plain, chosen), chosen is not found


def _no_dearer(record: SiteRecord, plain: Sequence[Rate], chosen: Rate) -> Rate:
    """Far fewer workers, where it is in doubt that the chosen ones are faster."""
    if record.certain:
        return chosen
    for rate in sorted(plain, key=lambda rate: rate.summary.num_workers):
        if not _is_dear(chosen, rate):
            continue
        beside = compare(record.seen, chosen, rate)
        if starts_count(record):
            beside = beside.times(_start(chosen) / _start(rate))
        if beside.pairs > 1 and beside.ratio <= LITTLE and not beside.faster:
            return rate
    return chosen


def _is_dear(rate: Rate, beside: Rate) -> bool:
    """Whether a setting has far more workers than another one that has some."""
    count, fewer = rate.summary.num_workers, beside.summary.num_workers
    return fewer > 0 and count >= DEAR * fewer and count - fewer >= MANY


def starts_count(record: SiteRecord) -> bool:
    """Whether workers are started for every epoch, and nothing can keep them."""
    made_anew = record.made > 1 and record.epochs <= record.made
    return not record.persistent and (record.epochs <= 1 or made_anew)


def starts_of(record: SiteRecord, rate: Rate) -> startup.Starts:
    """How epochs begin with this setting; with the program's own, as they really began."""
    summary = rate.summary
    start_s = summary.first_batch_s
    if rate.own and record.starts_s:
        start_s = statistics.mean(record.starts_s)
    length = record.loader.epoch_batches
    seen = plain_seen(record).get(summary.num_workers, [])
    return startup.Starts(
        num_workers=summary.num_workers,
        made=record.made,
        epochs=record.epochs,
        start_s=start_s,
        epoch_s=length / summary.epoch_batches_per_s if length else None,
        persistent=record.persistent,
        method=record.method,
        first_s=parts_of(summary.num_workers, seen).service_s,
    )


def _over_whole_epochs(record: SiteRecord, plain: Sequence[Rate], chosen: Rate) -> Rate:
    """The fewest workers within reach of the best, where every epoch starts them."""
    best = max(plain, key=_whole_per_s)
    if not compare(record.seen, best, chosen).times(_start(best) / _start(chosen)).faster:
        return chosen
    fits = [rate for rate in plain if _whole_per_s(rate) >= (1 - SAME) * _whole_per_s(best)]
    return min(fits, key=lambda rate: rate.summary.num_workers)


def _whole_per_s(rate: Rate) -> float:
    return rate.summary.epoch_batches_per_s


def _start(rate: Rate) -> float:
    """The share of its rate that is left once workers are started for every epoch."""
    per_s = rate.summary.batches_per_s
    return rate.summary.epoch_batches_per_s / per_s if per_s > 0 else 1.0


def _stays(record: SiteRecord, own: Rate, chosen: Rate) -> bool:
    """Whether the program's own number stays: more gain nothing, or fewer lose something."""
    if own is chosen:
        return True
    beside = _beside_own(record, own, chosen)
    if chosen.summary.num_workers > own.summary.num_workers:
        return not (beside.faster or beside.likely_faster)
    if _is_dear(own, chosen) and beside.pairs < 2 and beside.ratio > WITHOUT_PAIRS:
        return False
    return beside.slower and beside.ratio < 1 / WORTH


@dataclass(frozen=True)
class _More:
    """What more batches in advance bring."""

    ratio: float = 1.0
    arguments: tuple[tuple[str, str], ...] = ()


def _more_in_advance(record: SiteRecord, rates: Sequence[Rate], chosen: Rate) -> _More:
    for rate in rates:
        same = rate.summary.num_workers == chosen.summary.num_workers
        if rate.engine != "torch" or not same or rate.prefetch_factor is None:
            continue
        beside = compare(record.seen, rate, chosen)
        if beside.faster and beside.ratio > WORTH:
            return _More(beside.ratio, (("prefetch_factor", str(rate.prefetch_factor)),))
    return _More()


def _gain(
    record: SiteRecord, own: Rate | None, chosen: Rate, *, kept: bool, more: float
) -> float | None:
    """Rate with all that over the rate now; what may be noise is no gain."""
    if own is None:
        return None
    saved = _kept(record, chosen) if kept else _start(chosen)
    factor = more * saved / _start(own)
    if own is chosen:
        return factor if kept or more > 1 else 1.0
    beside: Beside = compare(record.seen, chosen, own).times(factor)
    shown = beside.faster or beside.likely_faster or beside.slower
    return beside.ratio if shown else 1.0


def _kept(record: SiteRecord, rate: Rate) -> float:
    """The rate with workers that stay, over the steady rate.

    Whole epochs were measured with their start: without it they are so much shorter.
    """
    if rate.summary.method != "epochs":
        return 1.0
    return 1 / max(0.05, 1 - starts_of(record, rate).share)
