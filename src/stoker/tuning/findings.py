"""From what was seen of a line that makes loaders to the answer for it. Pure but for the source
text, which is an argument.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from stoker.tuning import startup
from stoker.tuning.answer import Advice, Answer, Limit, Parts, Rate, Span, Work
from stoker.tuning.change import change_for
from stoker.tuning.dearest import merge
from stoker.tuning.limits import limit_of
from stoker.tuning.model import HANDLING_S
from stoker.tuning.noise import spread
from stoker.tuning.pattern import every_nth, starved
from stoker.tuning.probing import Setting
from stoker.tuning.recommend import CountSummary
from stoker.tuning.site_record import Seen, SiteRecord
from stoker.tuning.situation import Situation
from stoker.tuning.visits import Visit
from stoker.tuning.wording import duration, number, percent, times, workers

SAME = 0.02
NOTABLE = 0.02
"""A gain that is less is none."""
SHOWN_SPANS = 600
STARTED = 0.05

ReadSource = Callable[[str], str]


def answer_of(record: SiteRecord, *, name: str, read_source: ReadSource, whole: bool) -> Answer:
    """The answer for one line.

    Args:
        record: What was seen.
        name: For people.
        read_source: Gives the text of a file of the program; "" where it can't be read.
        whole: Whether the whole timeline is wanted.
    """
    rates = tuple(_rates(record))
    own = next((rate for rate in rates if rate.own), None)
    advice = _advice(record, rates, own)
    chosen = advice.num_workers if advice else record.own
    parts = {n: _parts(n, seen) for n, seen in _plain(record).items()}
    bound_per_s = _bound(record, rates)
    now_per_s = own.summary.batches_per_s if own and not record.loader.automatic else None
    change = None
    if advice is not None:
        change = change_for(record.site, record.loader, advice, read_source(record.site.file))
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
        step_s=parts[record.own].step_s if record.own in parts else None,
        start_s=statistics.mean(record.starts_s) if record.starts_s else None,
        bound_per_s=bound_per_s,
        most_gain=bound_per_s / now_per_s if bound_per_s and now_per_s else None,
        rates=rates,
        limit=_limit(record, rates, parts.get(chosen), bound_per_s),
        advice=advice,
        change=change,
        parts=parts.get(record.own),
        best_parts=parts.get(chosen),
        lines=merge([record.lines]),
        timeline=tuple(record.spans if whole else _shown(record.spans, {record.own, chosen})),
        waits=tuple(record.waits),
        remarks=tuple(_remarks(record, rates, parts.get(record.own))),
        work=_work(record),
    )


def _plain(record: SiteRecord) -> dict[int, list[Seen]]:
    """What was measured with PyTorch's loader as it is, by number of workers."""
    found: dict[int, list[Seen]] = {}
    for seen in record.seen:
        if seen.stage != "replay" and seen.setting == Setting(seen.setting.workers):
            found.setdefault(seen.setting.workers, []).append(seen)
    return found


def _rates(record: SiteRecord) -> list[Rate]:
    groups: dict[Setting, list[Seen]] = {}
    for seen in record.seen:
        if seen.stage != "replay":
            groups.setdefault(seen.setting, []).append(seen)
    rates = [_rate(record, setting, found) for setting, found in groups.items()]
    return sorted(rates, key=lambda rate: (rate.summary.num_workers, rate.engine))


def _rate(record: SiteRecord, setting: Setting, found: list[Seen]) -> Rate:
    """Where a setting was compared in pairs, only that counts: the rest was a look."""
    paired = [seen for seen in found if seen.stage == "confirm"] or found
    visit = Visit.of(setting.workers, [seen.window for seen in paired])
    rates = [seen.window.rate_per_s for seen in paired]
    per_s = statistics.median(rates) if len(paired) < len(found) else visit.rate_per_s
    starts = [seen.first_batch_s for seen in found if seen.first_batch_s is not None]
    whole = all(seen.whole for seen in paired)
    first_s = statistics.median(starts) if starts else 0.0
    own = setting == Setting(record.own) and not record.loader.automatic
    return Rate(
        summary=CountSummary(
            num_workers=setting.workers,
            batches_per_s=per_s,
            epoch_batches_per_s=per_s if whole else _over_an_epoch(record, per_s, first_s),
            first_batch_s=first_s,
            epoch_s=_epoch_s(record, per_s),
            spread=spread(rates),
            repeats=len({(seen.stage, seen.round) for seen in paired}),
            method="epochs" if whole else "steady",
            complete=True,
        ),
        waiting=visit.waiting,
        busy_workers=visit.busy if setting.workers else None,
        cpus_used=visit.cpus_used,
        memory_bytes=_memory(found),
        own=own,
        engine=setting.engine,
        prefetch_factor=setting.prefetch_factor,
    )


def _epoch_s(record: SiteRecord, per_s: float) -> float | None:
    length = record.loader.epoch_batches
    return length / per_s if length and per_s > 0 else None


def _over_an_epoch(record: SiteRecord, per_s: float, first_s: float) -> float:
    """The rate over an epoch that begins with starting the workers."""
    length = record.loader.epoch_batches
    if not length or record.persistent or per_s <= 0:
        return per_s
    return length / (first_s + (length - 1) / per_s)


def _memory(found: Sequence[Seen]) -> int | None:
    known = [seen.memory_bytes for seen in found if seen.memory_bytes is not None]
    return max(known) if known else None


def _advice(record: SiteRecord, rates: Sequence[Rate], own: Rate | None) -> Advice | None:
    plain = [rate for rate in rates if rate.engine == "torch" and rate.prefetch_factor is None]
    if not plain or not record.seen:
        return None
    count = record.chosen
    anew = record.made > 1 and record.epochs <= record.made
    if record.epochs <= 1 or anew:  # another loop is told to keep its workers
        count = _over_whole_epochs(plain, count)
    if anew and any(rate.summary.method == "epochs" for rate in plain):
        plain = [_with_starts(rate) for rate in plain]
        own = _with_starts(own) if own else None
    chosen = next((rate for rate in plain if rate.summary.num_workers == count), plain[0])
    per_s = chosen.summary.batches_per_s
    gain = per_s / own.summary.batches_per_s if own else None
    if own and gain is not None and abs(gain - 1) <= NOTABLE and count >= record.own:
        count, chosen, gain = record.own, own, 1.0
        per_s = own.summary.batches_per_s
    service = _parts(count, _plain(record).get(count, []))
    arguments = list(startup.arguments_for(_starts(record, chosen, service)))
    arguments += _more_in_advance(rates, count, per_s)
    return Advice(
        num_workers=count,
        batches_per_s=per_s,
        reason=_reason(record, chosen, plain, own),
        certain=record.certain,
        arguments=tuple(arguments) if count else (),
        gain=gain,
    )


def _over_whole_epochs(plain: Sequence[Rate], count: int) -> int:
    """The fewest workers within reach of the best, where every epoch starts them."""
    best = max(rate.summary.epoch_batches_per_s for rate in plain)
    chosen = next((rate for rate in plain if rate.summary.num_workers == count), None)
    if chosen is not None and chosen.summary.epoch_batches_per_s >= (1 - SAME) * best:
        return count
    fits = [r for r in plain if r.summary.epoch_batches_per_s >= (1 - SAME) * best]
    return min(rate.summary.num_workers for rate in fits)


def _with_starts(rate: Rate) -> Rate:
    """The rate over a whole epoch: what is to be compared with others that are."""
    summary = rate.summary
    return replace(rate, summary=replace(summary, batches_per_s=summary.epoch_batches_per_s))


def _more_in_advance(rates: Sequence[Rate], count: int, per_s: float) -> list[tuple[str, str]]:
    for rate in rates:
        same = rate.engine == "torch" and rate.summary.num_workers == count
        better = rate.summary.batches_per_s > (1 + STARTED) * per_s
        if same and better and rate.prefetch_factor is not None:
            return [("prefetch_factor", str(rate.prefetch_factor))]
    return []


def _reason(record: SiteRecord, chosen: Rate, plain: Sequence[Rate], own: Rate | None) -> str:
    count, per_s = chosen.summary.num_workers, chosen.summary.batches_per_s
    told = f"{workers(count)}: {number(per_s)} batches/s"
    if own is not None and own is not chosen:
        ratio = per_s / own.summary.batches_per_s
        told += f", {times(ratio)} the {number(own.summary.batches_per_s)} of now"
        told += f" with {own.summary.num_workers}"
    others = [rate for rate in plain if rate is not chosen and rate is not own]
    if others:
        best = max(others, key=lambda rate: rate.summary.batches_per_s)
        beside = best.summary.batches_per_s
        told += f"; {workers(best.summary.num_workers)} gave {number(beside)}"
        if beside > per_s and best.summary.num_workers > count:
            told += f", {percent(beside / per_s - 1)} more, which is within the noise"
    if chosen.waiting > 0:
        told += f"; the consumer waits {percent(chosen.waiting)} of the time"
    return told + "."


def _bound(record: SiteRecord, rates: Sequence[Rate]) -> float | None:
    """What ready batches gave; never below what was reached with real ones."""
    found = [seen.window.rate_per_s for seen in record.seen if seen.stage == "replay"]
    if not found:
        return None
    reached = max((rate.summary.batches_per_s for rate in rates), default=0.0)
    return max(statistics.median(found), reached)


def _parts(count: int, found: Sequence[Seen]) -> Parts:
    windows = [seen.window for seen in found if seen.stage == "confirm"]
    windows = windows or [seen.window for seen in found]
    batches = max(1, sum(window.batches for window in windows))
    made = max(1, sum(window.made for window in windows))
    busy_s = sum(window.busy_s for window in windows) / made
    cpu_s = min(busy_s, sum(window.cpu_s for window in windows) / made)
    starved_s = sum(window.starved_s or 0.0 for window in windows) / made
    starved_s = min(starved_s, busy_s - cpu_s)
    return Parts(
        num_workers=count,
        step_s=sum(window.away_s for window in windows) / batches,
        waited_s=sum(window.waited_s for window in windows) / batches,
        handling_s=sum(window.handling_s for window in windows) / batches,
        loading_s=0.0 if count else busy_s,
        computing_s=cpu_s,
        off_cpu_s=max(0.0, busy_s - cpu_s - starved_s),
        starved_s=starved_s,
        order_s=sum(window.order_s for window in windows) / batches,
    )


def _limit(
    record: SiteRecord, rates: Sequence[Rate], parts: Parts | None, bound_per_s: float | None
) -> Limit:
    most, source = record.workers_most
    plain = [rate for rate in rates if rate.engine == "torch" and rate.prefetch_factor is None]
    here = next((r for r in plain if parts and r.summary.num_workers == parts.num_workers), None)
    return limit_of(
        Situation(
            rates=plain,
            parts=parts,
            cpus=record.cpus[0],
            bound_per_s=bound_per_s,
            memory_workers=most if source.startswith("memory") else None,
            start_s=here.summary.first_batch_s if here and not record.persistent else None,
            epoch_batches=record.loader.epoch_batches,
            batch_size=record.loader.batch_size,
        )
    )


def _starts(record: SiteRecord, rate: Rate, parts: Parts | None) -> startup.Starts:
    """How epochs begin with this setting; with the program's own, as they really began."""
    summary = rate.summary
    start_s = summary.first_batch_s
    if rate.own and record.starts_s:
        start_s = statistics.mean(record.starts_s)
    length = record.loader.epoch_batches
    epoch_s = length / summary.epoch_batches_per_s if length else None
    return startup.Starts(
        num_workers=summary.num_workers,
        made=record.made,
        epochs=record.epochs,
        start_s=start_s,
        epoch_s=epoch_s,
        persistent=record.persistent,
        method=record.method,
        first_s=parts.service_s if parts else 0.0,
    )


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
    if own is not None and record.own:
        told += startup.remarks(_starts(record, own, parts), [rate.summary for rate in rates])
    told += [_beside(rate, rates) for rate in rates if rate.engine == "stoker"]
    if record.shards is False:
        told.append(
            "the iterable data set does not ask which worker it is in (get_worker_info): with "
            "more than one, each would read all of it, so more than one was not tried"
        )
    told += [f"{each.doing} failed: {each.what}" for each in record.failures]
    return told


def _beside(rate: Rate, rates: Sequence[Rate]) -> str:
    count, per_s = rate.summary.num_workers, rate.summary.batches_per_s
    torchs = next(
        (r for r in rates if r.engine == "torch" and r.summary.num_workers == count), None
    )
    told = f"Stoker's loader with {workers(count)} gave {number(per_s)} batches/s"
    if torchs is None:
        return told
    return f"{told}, PyTorch's {number(torchs.summary.batches_per_s)}"


def _work(record: SiteRecord) -> Work | None:
    """What a batch costs, from the setting in which workers were least in each other's way."""
    visits = [Visit.of(n, [seen.window for seen in found]) for n, found in _plain(record).items()]
    visits = [visit for visit in visits if visit.count]
    if not visits:
        return None
    free = min(visits, key=lambda visit: visit.making_s)
    with_workers = [visit for visit in visits if visit.workers]
    handling_s = min((visit.handling_each_s for visit in with_workers), default=HANDLING_S)
    memory = [
        seen.memory_bytes / seen.setting.workers
        for seen in record.seen
        if seen.memory_bytes and seen.setting.workers
    ]
    starts = [
        seen.first_batch_s / seen.setting.workers
        for seen in record.seen
        if seen.first_batch_s is not None and seen.setting.workers
    ]
    step_s = min(visit.away_each_s for visit in visits)
    return Work(
        service_s=free.making_s,
        cpu_s=free.making_s * free.cpu,
        step_s=step_s,
        handling_s=handling_s,
        spread=free.batch_spread,
        worker_bytes=int(statistics.median(memory)) if memory else None,
        batch_bytes=record.batch_bytes,
        start_s=statistics.median(starts) if starts else 0.0,
        doubt=free.service_error,
    )


def _shown(spans: Sequence[Span], counts: set[int]) -> list[Span]:
    """A stretch of each setting that matters, small enough for a page."""
    shown: list[Span] = []
    for count in sorted(counts):
        of_count = [span for span in spans if span.num_workers == count]
        if not of_count:
            continue
        begin = of_count[len(of_count) // 4].start_s
        inside = sorted(
            (span for span in of_count if span.start_s >= begin), key=lambda span: span.start_s
        )
        shown += inside[: SHOWN_SPANS // len(counts)]
    return sorted(shown, key=lambda span: span.start_s)


def summary_line(answer: Answer) -> str:
    """One line for people: what to do, and what it brings."""
    if answer.advice is None:
        return f"{answer.name}: no answer; {answer.limit.sentence}"
    if answer.change is None:
        return f"{answer.name}: nothing to gain; {answer.limit.sentence}"
    gain = answer.advice.gain
    told = f"{answer.name}: {answer.change.text}"
    return told if gain is None else f"{told}, {times(gain)} the rate in {duration(answer.seconds)}"
