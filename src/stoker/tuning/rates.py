"""From the measured stretches of a line to a rate for each setting. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from stoker.tuning.answer import Rate
from stoker.tuning.asks import IN_TURN
from stoker.tuning.noise import spread
from stoker.tuning.probing import Setting
from stoker.tuning.recommend import CountSummary
from stoker.tuning.site_record import Seen, SiteRecord
from stoker.tuning.visits import Visit, measurable


def rates_of(record: SiteRecord) -> tuple[Rate, ...]:
    """One for each setting that was measured, by rising number of workers."""
    groups: dict[Setting, list[Seen]] = {}
    for seen in record.seen:
        if seen.stage != "replay":
            groups.setdefault(seen.setting, []).append(seen)
    rates = [_rate(record, setting, found) for setting, found in groups.items()]
    return tuple(sorted(rates, key=_order))


WARMING, LEAST_STEP_S = 2.0, 0.001
"""Times by which a step that is warming up is longer, and a step too short to tell."""


def telling(seen: Sequence[Seen]) -> list[Seen]:
    """The stretches that say anything: a few have no batch, or times that can't be.

    A program's first steps may take many times as long as later ones (kernels are chosen, memory
    is touched for the first time): stretches of the own setting with such steps are left out.
    """
    found = _alike([each for each in seen if _tells(each)])
    steps = [each.window.away_each_s for each in found if each.stage == "own"]
    if not steps:
        return found
    most_s = WARMING * max(min(steps), LEAST_STEP_S)
    return [each for each in found if each.stage != "own" or each.window.away_each_s <= most_s]


def _alike(seen: Sequence[Seen]) -> list[Seen]:
    whole = {each.setting for each in seen if each.window.whole}
    return [
        each
        for each in seen
        if each.window.whole or each.setting not in whole or each.stage == "replay"
    ]


def only_early(record: SiteRecord) -> bool:
    """Whether the program's own setting was seen only before any other was tried."""
    stages = {each.stage for each in record.seen} - {"replay"}
    own = {each.stage for each in record.seen if each.setting == Setting(record.own)}
    return own == {"own"} and stages != {"own"}


def _tells(seen: Seen) -> bool:
    if seen.stage == "replay":
        return seen.window.batches > 0 and seen.window.seconds > 0
    return measurable(seen.window)


def _order(rate: Rate) -> tuple[int, bool, int]:
    return (rate.summary.num_workers, rate.engine == "stoker", rate.prefetch_factor or 0)


def is_plain(rate: Rate) -> bool:
    """Whether it is PyTorch's loader with nothing but another number of workers."""
    return rate.engine == "torch" and rate.prefetch_factor is None


def plain_seen(record: SiteRecord) -> dict[int, list[Seen]]:
    """The stretches with PyTorch's loader as it is, by number of workers."""
    found: dict[int, list[Seen]] = {}
    for seen in record.seen:
        if seen.stage != "replay" and seen.setting == Setting(seen.setting.workers):
            found.setdefault(seen.setting.workers, []).append(seen)
    return found


def bound_of(record: SiteRecord, rates: Sequence[Rate]) -> float | None:
    """Batches a second with ready batches; never below what was reached with real ones."""
    found = [seen.window.rate_per_s for seen in record.seen if seen.stage == "replay"]
    if not found:
        return None
    reached = max((rate.summary.batches_per_s for rate in rates), default=0.0)
    return max(statistics.median(found), reached)


def _rate(record: SiteRecord, setting: Setting, found: list[Seen]) -> Rate:
    """Where a setting was compared in pairs, only that counts: the rest was a look."""
    paired = [seen for seen in found if seen.stage in IN_TURN] or found
    visit = Visit.of(setting.workers, [seen.window for seen in paired])
    rates = [seen.window.rate_per_s for seen in paired]
    in_turn = any(seen.stage in IN_TURN for seen in paired)
    per_s = statistics.median(rates) if in_turn else visit.rate_per_s
    starts = [seen.first_batch_s for seen in found if seen.first_batch_s is not None]
    whole = all(seen.window.whole for seen in paired)
    first_s = statistics.median(starts) if starts else 0.0
    length = record.loader.epoch_batches
    return Rate(
        summary=CountSummary(
            num_workers=setting.workers,
            batches_per_s=per_s,
            epoch_batches_per_s=per_s if whole else _over_an_epoch(record, per_s, first_s),
            first_batch_s=first_s,
            epoch_s=length / per_s if length and per_s > 0 else None,
            spread=spread(rates),
            repeats=len(paired),
            method="epochs" if whole else "steady",
            complete=True,
        ),
        waiting=visit.waiting,
        busy_workers=visit.busy if setting.workers else None,
        cpus_used=visit.cpus_used,
        memory_bytes=_memory(found),
        own=setting == Setting(record.own) and not record.loader.automatic,
        engine=setting.engine,
        prefetch_factor=setting.prefetch_factor,
    )


def _over_an_epoch(record: SiteRecord, per_s: float, first_s: float) -> float:
    """The rate over an epoch that begins with starting the workers; a first batch takes at least
    as long as any.
    """
    length = record.loader.epoch_batches
    if not length or record.persistent or per_s <= 0:
        return per_s
    return length / (max(first_s, 1 / per_s) + (length - 1) / per_s)


def _memory(found: Sequence[Seen]) -> int | None:
    known = [seen.memory_bytes for seen in found if seen.memory_bytes is not None]
    return max(known) if known else None
