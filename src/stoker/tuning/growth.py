"""Whether the memory of workers grows, what it would come to, and when that is worth a word. Pure.

A worker is taken to grow on if over the later half of its batches it has grown at least half as
fast as over all of them, and not by one leap; what fills its buffers and comes to rest does not.
It is told if the growth so far is a good part of the memory there was, or will be before the epoch
is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stoker.errors import StokerError
from stoker.feed.growing import History
from stoker.sizes import in_words
from stoker.tuning.wording import count_of, workers
from stoker.workers.looks import Look, Suspect

_NOISE_BYTES = 8 << 20
LEAST_BYTES = 64 << 20
_SHARE_GROWING, _SHARE_AT_REST, _SHARE_FORETOLD = 0.1, 0.25, 0.5
_AS_FAST = 0.5
_LEAST_LOOKS = 4
_LEAP = 0.8
_COPIES_COST = 1.25  # Pages have other objects on them too.
_FILES_SHARE = 0.5
_LEAST_FILES = 64


@dataclass(frozen=True)
class WorkerMemory:
    """The memory of all workers that have told of theirs, together.

    Private is what would be free if a worker ended: pages that only it has. Batches lie in
    memory that is shared, and are not in it.

    Attributes:
        workers: How many they are.
        private_bytes: Private memory when each last looked, in bytes.
        start_bytes: Likewise when each was ready for its first batch; of one that was started
            afresh, after that batch.
        peak_bytes: The most private memory of all workers at once that was seen, in bytes.
        grown_bytes: What those that have grown have grown by, in bytes.
        per_batch_bytes: Growth for each batch made, of late, in bytes; 0.0 where it has come to
            rest.
        growing: Whether it grows on; None as long as that is not known.
        to_come_bytes: What it would still grow by in this epoch, in bytes; 0 at rest.
        open_files: Descriptors that they have open; None where the system does not tell.
        open_files_grown: How many more that is than when each had made its first batch; likewise.
        source: What says so.
        growth_likely: Where there is growth, what it likely comes from; else empty.
        growth_change: What changes that.
    """

    workers: int
    private_bytes: int
    start_bytes: int
    peak_bytes: int
    grown_bytes: int
    per_batch_bytes: float
    growing: bool | None
    to_come_bytes: int
    open_files: int | None
    open_files_grown: int | None
    source: str
    growth_likely: str = ""
    growth_change: str = ""


@dataclass(frozen=True)
class _Trend:
    growing: bool | None
    per_batch_bytes: float


def worker_memory(
    histories: Sequence[History], peak_bytes: int, batches_left: int | None
) -> WorkerMemory | None:
    """What the workers' looks come to.

    Args:
        histories: One for each worker.
        peak_bytes: As in `WorkerMemory`.
        batches_left: What is left of the epoch; None: not known, so as much again is reckoned
            with as there has been.

    Returns:
        None where no worker has looked.
    """
    histories = [history for history in histories if history.looks]
    if not histories:
        return None
    firsts, lasts = [each.looks[0] for each in histories], [each.looks[-1] for each in histories]
    grown = sum(max(0, history.grown_bytes) for history in histories)
    trends = [_trend(history.looks) for history in histories]
    known = [trend.growing for trend in trends if trend.growing is not None]
    left = [_left(history, batches_left, len(histories)) for history in histories]
    per_batch = [trend.per_batch_bytes for trend in trends if trend.growing]
    most = max(history.grown_bytes for history in histories)
    notable = most >= _NOISE_BYTES or grown >= LEAST_BYTES
    likely, change = _blame(histories) if notable else ("", "")
    return WorkerMemory(
        workers=len(histories),
        private_bytes=sum(look.private_bytes for look in lasts),
        start_bytes=sum(look.private_bytes for look in firsts),
        peak_bytes=peak_bytes,
        grown_bytes=grown,
        per_batch_bytes=sum(per_batch) / len(per_batch) if per_batch else 0.0,
        growing=any(known) if known else None,
        to_come_bytes=sum(map(_to_come, histories, trends, left)),
        open_files=_files(lasts),
        open_files_grown=_files_grown(firsts, lasts),
        source=next((look.source for look in reversed(lasts) if look.source), firsts[0].source),
        growth_likely=likely,
        growth_change=change,
    )


def _trend(looks: Sequence[Look]) -> _Trend:
    first, last = looks[0], looks[-1]
    batches, grown = last.batches - first.batches, last.private_bytes - first.private_bytes
    if len(looks) < _LEAST_LOOKS or batches <= 0:
        return _Trend(None, 0.0)
    if grown < _NOISE_BYTES:
        return _Trend(False, 0.0)
    middle = first.batches + batches / 2
    half = min(looks[1:-1], key=lambda look: abs(look.batches - middle))
    later = last.batches - half.batches
    rate = (last.private_bytes - half.private_bytes) / later if later else 0.0
    leap = max(b.private_bytes - a.private_bytes for a, b in pairwise(looks))
    growing = rate >= _AS_FAST * grown / batches and leap <= _LEAP * grown
    return _Trend(growing, rate if growing else 0.0)


def _left(history: History, batches_left: int | None, count: int) -> float:
    made = history.looks[-1].batches
    return made if batches_left is None else batches_left / count


def _to_come(history: History, trend: _Trend, left: float) -> int:
    more = trend.per_batch_bytes * left
    suspect = _first(history)
    if suspect is not None and not suspect.has_grown:
        most = suspect.size_bytes * _COPIES_COST - history.grown_bytes
        more = min(more, max(0.0, most))  # There is no more to be copied.
    return int(more)


def _first(history: History) -> Suspect | None:
    suspects = history.looks[-1].suspects
    return suspects[0] if suspects else None


def _files(looks: Iterable[Look]) -> int | None:
    counts = [look.open_files for look in looks if look.open_files is not None]
    return sum(counts) if counts else None


def _files_grown(firsts: Sequence[Look], lasts: Sequence[Look]) -> int | None:
    before, now = _files(firsts), _files(lasts)
    return None if before is None or now is None else now - before


def is_substantial(told: WorkerMemory, available_bytes: int) -> bool:
    """Whether growth is worth a warning.

    Args:
        told: What the workers have.
        available_bytes: Memory that may still be taken now.
    """
    before = available_bytes + told.grown_bytes
    if told.grown_bytes < LEAST_BYTES:
        return False
    if told.grown_bytes >= _SHARE_AT_REST * before:
        return True
    if not told.growing:
        return False
    foretold = told.grown_bytes + told.to_come_bytes
    return told.grown_bytes >= _SHARE_GROWING * before or foretold >= _SHARE_FORETOLD * before


def too_many_files(histories: Iterable[History], limit: int | None) -> int | None:
    """How many more files a worker has open than at first, where it will soon have too many.

    Args:
        histories: One for each worker.
        limit: How many a process may have; None: as many as it likes.
    """
    for history in histories:
        looks = [look for look in history.looks if look.open_files is not None]
        if limit is None or len(looks) < _LEAST_LOOKS:
            continue
        counts = [look.open_files or 0 for look in looks]
        more = counts[-1] - counts[0]
        rises = counts[-3] < counts[-2] < counts[-1]
        if rises and more >= _LEAST_FILES and counts[-1] >= _FILES_SHARE * limit:
            return more
    return None


def _blame(histories: Sequence[History]) -> tuple[str, str]:
    """The likely cause of growth and the change, by the worker that has grown most."""
    most = max(histories, key=lambda history: history.grown_bytes)
    suspect, forked = _first(most), most.looks[-1].forked
    if suspect is None:
        return _NOTHING, _NOTHING_CHANGE
    if suspect.has_grown:
        return _of_grown(suspect), _GROWN_CHANGE
    return (_of_copied(suspect), _COPIED_CHANGE) if forked else (_NOTHING, _NOTHING_CHANGE)


def _of_grown(suspect: Suspect) -> str:
    size = f", by about {in_words(suspect.size_bytes)}" if suspect.size_bytes else ""
    if suspect.elements == suspect.before:
        how = f"its {count_of(suspect.elements, 'element')} have grown{size}"
    else:
        how = f"from {suspect.before:,} to {count_of(suspect.elements, 'element')}{size}"
        how = f"it has grown {how}"
    return f"{suspect.path} ({suspect.kind}): {how}, in each worker on its own"


def _of_copied(suspect: Suspect) -> str:
    of = f" of {suspect.of}" if suspect.of else ""
    return (
        f"{suspect.path}: {suspect.kind}{of}, {count_of(suspect.elements, 'element')}, about "
        f"{in_words(suspect.size_bytes)} of Python objects; reading one writes its reference "
        "count, and so each worker gets a copy of its page of memory"
    )


_NOTHING = (
    "nothing that the data set holds was seen to grow: memory that a library, or a variable of a "
    "function, does not give back"
)
_NOTHING_CHANGE = (
    "persistent_workers=False ends the workers, and what they hold, with each epoch; fewer workers"
)
_GROWN_CHANGE = (
    "a bound for it, as functools.lru_cache(maxsize=...) has; or files or memory maps that all "
    "workers read; or fewer workers"
)
_COPIED_CHANGE = (
    "stoker.packed(...) around it, or numpy arrays or tensors in its place: workers share those; "
    "or fewer workers"
)


def warning(told: WorkerMemory, available_bytes: int, available_source: str) -> str:
    """What is logged of growth that is substantial, in four parts."""
    what = (
        f"the private memory of {workers(told.workers)} has grown by {in_words(told.grown_bytes)} "
        f"since they were ready, to "
        f"{in_words(told.private_bytes)}; {in_words(available_bytes)} are left ({available_source})"
    )
    doing = "making batches"
    if told.growing:
        doing += f", each of which adds {in_words(told.per_batch_bytes)}"
        if told.to_come_bytes:
            doing += f"; at that rate this epoch adds {in_words(told.to_come_bytes)} more"
    return str(StokerError(what, doing=doing, likely=told.growth_likely, change=told.growth_change))


def files_warning(more: int, limit: int) -> str:
    """What is logged where a worker opens files and closes none, in four parts."""
    return str(
        StokerError(
            f"a worker has {count_of(more, 'file')} more open than after its first batch, and may "
            f"have {limit:,}",
            doing="making batches",
            likely="the data set opens files, or connections, and does not close them",
            change="`with open(...)` in the data set, or one file that it keeps open",
        )
    )
