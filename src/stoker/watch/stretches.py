"""Adds up what happens to one loader of a program, and cuts it into windows."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stoker.feed.meter import WAIT_BOUNDS_S
from stoker.feed.window import Window
from stoker.watch.marks import Mark

_PAUSE_S, _PAUSE_FACTOR = 1.0, 20.0
_SMOOTHING = 0.2


@dataclass
class Sums:
    """Seconds and batches since the loader was first watched; see `Window`."""

    batches: int = 0
    waited_s: float = 0.0
    away_s: float = 0.0
    handling_s: float = 0.0
    loading_s: float = 0.0
    loading_cpu_s: float = 0.0
    made: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    starved_s: float = 0.0
    order_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Time inside epochs."""
        return self.waited_s + self.away_s + self.handling_s + self.loading_s


class Stretches:
    """See the module.

    Attributes:
        sums: Everything so far.
        waits: How many waits were up to each of `WAIT_BOUNDS_S`, while `counting`.
        waits_s: The last of them.
        counting: Whether waits are counted: with the program's own setting.
        batch_bytes: Size of the largest batch.
    """

    def __init__(self) -> None:
        self.sums = Sums()
        self.waits = [0] * len(WAIT_BOUNDS_S)
        self.waits_s: deque[float] = deque(maxlen=512)
        self.counting = True
        self.batch_bytes = 0
        self._starving_known = False
        self._mark: Sums | None = None
        self._away_s = 0.0
        self._left_at: float | None = None
        self._cpu_share, self._own_s = 1.0, 0.0

    def pause(self) -> None:
        """What passes until the next batch is asked for is not the consumer's step."""
        self._left_at = None

    def entered(self, now: float, elsewhere_s: float) -> float | None:
        """The consumer asks for a batch.

        Args:
            now: The time.
            elsewhere_s: Seconds since the last batch that other loaders took.

        Returns:
            The length of its step; None where there was none.
        """
        if self._left_at is None:
            return None
        away_s, self._left_at = max(0.0, now - self._left_at - elsewhere_s), None
        long = away_s > _PAUSE_S and away_s > _PAUSE_FACTOR * self._away_s
        if long and self.sums.batches > 2:
            return None
        self._away_s += _SMOOTHING * (away_s - self._away_s)
        self.sums.away_s += away_s
        return away_s

    def left(self, now: float) -> None:
        """The batch is handed out: the consumer's step begins."""
        self._left_at = now

    def loaded(self, seconds: float, cpu_s: float, now: float) -> None:
        """The main process has made a batch."""
        self.sums.loading_s += seconds
        self.sums.loading_cpu_s += min(cpu_s, seconds)
        self._cpu_share = min(1.0, cpu_s / max(seconds, 1e-9))
        self._delivered(seconds, now)

    def received(self, seconds: float, cpu_s: float, now: float, *, opening: bool) -> None:
        """A batch of a worker was received, `cpu_s` of the time by own work."""
        own_s = self._own_s = min(cpu_s, seconds)
        self.sums.handling_s += own_s
        if not opening:
            self.sums.waited_s += seconds - own_s
        self._delivered(seconds - own_s, now)

    def several(self, took: Sequence[float], away_s: float, now: float, *, workers: bool) -> None:
        """Batches that nobody looked at: their share of CPU time is that of the last one.

        Args:
            took: Seconds for each.
            away_s: The consumer's steps before them, together.
            now: When the last one was handed out.
            workers: Whether workers made them.
        """
        sums, spent_s = self.sums, sum(took)
        sums.away_s += away_s
        if workers:
            handled_s = sum(min(self._own_s, each) for each in took)
            sums.handling_s += handled_s
            sums.waited_s += spent_s - handled_s
            took = [max(0.0, each - self._own_s) for each in took]
        else:
            sums.loading_s += spent_s
            sums.loading_cpu_s += self._cpu_share * spent_s
        for each in took:
            self._delivered(each, now)
        self._left_at = now

    def replayed(self, now: float) -> None:
        """A batch that was ready is handed out again."""
        self.counting = False  # it is no wait with the program's own setting
        self._delivered(0.0, now)

    def made(self, marks: Iterable[Mark]) -> None:
        """Workers have made batches."""
        for mark in marks:
            self.sums.made += mark.count
            self.sums.busy_s += mark.busy_s
            self.sums.cpu_s += mark.cpu_s
            if mark.starved_s >= 0:
                self._starving_known = True
                self.sums.starved_s += mark.starved_s
            self.batch_bytes = max(self.batch_bytes, mark.size_bytes)

    def out_of_turn(self, seconds: float) -> None:
        """Of the last wait, how long a later batch was ready."""
        self.sums.order_s += seconds

    @property
    def window_is_open(self) -> bool:
        """Whether a window has begun."""
        return self._mark is not None

    def open_window(self) -> None:
        """A window begins with the next step."""
        self._mark = replace(self.sums)

    def spoil_window(self) -> None:
        """What the window has seen tells nothing."""
        self._mark = None

    def so_far(self) -> tuple[int, float]:
        """Batches and seconds of the window."""
        if self._mark is None:
            return 0, 0.0
        return self.sums.batches - self._mark.batches, self.sums.seconds - self._mark.seconds

    def close_window(self, workers: int) -> Window:
        """The window since `open_window`."""
        before, after = self._mark or self.sums, self.sums
        self._mark = None
        values = {name: getattr(after, name) - getattr(before, name) for name in vars(after)}
        loading_s, loading_cpu_s = values.pop("loading_s"), values.pop("loading_cpu_s")
        values["seconds"] = after.seconds - before.seconds
        if not workers:
            values.update(made=values["batches"], busy_s=loading_s, cpu_s=loading_cpu_s)
        values["order_s"] = min(values["order_s"], values["waited_s"])
        if not workers or not self._starving_known:
            values["starved_s"] = None
        return Window(workers=workers, batch_bytes=self.batch_bytes, **values)

    def _delivered(self, waited_s: float, now: float) -> None:
        self.sums.batches += 1
        self._left_at = now
        if self.counting:
            self.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
            self.waits_s.append(waited_s)
