"""Cuts what happens to one loader into windows, and hands them on.

    steady:  start ─ fill ─┤ window │ window │ ...      workers that run on
    whole:   ┤ all batches, end │ ┤ all batches ...     epochs too short for that

Whole epochs are added up until there are as many batches and seconds as a window needs. They
have the start of workers in them where nothing can keep the workers from epoch to epoch: the
program's own ones without ``persistent_workers``, and those of a loader that is made anew for each
epoch. Once epochs of a line were too short for one number, they are measured whole with all of
them: a rate with the start of workers is not comparable with one without.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from stoker.feed.meter import WAIT_BOUNDS_S
from stoker.feed.window import Window
from stoker.tuning.probing import Ask, Setting
from stoker.tuning.site_record import Seen
from stoker.watch.kept import size_of
from stoker.watch.makings import Makings
from stoker.watch.roles import Epoch
from stoker.watch.sources import Source
from stoker.watch.stretches import Stretches
from stoker.watch.timeline import Timeline

_SHORT_EPOCH = 3
"""An epoch of fewer times as many batches as workers take in advance has no steady state: it is
measured as a whole, with the start of the workers."""
_WAITED_S = 0.001
_MOST_WAITS = 4096
_MOST_SEEN = 2000


class Measuring:
    """See the module.

    Args:
        timeline: Where spans go.
        folder: Where workers note down what they make.
        ahead: Batches that the workers of the largest number may take in advance, where it is
            known that it will be measured.

    Attributes:
        seen: Every window.
        abandoned: Batches after which the program left its last epoch; None where it took all.
    """

    def __init__(self, timeline: Timeline, folder: str, ahead: int = 0) -> None:
        self.stretches = Stretches()
        self.timeline = timeline
        self.seen: list[Seen] = []
        self.abandoned: int | None = None
        self._folder = folder
        self._too_short = _SHORT_EPOCH * ahead - 1
        self._was_whole = False
        self._makings: Makings | None = None
        self._order_s = 0.0
        self._waits: deque[tuple[int, float, float]] = deque(maxlen=_MOST_WAITS)
        self._steady_at = 0
        self._for: tuple[Setting, int] | None = None

    # -- sources --------------------------------------------------------------------------

    def opened(self, source: Source, ask: Ask) -> None:
        """A source serves from now on."""
        self._makings = Makings(source, self._folder) if source.workers else None
        self._order_s = self._makings.order_s if self._makings else 0.0
        self._steady_at = max(1, source.workers)
        if self._for != (ask.setting, ask.round):
            self._for = ask.setting, ask.round
            self.spoil()

    def dropped(self, source: Source) -> None:
        """It serves no more, and its workers have ended unless they are the program's."""
        if self._makings is not None:
            self._makings.close()
            self._makings = None
        if source.workers and not source.stays and not self._was_whole:
            self.spoil()

    def may_pass_over(self, source: Source) -> bool:
        """Whether batches of a source need not be looked at one by one."""
        begun = source.served > source.served_before
        return begun and not self._was_whole and not self.timeline.wants_more

    def restarted(self, source: Source) -> None:
        """Its data set was at its end."""
        self._steady_at = source.served + source.workers

    def goes_on(self, source: Source) -> None:
        """It serves the next epoch, too: what its workers have ready by then tells nothing."""
        if not source.workers:
            return
        self._steady_at = source.served + source.outstanding + source.workers
        self.spoil()

    def spoil(self) -> None:
        """What the window has seen tells nothing."""
        self.stretches.spoil_window()
        self._waits.clear()

    def whole(self, source: Source | None, iterator: Epoch) -> bool:
        """Whether epochs are too short for a steady state, so that they are measured whole."""
        if source is None or not source.workers:
            return False
        length = iterator.length
        if self.abandoned is not None:
            length = max(self.abandoned, iterator.served)
        few = max(_SHORT_EPOCH * source.outstanding - 1, self._too_short)
        whole = length is not None and length <= few
        if whole:
            self._too_short = max(self._too_short, length or 0)
        if self._was_whole and not whole:
            self.spoil()
        self._was_whole = whole
        return whole

    def ends_with_epoch(self, source: Source, batches: int) -> None:
        """A source that was measured is dropped because the epoch is over.

        Args:
            source: The source, which has served the whole epoch.
            batches: Of the epoch.
        """
        if source.workers and not source.stays and not source.windows:
            self._too_short = max(self._too_short, batches)

    # -- windows --------------------------------------------------------------------------

    def begin_whole(self, source: Source, *, kept: bool) -> None:
        """The first batch of an epoch that is measured whole was asked for.

        Args:
            source: Serves it.
            kept: Whether workers may stay from epoch to epoch: an epoch that starts them says
                nothing then.
        """
        if not self.stretches.window_is_open and (source.kept or not kept):
            self.take_marks(source)
            self.stretches.open_window()

    def note(self, source: Source, began: float, end: float, cpu_s: float, whole: bool) -> None:
        """A batch came."""
        stretches = self.stretches
        opening = source.served == source.served_before + 1 and not whole
        stretches.counting = source.own and not opening
        self.timeline.consumer("wait" if source.workers else "load", began, end, source)
        if not source.workers:
            stretches.loaded(end - began, cpu_s, end)
            return
        stretches.received(end - began, cpu_s, end, opening=opening)
        if end - began > _WAITED_S and stretches.window_is_open:
            self._waits.append((source.served - 1, began, end))

    def window(self, ask: Ask, source: Source, *, whole: bool, ended: bool) -> Window | None:
        """Opens a window once the setting is steady, and closes it when it is long enough."""
        stretches = self.stretches
        if not stretches.window_is_open:
            if not whole and source.served >= self._steady_at:
                self.take_marks(source)
                stretches.open_window()
            return None
        batches, seconds = stretches.so_far()
        if batches < ask.batches or seconds < ask.seconds or (whole and not ended):
            return None
        self.take_marks(source)
        window = _with_makings(stretches.close_window(source.workers))
        window = replace(window, whole=whole and not source.kept)
        source.windows += 1
        self._waits.clear()
        return window

    def sized(self, batch: Any) -> None:
        """How large a batch is, once for each window."""
        stretches = self.stretches
        if not stretches.window_is_open or not stretches.batch_bytes:
            stretches.batch_bytes = max(stretches.batch_bytes, size_of(batch))

    def observed(self, ask: Ask, window: Window, source: Source | None) -> None:
        """A window is kept for the report."""
        memory_bytes = 0 if source is not None and not source.workers else None
        first_batch_s = source.first_batch_s if source is not None else None
        seen = Seen(ask.setting, ask.stage, ask.round, window, first_batch_s, memory_bytes)
        if len(self.seen) < _MOST_SEEN:
            self.seen.append(seen)

    def weigh(self, source: Source) -> None:
        """Notes the memory of workers that are about to end.

        Not between two windows: it takes a while, in which they would make batches in advance,
        and the next window would have them all at once.
        """
        at = [n for n, each in enumerate(self.seen) if each.setting == source.setting]
        if source.workers and at and self.seen[at[0]].memory_bytes is None:
            self.seen[at[0]] = replace(self.seen[at[0]], memory_bytes=source.memory_bytes())

    def told(self) -> dict[str, Any]:
        """Fields of a `SiteRecord`."""
        stretches = self.stretches
        return {
            "batches": stretches.sums.batches,
            "seconds": stretches.sums.seconds,
            "seen": self.seen,
            "waits": list(zip(WAIT_BOUNDS_S, stretches.waits, strict=True)),
            "waits_s": list(stretches.waits_s),
            "batch_bytes": stretches.batch_bytes,
        }

    def take_marks(self, source: Source) -> None:
        """What workers have noted down since the last time."""
        makings = self._makings
        if makings is None:
            return
        marks = list(makings.new())
        self.stretches.made(mark for _, mark in marks)
        self.timeline.workers(marks, source)
        for batch, began, end in self._waits:
            self.stretches.out_of_turn(makings.out_of_turn_s(batch, began, end))
        order_s = makings.order_s
        self.stretches.out_of_turn(order_s - self._order_s)
        self._order_s = order_s
        self._waits.clear()


class Replay:
    """Batches that are ready: nothing that a loader can do is faster.

    Args:
        batch_bytes: Size of a batch.
    """

    _MOST, _MOST_S = 20_000, 1.0

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._count, self._seconds, self._began = 0, 0.0, 0.0

    def step(self, step_s: float | None, now: float) -> None:
        """A batch was asked for, `step_s` after the last was handed out."""
        if step_s is None or not self._began:
            self._began = self._began or now
            return
        self._count += 1
        self._seconds += step_s

    def window(self, ask: Ask, now: float) -> Window | None:
        """The window, once it is long enough; it counts the consumer's own time only."""
        long = self._seconds >= ask.seconds or now - self._began > self._MOST_S
        if self._count < ask.batches or not (long or self._count >= self._MOST):
            return None
        count, seconds = self._count, max(self._seconds, 1e-7 * self._count)
        self._count, self._seconds, self._began = 0, 0.0, now
        size, workers = self._batch_bytes, ask.setting.workers
        return Window(
            workers, count, seconds, 0.0, seconds, 0.0, count, 1e-6, 1e-6, None, 0.0, size
        )


def _with_makings(window: Window) -> Window:
    """A window of workers that told nothing: taken to be busy all the time."""
    if window.made or not window.batches:
        return window
    busy_s = max(window.workers, 1) * window.seconds
    return replace(window, made=window.batches, busy_s=busy_s, cpu_s=busy_s)
