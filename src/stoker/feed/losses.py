"""Samples that a loader could not read and has let pass: counted, listed, bounded. Pure.

They are counted when their batch is handed out, or left out, and not when they are met. So
what is counted, and which batch is one too many, is the same for any number of workers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from stoker.errors import TooManyErrors
from stoker.order.broken import Broken, Damage, Outcome

_log = logging.getLogger("stoker")

MOST_LISTED = 1000
MOST_IN_A_ROW = 1000
"""How many samples may be left out with no batch in between, where ``max_errors`` says nothing."""
_LEAST_SAMPLES = 1000


@dataclass(frozen=True)
class BrokenSample:
    """A sample that could not be read, however often.

    Attributes:
        index: Its index: an integer or text as it is, anything else as it is written. For an
            iterable data set, how many items its worker's iterator had been asked for before.
        error: Type and text of what was raised first.
        where: File, line and function that raised it.
        batch: Number of the batch in which it was met first.
        epoch: Number of that batch's epoch in the life of the loader, from 0.
        times: How often it could not be read.
        outcome: What came of it first: "skipped", "replaced" by another index, or a value was
            "given" for it.
    """

    index: int | str
    error: str
    where: str = ""
    batch: int = 0
    epoch: int = 0
    times: int = 1
    outcome: Outcome = "skipped"


class Losses:
    """See the module.

    Attributes:
        limit: Most broken samples in an epoch: a number, or a share of its samples below 1;
            None: none but `MOST_IN_A_ROW`.
        length: How many batches an epoch has; None when unknown.
        broken: Samples that could not be read, however often.
        skipped: How many of these were left out.
        skipped_batches: Batches that nothing was left of.
    """

    def __init__(self) -> None:
        self.limit: int | float | None = None
        self.length: int | None = None
        self.broken = 0
        self.skipped = 0
        self.skipped_batches = 0
        self._listed: dict[int | str, BrokenSample] = {}
        self._epochs = 0
        self._in_epoch = 0
        self._largest = 0
        self._in_a_row = (0, 0)
        self._tell_at = 1
        self._before = 0
        self._last: tuple[int, Broken] | None = None

    @property
    def listed(self) -> tuple[BrokenSample, ...]:
        """Those met first, each once."""
        return tuple(self._listed.values())

    def begin_epoch(self, delivered: int) -> None:
        """What comes next is counted anew.

        Args:
            delivered: How many batches were handed out before.
        """
        self._before, self._last = delivered, None
        self._epochs += 1
        self._in_epoch = self._largest = 0
        self._in_a_row = (0, 0)

    def take(self, batch: int, damage: Damage, *, left_out: bool, delivered: int) -> None:
        """A batch with broken samples is handed out, or left out.

        Args:
            batch: Its number in the epoch.
            damage: What is broken.
            left_out: Whether there is nothing left of it.
            delivered: How many batches were handed out before.

        Raises:
            TooManyErrors: There are more of them than may be; they are counted all the same.
        """
        for each in damage.broken:
            self._list(batch, each)
        count = len(damage.broken)
        self.broken += count
        self.skipped += sum(1 for each in damage.broken if each.outcome == "skipped")
        self.skipped_batches += left_out
        self._in_epoch += count
        self._largest = max(self._largest, damage.places)
        row, before = self._in_a_row
        self._in_a_row = (row + count if before == delivered else count) * left_out, delivered
        self._last = batch, damage.broken[-1]
        self._tell(batch, damage.broken[-1])
        self._check(batch, damage.broken[-1])

    def end_epoch(self, delivered: int) -> None:
        """The epoch is over; does nothing the second time.

        Args:
            delivered: How many batches were handed out before and in it.

        Raises:
            TooManyErrors: None was, for nothing could be read, and nobody has said how much that
                may be.
        """
        last, self._last = self._last, None
        if last is not None and self.limit is None and delivered == self._before:
            what = f"not one sample of this epoch could be read; {self._in_epoch:,} were tried"
            raise _too_many(what, self._in_epoch, *last)

    def _list(self, batch: int, found: Broken) -> None:
        known = self._listed.get(found.index)
        if known is not None:
            self._listed[found.index] = replace(known, times=known.times + 1)
        elif len(self._listed) < MOST_LISTED:
            self._listed[found.index] = BrokenSample(
                found.index,
                found.error,
                found.where,
                batch,
                max(0, self._epochs - 1),
                outcome=found.outcome,
            )

    def _tell(self, batch: int, last: Broken) -> None:
        """Says so at the first, and then each time that there are ten times as many."""
        if self.broken < self._tell_at:
            return
        while self._tell_at <= self.broken:
            self._tell_at *= 10
        _log.warning(
            "samples that could not be read so far: %s; the last has index %r, in batch %d, and "
            "was %s: %s (%s); loader.statistics().errors lists them",
            f"{self.broken:,}",
            last.index,
            batch,
            _OUTCOMES[last.outcome],
            last.error,
            last.where,
        )

    def _check(self, batch: int, last: Broken) -> None:
        if self.limit is None:
            if self._in_a_row[0] >= MOST_IN_A_ROW:
                raise _too_many(
                    f"{self._in_a_row[0]:,} samples in a row could not be read",
                    self._in_epoch,
                    batch,
                    last,
                )
            return
        most = self.limit
        share = ""
        if isinstance(most, float):
            share = f", a share of {most:g} of about {self._samples(batch):,} samples"
            most = most * self._samples(batch)
        if self._in_epoch > most:
            raise _too_many(
                f"{_samples(self._in_epoch)} of this epoch could not be read, more than "
                f"max_errors={self.limit!r}{share}",
                self._in_epoch,
                batch,
                last,
            )

    def _samples(self, batch: int) -> int:
        """How many samples the epoch has, or, where nobody knows, may have."""
        if self.length is not None:
            return self.length * self._largest
        return max(_LEAST_SAMPLES, (batch + 1) * self._largest)


_OUTCOMES: dict[Outcome, str] = {
    "skipped": "left out",
    "replaced": "replaced by another",
    "given": "given a value by on_error",
}


def _samples(count: int) -> str:
    return f"{count:,} sample" + "s" * (count != 1)


def _too_many(what: str, count: int, batch: int, last: Broken) -> TooManyErrors:
    error = TooManyErrors(
        what,
        doing=f"taking batch {batch}; the last was sample index {last.index!r}: {last.error} "
        f"({last.where})",
        likely="a fault that most samples meet, such as a path, a format or an error in the data "
        "set's code; or more damaged files than expected",
        change="max_errors=, or on_error='raise' to see the first error with its traceback",
    )
    error.errors = count
    return error


class Reported:
    """What came with batches that have not been handed out yet."""

    def __init__(self) -> None:
        self._damage: dict[int, Damage] = {}

    def __bool__(self) -> bool:
        return bool(self._damage)

    def note(self, batch: int, damage: Damage | None) -> None:
        """A batch has come, maybe once more."""
        if damage is not None:
            self._damage[batch] = damage
        elif self._damage:
            self._damage.pop(batch, None)

    def take(self, batch: int) -> Damage | None:
        """A batch is handed out."""
        return self._damage.pop(batch, None)

    def clear(self) -> None:
        """Another epoch begins."""
        self._damage.clear()
