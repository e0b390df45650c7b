"""Whether epochs go into starting workers, and what would save that.

A program may make a new loader for each epoch. So the totals of loaders with the same name (data
set, samples, batch size) are kept, in the order in which they began. Those that had one epoch, and
handed out nothing after the next had begun, have followed one another.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from stoker.feed.meter import Meter, Totals
from stoker.tuning.startup import Starts, is_large, while_running

_MOST_KEPT = 256  # loaders of a name
_MOST_NAMES = 32


class _Began(NamedTuple):
    """A loader that has begun; `before` is what the one before it had handed out by then."""

    totals: Totals
    before: int


_BEGAN: dict[str, deque[_Began]] = {}


def began(name: str, totals: Totals) -> None:
    """A loader begins an epoch.

    Args:
        name: What it is known by.
        totals: Its sums, which go on.
    """
    kept = _BEGAN.get(name)
    if kept is None:
        while len(_BEGAN) >= _MOST_NAMES:
            _BEGAN.pop(next(iter(_BEGAN)), None)
        kept = _BEGAN[name] = deque(maxlen=_MOST_KEPT)
    if all(each.totals is not totals for each in kept):
        kept.append(_Began(totals, kept[-1].totals.batches if kept else 0))


def remarks(name: str, meter: Meter) -> tuple[str, ...]:
    """What is to be said of how a loader's epochs begin; nothing where that takes little of them.

    Args:
        name: What it is known by.
        meter: What has happened.
    """
    row = _followed(name, meter.totals)
    epochs = sum(totals.epochs for totals in row)
    own_s = sum(totals.start_s for totals in row)
    starting_s = own_s + sum(totals.coming_up_s for totals in row)
    seconds = own_s + sum(totals.seconds + totals.opening_s for totals in row)
    if not is_large(starting_s, seconds, epochs):
        return ()
    starts = Starts(
        num_workers=meter.peak_workers,
        made=len(row),
        epochs=epochs,
        start_s=starting_s / epochs,
        epoch_s=seconds / epochs,
        persistent=sum(totals.starts for totals in row) < epochs,
        method=meter.method,
        where="for this data set",
    )
    return (while_running(starts),)


def _followed(name: str, totals: Totals) -> list[Totals]:
    """The sums of a loader, and of those of one epoch that it has followed."""
    row, kept = [totals], list(_BEGAN.get(name, ()))
    while kept and kept[-1].totals is not totals:
        kept.pop()
    while len(kept) > 1 and row[-1].epochs <= 1:
        before = kept.pop().before
        last = kept[-1].totals
        if last.epochs > 1 or last.batches != before:
            break
        row.append(last)
    return row
