"""Loops that begin an epoch for each batch: ``next(iter(loader))`` in every step. Pure.

Each time all workers are started, or their work in advance is thrown away, for one batch. What
other numbers of workers give in such a loop says nothing of what they would give in a proper one.
"""

from __future__ import annotations

import statistics

from stoker.tuning.answer import Change, Limit, Parts
from stoker.tuning.site_record import SiteRecord
from stoker.tuning.wording import count_of, duration, percent, workers

LEAST = 4
"""Epochs from which on it is a habit."""
A_BATCH = 1.5
"""Batches of an epoch, on average, that are one."""
WHOLE = 0.25
"""Share of the epochs that may have gone to their end: a program that does that has short ones."""
WORTH = 0.1
"""Share of the time from which on waiting is worth a change, and a start is the limit."""


def begins_each_step(record: SiteRecord) -> bool:
    """Whether the program takes one batch of each epoch, and leaves the rest."""
    length = record.loader.epoch_batches
    habit = record.epochs >= LEAST and record.batches <= A_BATCH * record.epochs
    return habit and length != 1 and record.ended <= WHOLE * record.epochs


def told(record: SiteRecord, parts: Parts | None) -> str:
    """What it is, what it costs with the own setting, and what to do."""
    begun = f"{count_of(record.epochs, 'epoch')} were begun for {_batches(record)}"
    return (
        f"{begun}, as next(iter(loader)) in each step does: {_cost(record, parts)}, and without "
        f"shuffling each step gets the first batch again; what is told of other numbers of workers "
        f"holds only as long as that is so"
    )


def limit(record: SiteRecord, parts: Parts | None) -> Limit | None:
    """The start of the workers where it takes its part of each step; else None."""
    start_s, step_s = _start_s(record, parts), parts.step_s if parts else 0.0
    if not record.own or start_s < WORTH * (start_s + step_s):
        return None
    share = start_s / (start_s + step_s)
    return Limit(
        "start",
        f"an epoch is begun for each batch: {duration(start_s)} of each step "
        f"({percent(share)}) go by before {workers(record.own)} have brought the first batch of "
        f"one",
    )


def change(record: SiteRecord, parts: Parts | None, waiting: float) -> Change | None:
    """To keep the iterator; None where the consumer hardly waits."""
    if waiting < WORTH and limit(record, parts) is None:
        return None
    once = "make the loader once, before the loop, and " if _made_anew(record) else ""
    stay = "" if record.persistent or not record.own else "; persistent_workers=True as well"
    text = (
        f"{once}keep its iterator: batches = iter(loader) before the loop and next(batches) in it, "
        f"with a new iter(loader) after StopIteration{stay}; then measure again"
    )
    return Change(text, record.site.file, record.site.line)


def _made_anew(record: SiteRecord) -> bool:
    return record.made > 1 and record.epochs <= record.made


def _batches(record: SiteRecord) -> str:
    length = record.loader.epoch_batches
    of = f" of {length:,} each" if length else ""
    return f"{count_of(record.batches, 'batch')}{of}"


def _start_s(record: SiteRecord, parts: Parts | None) -> float:
    """From ``iter(loader)`` to its first batch."""
    if record.starts_s:
        return statistics.median(record.starts_s)
    return parts.waited_s + parts.loading_s if parts else 0.0


def _cost(record: SiteRecord, parts: Parts | None) -> str:
    takes = duration(_start_s(record, parts))
    if not record.own:
        return f"{takes} a step, in which nothing is made in advance, and workers could not help"
    if record.persistent:
        return (
            f"{takes} a step, in which {workers(record.own)} throw away what they have made in "
            f"advance"
        )
    return f"{takes} a step, in which {workers(record.own)} are started for one batch and ended"
