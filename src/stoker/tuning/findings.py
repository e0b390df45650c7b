"""From what was seen of a line that makes loaders to the answer for it. Pure but for the source
text, which is an argument.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from stoker.tuning import each_step, startup
from stoker.tuning.advising import advice_of, starts_of
from stoker.tuning.answer import Advice, Answer, Limit, Parts, Rate
from stoker.tuning.change import change_for
from stoker.tuning.compared import compare
from stoker.tuning.costs import parts_of, work_of
from stoker.tuning.dearest import merge
from stoker.tuning.excerpt import excerpt
from stoker.tuning.limits import limit_of
from stoker.tuning.pattern import every_nth, starved
from stoker.tuning.rates import bound_of, is_plain, only_early, plain_seen, rates_of, telling
from stoker.tuning.site_record import SiteRecord
from stoker.tuning.situation import Situation
from stoker.tuning.stretch import length_of
from stoker.tuning.wording import count_of, duration, number, times, workers

ANOTHER_LOADER = 1.05
"""Times by which Stoker's loader must be faster to be told as a way to go."""
UNSHARED = "would change what is read"

ReadSource = Callable[[str], str]


def answer_of(
    record: SiteRecord,
    *,
    name: str,
    read_source: ReadSource,
    whole: bool,
    given: int | None = None,
) -> Answer:
    """The answer for one line.

    Args:
        record: What was seen.
        name: For people.
        read_source: Gives the text of a file of the program; "" where it can't be read.
        whole: Whether the whole timeline is wanted.
        given: A number that was measured, which is to be recommended for reasons that other
            loaders have; None for the best.
    """
    record = replace(record, seen=telling(record.seen))
    each = each_step.begins_each_step(record)
    if each:  # with other numbers it is their start that was measured
        given = record.own
    rates = rates_of(record)
    own = next((rate for rate in rates if rate.own), None)
    advice = advice_of(record, rates, given)
    chosen = advice.num_workers if advice else record.own
    parts = {count: parts_of(count, seen) for count, seen in plain_seen(record).items()}
    now = parts.get(record.own) if own else None
    best = parts.get(chosen)
    bound_per_s = bound_of(record, rates)
    now_per_s = own.summary.batches_per_s if own else None
    change = None
    if advice is not None and each:
        advice = replace(advice, certain=False)
        change = each_step.change(record, now, own.waiting if own else 0.0)
    elif advice is not None:
        change = change_for(record.site, record.loader, advice, read_source(record.site.file))
    limit = each_step.limit(record, now) if each else None
    used = now or best
    shown = record.spans if whole else excerpt(record.spans, {record.own, chosen})
    return Answer(
        name=name,
        loader=record.loader,
        consumer=record.consumer,
        site=record.site,
        made=record.made,
        epochs=record.epochs,
        batches=record.batches,
        seconds=record.seconds,
        now_per_s=now_per_s,
        waiting=own.waiting if own else None,
        step_s=used.step_s if used else None,
        start_s=statistics.mean(record.starts_s) if record.starts_s else None,
        bound_per_s=bound_per_s,
        most_gain=bound_per_s / now_per_s if bound_per_s and now_per_s else None,
        rates=rates,
        limit=limit or _limit(record, rates, advice, best, bound_per_s),
        advice=advice,
        change=change,
        parts=now,
        best_parts=best,
        lines=merge([record.lines]),
        timeline=tuple(shown),
        waits=tuple(record.waits),
        remarks=tuple(_remarks(record, rates, now)),
        work=work_of(record),
    )


def _limit(
    record: SiteRecord,
    rates: Sequence[Rate],
    advice: Advice | None,
    parts: Parts | None,
    bound_per_s: float | None,
) -> Limit:
    """The limit of the recommended setting; a start that it saves is none any more."""
    if not record.seen:
        return Limit("unknown", _too_short(record))
    most, source = record.workers_most
    plain = [rate for rate in rates if is_plain(rate)]
    here = next((r for r in plain if parts and r.summary.num_workers == parts.num_workers), None)
    kept = record.persistent or (advice and "persistent_workers" in dict(advice.arguments))
    return limit_of(
        Situation(
            rates=plain,
            parts=parts,
            cpus=record.cpus[0],
            bound_per_s=bound_per_s,
            memory_workers=most if source.startswith("memory") else None,
            start_s=here.summary.first_batch_s if here and not kept else None,
            epoch_batches=record.loader.epoch_batches,
            batch_size=record.loader.batch_size,
        )
    )


def _too_short(record: SiteRecord) -> str:
    """What there was where nothing could be measured, and what it would have taken."""
    told = "nothing was measured to the end, so no limit can be named"
    if not record.batches:
        return f"{told}: no batch was handed out"
    batches, seconds = length_of(record.own, {})
    running = f" once {workers(record.own)} {_have(record.own)} begun" if record.own else ""
    return (
        f"{told}: {count_of(record.batches, 'batch')} in {count_of(record.epochs, 'epoch')} were "
        f"handed out, in {duration(record.seconds)}, and one look takes at least "
        f"{count_of(batches, 'batch')} and {duration(seconds)}{running}, an answer several looks. "
        f"Let it read for longer: more epochs, or a longer --budget"
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _remarks(record: SiteRecord, rates: Sequence[Rate], parts: Parts | None) -> list[str]:
    told = []
    own = next((rate for rate in rates if rate.own), None)
    pattern = every_nth(record.waits_s, record.own, parts.step_s if parts else 0.0)
    if pattern is not None:
        told.append(pattern)
    if parts is not None and parts.service_s > 0 and record.own:
        count = (record.own + sum(record.beside)) * record.ranks
        share = parts.starved_s / parts.service_s
        loaders = 1 + len(record.beside)
        told += starved(count, share, record.cpus[0], loaders, record.ranks)
    if each_step.begins_each_step(record):
        told.append(each_step.told(record, parts))
    elif own is not None and record.own:
        plain = [rate.summary for rate in rates if is_plain(rate)]
        told += startup.remarks(starts_of(record, own), plain)
    told += [_stokers(record, rate, rates) for rate in rates if rate.engine == "stoker"]
    if own is not None and only_early(record):
        told.append(_early(record))
    if record.shards is False:
        told.append(_unshared(record.own))
    return told + _failures(record)


def _early(record: SiteRecord) -> str:
    """That the program's own setting was not seen when the others were."""
    first_s = sum(each.window.seconds for each in record.seen if each.stage == "own")
    return (
        f"the rate of now is of {duration(first_s)} at the program's beginning, when caches and "
        f"first steps may be slow, and was not measured again beside the others: what would be "
        f"gained over it is not certain"
    )


def _unshared(own: int) -> str:
    """What an iterable data set does that does not share itself out."""
    told = "the iterable data set does not ask which worker it is in (get_worker_info): "
    if own > 1:
        return (
            f"{told}each of the {own} workers of now reads all of it, so every sample comes {own} "
            f"times; share it out among them, or use one"
        )
    return f"{told}with more than one, each would read all of it, so more than one was not tried"


def _stokers(record: SiteRecord, rate: Rate, rates: Sequence[Rate]) -> str:
    """Stoker's loader beside PyTorch's with as many workers."""
    count, per_s = rate.summary.num_workers, number(rate.summary.batches_per_s)
    torchs = next((r for r in rates if is_plain(r) and r.summary.num_workers == count), None)
    if torchs is None:
        return f"Stoker's loader with {workers(count)} gave {per_s} batches/s"
    beside = compare(record.seen, rate, torchs)
    if beside.faster and beside.ratio >= ANOTHER_LOADER:
        return (
            f"`from stoker import DataLoader` in place of PyTorch's gives {per_s} batches/s with "
            f"{workers(count)}, {times(beside.ratio)} what PyTorch's gives with as many"
        )
    noise = "" if beside.faster or beside.slower else ", which is within the noise"
    return (
        f"Stoker's loader with {workers(count)} gave {per_s} batches/s, PyTorch's "
        f"{number(torchs.summary.batches_per_s)}{noise}"
    )


def _failures(record: SiteRecord) -> list[str]:
    """What went wrong with other settings, each once."""
    known = [f for f in record.failures if record.shards is not False or UNSHARED not in f.what]
    return list(dict.fromkeys(f"{each.doing} failed: {each.what}" for each in known))
