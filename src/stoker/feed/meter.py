"""What happens to a loader, in numbers. Pure: times are arguments.

Costs a few tenths of a microsecond for a batch: sums are kept, and looked at from time to
time. The sums go on for as long as the loader lives; a `Window` is a difference of two looks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, fields

from stoker.feed.growing import Growing
from stoker.feed.losses import Losses
from stoker.feed.window import Window
from stoker.order.broken import Damage

WAIT_BOUNDS_S = (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, float("inf"))
_PAUSE_S = 1.0
_PAUSE_FACTOR = 20.0
_SMOOTHING = 0.2


@dataclass(slots=True)
class Totals:
    """Sums since the loader was made; see `Window` for what is summed up.

    Attributes:
        paused_s: Time the consumer was away for much longer than usual (validation, a
            checkpoint), and time spent on decisions and starting workers: part of neither its
            step nor of anything else.
        loading_s: Making batches in the main process.
        opening_s: Of `waited_s`, what was for the first batch of an epoch, which no window counts.
        start_s: Starting workers, the main process's own part.
        coming_up_s: Of `waited_s`, while a worker that could make the batch had not come up.
        starts: How often workers were started where there were none.
        loaded: Batches made in the main process.
        clocked_s: Of `loading_s`, what belongs to batches whose CPU time was taken.
        clocked_cpu_s: Their CPU time.
    """

    epochs: int = 0
    batches: int = 0
    waited_s: float = 0.0
    away_s: float = 0.0
    paused_s: float = 0.0
    handling_s: float = 0.0
    order_s: float = 0.0
    opening_s: float = 0.0
    start_s: float = 0.0
    coming_up_s: float = 0.0
    starts: int = 0
    loading_s: float = 0.0
    loaded: int = 0
    clocked_s: float = 0.0
    clocked_cpu_s: float = 0.0
    made: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    starved_s: float = 0.0
    total_bytes: int = 0

    @property
    def seconds(self) -> float:
        """Time inside epochs, pauses and openings left out."""
        spent_s = self.waited_s + self.away_s + self.handling_s + self.loading_s
        return spent_s - self.opening_s

    def copy(self) -> Totals:
        """The sums as they are now."""
        return Totals(*(getattr(self, field.name) for field in fields(self)))


class Meter:
    """Takes note of what a feed does; see the module.

    Attributes:
        totals: The sums.
        waits: Seconds waited for each of the last batches that workers made, oldest first.
        histogram: How many waits were up to each of `WAIT_BOUNDS_S`.
        batch_bytes: Size of the largest batch.
        away_s: How long the consumer usually stays away between two batches.
        left_at: When the last batch was handed out.
        starved_known: Whether the system tells how long workers had no CPU.
        peak_workers: Most workers at once.
        peak_in_flight: Most batches in flight at once.
        peak_slot_bytes: Most memory that slots took at once.
        recent: The last window.
        timed_out: Batches that did not come in time and were made again, or given up.
        given_up: Of those, how many were given up: nobody gets them.
        losses: Samples that could not be read.
        growing: What workers have told of their memory.
        no_forks: Why no more workers are forked; empty as long as they may be.
        needs_torch: Whether a worker that has begun without torch was seen to need it, or would.
        method: How the last workers were started, as multiprocessing names it; empty: none were.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.waits: deque[float] = deque(maxlen=512)
        self.histogram = [0] * len(WAIT_BOUNDS_S)
        self.batch_bytes = 0
        self.away_s = 0.0
        self.starved_known = False
        self.peak_workers = 0
        self.peak_in_flight = 0
        self.peak_slot_bytes = 0
        self.recent: Window | None = None
        self.timed_out = 0
        self.given_up = 0
        self.losses = Losses()
        self.growing = Growing()
        self.no_forks = ""
        self.method = ""
        self.needs_torch = False
        self.left_at = 0.0
        self._away = False
        self._opening = False
        self._mark: Totals | None = None

    def gave_up(self, *, skipped: bool) -> None:
        """A batch did not come in time, and is left out or made again."""
        self.timed_out += 1
        self.given_up += skipped

    def begin_epoch(self) -> None:
        """The time until the next batch is asked for is not the consumer's step."""
        self.totals.epochs += 1
        self.losses.begin_epoch(self.totals.batches)
        self._away = False
        self._opening = True

    def entered(self, now: float) -> None:
        """The consumer asks for a batch."""
        if not self._away:
            return
        self._away = False  # Should an error come, what follows is not counted from here.
        away_s = now - self.left_at
        if away_s > _PAUSE_S and away_s > _PAUSE_FACTOR * self.away_s and self.totals.batches > 2:
            self.totals.paused_s += away_s
            return
        self.away_s += _SMOOTHING * (away_s - self.away_s)
        self.totals.away_s += away_s

    def loaded(self, entered: float, now: float) -> None:
        """A batch was made in the main process, and is handed out."""
        totals = self.totals
        totals.loading_s += now - entered
        totals.loaded += 1
        totals.batches += 1
        self.left_at = now
        self._away = True
        self._opening = False

    def left_out(self, entered: float, now: float, waited_s: float | None = None) -> None:
        """A batch that nothing is left of: made in the main process, or waited for."""
        if waited_s is None:
            self.totals.loading_s += now - entered
            return
        self.totals.waited_s += waited_s
        self.totals.handling_s += now - entered - waited_s
        if self._opening:
            self.totals.opening_s += waited_s

    def lost(self, batch: int, damage: Damage, *, left_out: bool) -> None:
        """Samples of a batch could not be read; see `Losses.take`, and what it raises."""
        self.losses.take(batch, damage, left_out=left_out, delivered=self.totals.batches)

    def ended(self) -> None:
        """The epoch is over; see `Losses.end_epoch`, and what it raises."""
        self.losses.end_epoch(self.totals.batches)

    def started(self, seconds: float, *, anew: bool) -> None:
        """The main process has started workers; `anew`: there were none."""
        self.totals.start_s += seconds
        self.totals.starts += anew

    def slept(self, seconds: float, *, out_of_turn: bool, coming_up: bool) -> None:
        """Of a wait: while a later batch was ready, or while workers were coming up."""
        if out_of_turn:
            self.totals.order_s += seconds
        if coming_up:
            self.totals.coming_up_s += seconds

    def failed(self, waited_s: float) -> None:
        """A batch that was waited for did not come: an error did."""
        self.totals.waited_s += waited_s

    def clocked(self, seconds: float, cpu_s: float) -> None:
        """What the last batch made in the main process took, by two clocks."""
        self.totals.clocked_s += seconds
        self.totals.clocked_cpu_s += cpu_s

    def delivered(self, entered: float, now: float, waited_s: float) -> None:
        """A batch that a worker made is handed out."""
        totals = self.totals
        totals.batches += 1
        totals.waited_s += waited_s
        totals.handling_s += now - entered - waited_s
        self.waits.append(waited_s)
        self.histogram[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        if self._opening:
            totals.opening_s += waited_s
            self._opening = False
        self.left_at = now
        self._away = True

    def looked(self, began: float, now: float) -> None:
        """Time was spent on looking at the numbers, and starting workers; not by the consumer."""
        self.totals.paused_s += now - began
        self.left_at = now

    def made(self, seconds: float, cpu_s: float, starved_s: float | None, size_bytes: int) -> None:
        """A worker has made a batch."""
        totals = self.totals
        totals.made += 1
        totals.busy_s += seconds
        totals.cpu_s += cpu_s
        totals.total_bytes += size_bytes
        self.batch_bytes = max(self.batch_bytes, size_bytes)
        if starved_s is not None:
            self.starved_known = True
            totals.starved_s += starved_s

    @property
    def loading_cpu_s(self) -> float:
        """CPU time of making batches in the main process, from those whose time was taken."""
        return self.totals.loading_s * _cpu_share(Totals(), self.totals)

    def forget_waits(self) -> None:
        """Another number of workers: the waits until now are not its."""
        self.waits.clear()

    def note_peaks(self, in_flight: int, slot_bytes: int) -> None:
        """How much there is now."""
        self.peak_in_flight = max(self.peak_in_flight, in_flight)
        self.peak_slot_bytes = max(self.peak_slot_bytes, slot_bytes)

    @property
    def window_is_open(self) -> bool:
        """Whether a window has begun and nothing has spoilt it."""
        return self._mark is not None

    def open_window(self) -> None:
        """What comes next belongs to a new window."""
        self._mark = self.totals.copy()

    def spoil_window(self) -> None:
        """Something was changed in the middle of the window: it tells nothing."""
        self._mark = None

    def seen(self) -> tuple[int, float]:
        """Batches and seconds of the window so far; none when there is no window."""
        if self._mark is None:
            return 0, 0.0
        return self.totals.batches - self._mark.batches, self.totals.seconds - self._mark.seconds

    def close_window(self, workers: int) -> Window:
        """The window since `open_window`; with 0 workers, of the main process."""
        before, after = self._mark, self.totals
        assert before is not None
        made, busy_s = after.made - before.made, after.busy_s - before.busy_s
        cpu_s = after.cpu_s - before.cpu_s
        starved_s = after.starved_s - before.starved_s
        if workers == 0:
            made, busy_s = after.loaded - before.loaded, after.loading_s - before.loading_s
            cpu_s = busy_s * _cpu_share(before, after)
        self._mark = None
        self.recent = Window(
            workers=workers,
            batches=after.batches - before.batches,
            seconds=after.seconds - before.seconds,
            waited_s=after.waited_s - before.waited_s - (after.opening_s - before.opening_s),
            away_s=after.away_s - before.away_s,
            handling_s=after.handling_s - before.handling_s,
            made=made,
            busy_s=busy_s,
            cpu_s=cpu_s,
            starved_s=starved_s if self.starved_known and workers else None,
            order_s=after.order_s - before.order_s,
            batch_bytes=self.batch_bytes,
        )
        return self.recent


def _cpu_share(before: Totals, after: Totals) -> float:
    """CPU time over time of batches made in the main process; of the window where it tells."""
    clocked_s = after.clocked_s - before.clocked_s
    if clocked_s > 0:
        return min(1.0, (after.clocked_cpu_s - before.clocked_cpu_s) / clocked_s)
    return min(1.0, after.clocked_cpu_s / after.clocked_s) if after.clocked_s else 1.0
