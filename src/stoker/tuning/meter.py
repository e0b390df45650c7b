"""From the times at which batches came to what one trial says. Pure: times are arguments.

An epoch has three parts. Until the first batch the loader starts up. The next few
batches tell nothing either: the workers were started one after the other, and each
had ``prefetch_factor`` batches to make before it was asked for more. What comes after
them is the steady part, and its rate is what the loader can keep up. An epoch too short
to have a steady part is measured whole, several times over.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

Method = Literal["steady", "epochs", "brief"]

SHORTEST_S = 1.0
LONGEST_S = 10.0
FEWEST_EPOCHS = 3
PATIENCE = 4.0
BOUNDED_BY_BATCHES_S = 60.0


@dataclass(frozen=True)
class Plan:
    """How long one trial measures.

    Attributes:
        batches: Measured batches to stop after, or as many more as a rate needs; None for
            no such limit.
        seconds: Measured time in seconds to fill and to stop after; None for whole epochs,
            repeated until they fill ``SHORTEST_S``, and cut off after ``LONGEST_S``.
    """

    batches: int | None = None
    seconds: float | None = None

    @property
    def target_s(self) -> float:
        """Seconds of measured time that are enough."""
        if self.seconds is not None:
            return self.seconds
        return math.inf if self.batches is not None else SHORTEST_S

    @property
    def limit_s(self) -> float:
        """Seconds of measured time after which an epoch is cut off."""
        if self.seconds is not None:
            return self.seconds
        return math.inf if self.batches is not None else LONGEST_S

    @property
    def patience_s(self) -> float:
        """Seconds after which a trial ends however little it has measured."""
        return BOUNDED_BY_BATCHES_S if math.isinf(self.limit_s) else PATIENCE * self.limit_s


@dataclass(frozen=True)
class Observation:
    """What one trial measured at one worker count.

    Attributes:
        num_workers: Worker processes of the loader.
        batches_per_s: Batches a second, by ``method``.
        first_batch_s: Seconds from ``iter(loader)`` to the first batch of the first epoch.
        epoch_s: Median seconds of a whole epoch, start-up included; None where every epoch
            was cut off, and with persistent workers where only the first one was seen.
        epoch_batches: Batches in a whole epoch; None when unknown.
        batches: Batches that ``batches_per_s`` rests on.
        measured_s: Seconds that ``batches_per_s`` rests on.
        epochs: Epochs begun.
        method: "steady": between batches after the first few. "epochs": across whole
            epochs, start-up included, because they are too short for a steady part.
            "brief": too few batches for either, so the doubt is large.
        persistent: Whether workers live across epochs, so that start-up is paid once.
        complete: False when the trial ended early by an error or an interruption.
        repeat: The round of trials it belongs to, from 0. Trials of one round ran next to
            each other and are compared as pairs.
    """

    num_workers: int
    batches_per_s: float
    first_batch_s: float
    epoch_s: float | None
    epoch_batches: int | None
    batches: int
    measured_s: float
    epochs: int
    method: Method
    persistent: bool
    complete: bool = True
    repeat: int = 0


@dataclass
class _Epoch:
    start: float
    batches: int = 0
    first: float = 0.0
    warm: float = 0.0
    last: float = 0.0
    end: float | None = None


class Meter:
    """Takes the times of one trial's batches and says when it has seen enough.

    All times are seconds on one clock that never goes back. It keeps nothing for a batch,
    and costs a few tenths of a microsecond for each.
    """

    def __init__(
        self, plan: Plan, num_workers: int, *, prefetch: int = 2, persistent: bool = False
    ) -> None:
        self._plan = plan
        self._num_workers = num_workers
        self._persistent = persistent
        self._warm_batches = max(1, num_workers * prefetch)
        self._steady_batches = max(4, 2 * num_workers)
        self._epochs: list[_Epoch] = []
        self._closed_batches, self._closed_s = 0, 0.0
        self._stop_batches, self._stop_at, self._give_up_at = math.inf, math.inf, math.inf

    def start_epoch(self, now: float) -> None:
        """Call just before ``iter(loader)``."""
        self._epoch = _Epoch(now)
        self._epochs.append(self._epoch)
        if self._plan.batches is not None:
            left = self._plan.batches - self._closed_batches
            self._stop_batches = self._warm_batches + max(left, self._steady_batches)
        self._stop_at = math.inf

    def batch(self, now: float) -> bool:
        """Call as each batch arrives.

        Returns:
            True when the epoch may be left here: enough was measured.
        """
        epoch = self._epoch
        epoch.batches += 1
        epoch.last = now
        count = epoch.batches
        if count == 1:
            epoch.first = now
            if len(self._epochs) == 1:
                self._give_up_at = now + self._plan.patience_s
        if count == self._warm_batches:
            epoch.warm = now
            self._stop_at = now + self._plan.limit_s - self._closed_s
        if now >= self._stop_at and count >= self._warm_batches + self._steady_batches:
            return True
        return count >= self._stop_batches or now >= self._give_up_at

    def end_epoch(self, now: float) -> bool:
        """Call when the loader has no more batches.

        Returns:
            True when no further epoch is needed.
        """
        epoch = self._epoch
        epoch.end = now
        if not epoch.batches:
            return True
        if self._is_steady(epoch):
            self._closed_batches += epoch.batches - self._warm_batches
            self._closed_s += epoch.last - epoch.warm
            fewest = 1
        else:
            self._closed_batches += epoch.batches
            self._closed_s += now - epoch.start
            fewest = FEWEST_EPOCHS
        return len(self._epochs) >= fewest and (
            self._closed_batches >= (self._plan.batches or math.inf)
            or self._closed_s >= self._plan.target_s
            or now >= self._give_up_at
        )

    @property
    def batches(self) -> int:
        """Batches that came, over all epochs."""
        return sum(epoch.batches for epoch in self._epochs)

    def observation(self, epoch_batches: int | None, *, complete: bool) -> Observation | None:
        """What was measured so far; None before the first batch and when no time passed.

        Args:
            epoch_batches: ``len(loader)``, or None; what was counted goes before it.
            complete: Whether the trial ran to its end.
        """
        if not self._epochs or not self._epochs[0].batches:
            return None
        whole = [epoch for epoch in self._epochs if epoch.end is not None and epoch.batches]
        method, batches, measured_s = self._measured(whole)
        if measured_s <= 0.0:
            return None
        return Observation(
            num_workers=self._num_workers,
            batches_per_s=batches / measured_s,
            first_batch_s=self._epochs[0].first - self._epochs[0].start,
            epoch_s=self._epoch_s(whole),
            epoch_batches=whole[-1].batches if whole else epoch_batches,
            batches=batches,
            measured_s=measured_s,
            epochs=len(self._epochs),
            method=method,
            persistent=self._persistent,
            complete=complete,
        )

    def _measured(self, whole: list[_Epoch]) -> tuple[Method, int, float]:
        """By which method, over how many batches and seconds, the rate is taken."""
        steady = [epoch for epoch in self._epochs if self._is_steady(epoch)]
        if steady:
            batches = sum(epoch.batches - self._warm_batches for epoch in steady)
            return "steady", batches, sum(epoch.last - epoch.warm for epoch in steady)
        if whole:
            if self._persistent and len(whole) > 1:
                whole = whole[1:]
            seconds = sum((epoch.end or epoch.last) - epoch.start for epoch in whole)
            return "epochs", sum(epoch.batches for epoch in whole), seconds
        epoch = self._epochs[0]
        if epoch.batches > 1 and epoch.last > epoch.first:
            return "brief", epoch.batches - 1, epoch.last - epoch.first
        return "brief", epoch.batches, epoch.last - epoch.start

    def _is_steady(self, epoch: _Epoch) -> bool:
        enough = epoch.batches >= self._warm_batches + self._steady_batches
        return enough and epoch.last > epoch.warm

    def _epoch_s(self, whole: list[_Epoch]) -> float | None:
        usual = whole[1:] if self._persistent and self._num_workers else whole
        if not usual:
            return None
        return statistics.median((epoch.end or epoch.last) - epoch.start for epoch in usual)
