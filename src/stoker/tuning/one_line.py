"""One change for a line that makes several loaders. Pure but for the source text.

A list comprehension, or a function that is called twice, makes loaders for several data sets by
one call. What each of them wants is found by itself; the line can have one number. Where one is
nearly as good as its own for every loader, that is the change for all of them. Else the line is
not to be changed: each loader needs to be given its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoker.tuning.answer import Advice, Answer, Change, Rate, Site
from stoker.tuning.calls import Source
from stoker.tuning.change import change_for
from stoker.tuning.each_step import begins_each_step
from stoker.tuning.findings import ReadSource, answer_of
from stoker.tuning.loader_call import is_loader
from stoker.tuning.rates import is_plain
from stoker.tuning.site_record import SiteRecord
from stoker.tuning.wording import count_of, percent

NEARLY = 0.95
"""Share of what a loader gets with its own number, from which on another one does for it."""
SAME = 0.02
"""A difference that is less is none."""

Found = tuple[SiteRecord, Answer]


def answers_of(
    records: Sequence[tuple[str, SiteRecord]], *, read_source: ReadSource, whole: bool
) -> list[Found]:
    """The answers for all lines of a program, with one change for each line.

    Args:
        records: What was seen, each with a name for people.
        read_source: As for `answer_of`; so is `whole`.
        whole: Whether the whole timeline is wanted.
    """
    found = [
        (record, answer_of(record, name=name, read_source=read_source, whole=whole))
        for name, record in records
    ]
    lines: dict[tuple[str, int], list[int]] = {}
    for at, (record, _) in enumerate(found):
        lines.setdefault((record.site.file, record.site.line), []).append(at)
    for (file, _), members in lines.items():
        several = [found[at] for at in members]
        source = read_source(file) if len(several) > 1 else ""
        if any(begins_each_step(record) for record, _ in several):
            continue  # its number is not what is to be changed
        if len(several) > 1 and not _several_calls(source, several[0][0].site):
            for at, each in zip(members, _together(several, source, whole), strict=True):
                found[at] = each
    return found


def _several_calls(text: str, site: Site) -> bool:
    """Whether the line has a call for each: then each is changed by itself."""
    try:
        source = Source(text)
    except SyntaxError:
        return False
    return sum(is_loader(source, call) for call in source.calls(site.line)) > 1


def _together(several: Sequence[Found], source: str, whole: bool) -> list[Found]:
    """The same answers, with what is to be done about the line they share."""
    told = [(answer, answer.advice) for _, answer in several if answer.advice is not None]
    wanted = {(advice.num_workers, advice.arguments) for _, advice in told}
    changed = {answer.change for answer, _ in told}
    if len(told) < 2 or (len(wanted) == 1 and len(changed) == 1):
        return [_served(each, several) for each in several]
    common = _common([answer for answer, _ in told])
    if common is None:
        return _apart(several)
    return _alike(several, common, source, whole)


def _served(found: Found, several: Sequence[Found]) -> Found:
    """Where all want the same, the change says whom it serves."""
    record, answer = found
    if answer.change is None:
        return found
    names = tuple(other.name for _, other in several if other.change == answer.change)
    return record, replace(answer, change=replace(answer.change, serves=names))


def _common(answers: Sequence[Answer]) -> int | None:
    """The fewest workers that some loader wants and that do for each; None where there are none."""
    for count in sorted({answer.advice.num_workers for answer in answers if answer.advice}):
        shares = [_share(answer, count) for answer in answers]
        if all(share is not None and share >= NEARLY for share in shares):
            return count
    return None


def _share(answer: Answer, count: int) -> float | None:
    """What a loader gets with this number, of what it gets with its own; None: not measured."""
    advice, rate = answer.advice, _rate(answer, count)
    if advice is None or rate is None:
        return None
    best = _rate(answer, advice.num_workers) or rate
    steady = rate.summary.batches_per_s / best.summary.batches_per_s
    return min(steady, rate.summary.epoch_batches_per_s / best.summary.epoch_batches_per_s)


def _rate(answer: Answer, count: int) -> Rate | None:
    plain = [rate for rate in answer.rates if is_plain(rate)]
    return next((rate for rate in plain if rate.summary.num_workers == count), None)


def _alike(several: Sequence[Found], count: int, source: str, whole: bool) -> list[Found]:
    """All of them with this number: the advice is that, and what it costs is told."""
    names = tuple(answer.name for _, answer in several)
    again = [
        (
            record,
            answer_of(
                record,
                name=answer.name,
                read_source=lambda _: source,
                whole=whole,
                given=count if answer.advice is not None else None,
            ),
        )
        for record, answer in several
    ]
    arguments: dict[str, str] = {}
    for _, answer in again:
        arguments |= dict(answer.advice.arguments) if answer.advice else {}
    costs = [told for _, answer in several if (told := _cost(answer, count))]
    change = _change(again, tuple(arguments.items()), count, source, costs)
    found = []
    for (record, answer), (_, alone) in zip(again, several, strict=True):
        told = _cost(alone, count)
        remarks = (*answer.remarks, told) if told else answer.remarks
        change = replace(change, serves=names) if change else None
        found.append((record, replace(answer, change=change, remarks=remarks)))
    return found


def _change(
    again: Sequence[Found],
    arguments: tuple[tuple[str, str], ...],
    count: int,
    source: str,
    costs: Sequence[str],
) -> Change | None:
    for record, answer in again:
        if answer.advice is None:
            continue
        advice: Advice = replace(answer.advice, num_workers=count, arguments=arguments)
        change = change_for(record.site, record.loader, advice, source)
        if change is not None:
            whose = f"for all {len(again)} loaders that this line makes"
            return replace(change, text="; ".join((f"{change.text} {whose}", *costs)))
    return None


def _cost(answer: Answer, count: int) -> str:
    """What the number of the line costs a loader that wants another; empty where it is its own."""
    advice = answer.advice
    if advice is None or advice.num_workers == count:
        return ""
    share = _share(answer, count)
    own = advice.num_workers
    gives = "the same"
    if share is not None and abs(share - 1) > SAME:
        gives = f"{percent(abs(1 - share))} {'less' if share < 1 else 'more'}"
    more = f", with {count_of(count - own, 'more worker')}" if count > own else ""
    return f"{answer.name} alone would be given num_workers={own}: {count} give it {gives}{more}"


def _apart(several: Sequence[Found]) -> list[Found]:
    """No number does for all: each is to be given its own, and the line is not to be changed."""
    parts = [
        f"{answer.advice.num_workers} for {answer.name}{_size(record)}"
        for record, answer in several
        if answer.advice is not None
    ]
    told = (
        f"give each loader of this line a num_workers of its own: {', '.join(parts)}; no number "
        f"that was measured does for all of them"
    )
    names = tuple(answer.name for _, answer in several if answer.advice is not None)
    found = []
    for record, answer in several:
        if answer.change is not None:
            change = Change(told, record.site.file, record.site.line, serves=names)
            answer = replace(answer, change=change)
        elif answer.advice is not None:
            answer = replace(answer, remarks=(*answer.remarks, told))
        found.append((record, answer))
    return found


def _size(record: SiteRecord) -> str:
    """How to tell the loaders of a line apart."""
    loader = record.loader
    batches = count_of(loader.epoch_batches, "batch") if loader.epoch_batches else ""
    of = f" of {loader.batch_size}" if loader.batch_size else ""
    return f" ({batches}{of})" if batches else ""
