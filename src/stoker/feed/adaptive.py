"""Batches from the main process or from workers, whichever a governor finds better.

Both take their tasks from the same plan, and a batch does not depend on who makes it. So the
number of workers may change between any two batches.

Who makes the next batch::

    something in flight?  --yes-->  wait for the next one of the workers
             |no
             v
    the main process makes it, and workers that have come up get those behind it

So nothing waits for a worker to come up, and none that fails to come up stops the epoch. Where
something of the user's needs a worker (`Governor.least`), the main process makes no batch.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any, Protocol

from stoker.errors import StokerError
from stoker.feed.crew import Crew
from stoker.feed.feed import Feed
from stoker.feed.meter import Meter
from stoker.feed.not_built import how_it_failed
from stoker.feed.vigil import NothingMade
from stoker.feed.window import Window
from stoker.order.broken import Damage
from stoker.order.epoch import EpochPlan, Task
from stoker.transport.arena import check_size
from stoker.transport.layout import Packing, size_bytes
from stoker.workers.lean import may_be_lean
from stoker.workers.making import MapMaker
from stoker.workers.messages import BeginEpoch
from stoker.workers.tolerance import LEFT_OUT
from stoker.workers.unpicklable import why_not

_LOOK_AGAIN_S = 0.01
_CLOCKED = 16
_GROW_S = 0.05


class Governor(Protocol):
    """Decides how many workers there are to be.

    Attributes:
        least: The fewest it will ask for; never 0 where batches must come from workers.
    """

    least: int

    def next_window(self) -> tuple[int, float]:
        """How many batches, and seconds, the next window is to have at least."""
        ...

    def begin(self, batches_left: int | None) -> int | None:
        """Asked once, at the first batch: how many workers to begin with, None for no change."""
        ...

    def review(self, window: Window, batches_left: int | None) -> int | None:
        """Looks at what was seen; returns how many workers to have, None for no change."""
        ...

    def performed(self, workers: int) -> None:
        """The number was changed."""
        ...

    def came_up(self, workers: int, seconds: float) -> None:
        """Workers that were started have come up, that long after."""
        ...

    def refused(self, why: str, most: int = 0) -> None:
        """There can be no more workers than `most`."""
        ...


@dataclass(frozen=True)
class Epoch:
    """What there is to do.

    Attributes:
        plan: The batches.
        maker: Makes batches in the main process.
        message: What workers are told; its count of epochs is not used.
        length: How many batches there are; None when unknown.
        new_feed: Makes a feed without workers.
        likeness: Tells what workers that are started now are made from.
        batch_limit_bytes: Above which size a batch is an error; None: there is no such size.
        pin: Pins a batch that was made in the main process; or None.
    """

    plan: EpochPlan
    maker: MapMaker
    message: BeginEpoch
    length: int | None
    new_feed: Callable[[], Feed]
    likeness: Callable[[], Any]
    batch_limit_bytes: int | None
    pin: Callable[[Any], Any] | None


def _make_and_finish(epoch: Epoch, task: Task) -> Any:
    batch = epoch.maker.make(task)
    if batch is LEFT_OUT:
        return batch
    if epoch.batch_limit_bytes is not None:
        check_size(size_bytes(batch), epoch.batch_limit_bytes)
    return epoch.pin(batch) if epoch.pin else batch


def _held(method: weakref.WeakMethod[Callable[..., Any]]) -> Callable[..., Any]:
    held = method()
    assert held is not None
    return held


class AdaptiveFeed:
    """See the module.

    Args:
        governor: Decides.
        meter: Takes note of what happens.

    Attributes:
        workers: How many workers there are to be.
        made_of: What the workers there are were made from, by `Epoch.likeness`; None where
            that changed from one to the next, or there are none.
    """

    def __init__(self, governor: Governor, meter: Meter) -> None:
        self._governor = governor
        self._meter = meter
        self.made_of: Any = None
        self._feed: Feed | None = None
        self._suits_workers = False
        self._begun = False
        self._due = 0.0
        self._mark: int | None = None
        self._starting: tuple[float, int] | None = None
        self._epoch = -1
        self._unclocked = 0
        self._restarted = 0
        self.workers = 0

    @property
    def feed(self) -> Feed | None:
        """What the workers deliver to; None as long as there were none."""
        return self._feed

    def begin_epoch(self, epoch: Epoch) -> None:
        """Starts an epoch, with as many workers as the one before had in the end."""
        self._epoch += 1
        self._now = epoch
        self._message = epoch.message._replace(epoch=self._epoch)
        self._delivered = 0
        self._mark = None
        self._meter.begin_epoch()
        plain = epoch.batch_limit_bytes is None and epoch.pin is None
        finished = functools.partial(_make_and_finish, epoch)
        self._make: Callable[[Task], Any] = epoch.maker.make if plain else finished
        if self._feed is not None and self._feed.closed:  # Not persistent, or after an error.
            self._feed = None
        if self._feed is not None:
            self._feed.begin_epoch(epoch.plan, self._message)
        workers = max(self.workers, self._governor.least)
        if workers and (self._feed is None or workers != self.workers):
            self.resize(workers)

    def next(self) -> Any:
        """The next batch; raises what `Feed.next` raises."""
        while (batch := self._next_or_none_left()) is LEFT_OUT:
            self._delivered += 1
        self._delivered += 1
        if self._meter.left_at >= self._due:
            began = perf_counter()
            self._look(batch)
            self._meter.looked(began, perf_counter())
        return batch

    def _next_or_none_left(self) -> Any:
        feed = self._feed
        if feed is not None and feed.crew.staying < self.workers:
            feed.check()
            self._grow(feed.crew)
        if feed is None or not self._is_for_workers(feed):
            return self._load(feed)
        try:
            batch = feed.next()
        except NothingMade as found:
            self._rule_out(found.why, feed.crew.staying)
            return self._next_or_none_left()
        if feed.restarted != self._restarted:
            self._note_restarts(feed)
        return batch

    def _is_for_workers(self, feed: Feed) -> bool:
        """Whether the next batch is to come from workers.

        One at which a worker has died does in any case, and has one started for it where they
        were all told to leave.
        """
        if feed.has_suspects and not feed.crew.staying:
            feed.crew.resize(1, self._message)
        elif feed.crew.staying > self.workers and not feed.has_suspects:
            feed.crew.resize(self.workers, self._message)
        ready = bool(feed.in_flight) and not feed.is_stranded
        return bool(self._governor.least) or feed.has_suspects or ready

    def _note_restarts(self, feed: Feed) -> None:
        """A worker was started in the middle of the epoch, from what there was then."""
        self._restarted = feed.restarted
        self._meter.spoil_window()
        self._mark = None
        if self._now.likeness() != self.made_of:
            self.made_of = None

    def _load(self, feed: Feed | None) -> Any:
        """Makes a batch in the main process."""
        meter, entered = self._meter, perf_counter()
        meter.entered(entered)
        task = self._now.plan.next() if feed is None else self._take_over(feed)
        if task is None:
            raise StopIteration
        before = self._now.likeness() if feed is not None and feed.crew.men else None
        if self._unclocked:
            self._unclocked -= 1
            batch = self._make(task)
        else:
            batch = self._make_by_the_clock(task)
        if before is not None and before == self.made_of:
            self.made_of = self._now.likeness()  # What reading changes is no change of the user's.
        damage, left_out = self._now.maker.damage, batch is LEFT_OUT
        if damage is not None:
            meter.lost(task.number, damage, left_out=left_out)
        told = meter.left_out if left_out else meter.loaded
        told(entered, perf_counter())
        return batch

    def _take_over(self, feed: Feed) -> Task | None:
        task = feed.take_over()
        if feed.serving:
            self._meter.spoil_window()
        return task

    def _make_by_the_clock(self, task: Task) -> Any:
        """Takes the CPU time as well, of the first batches and some of the later ones."""
        cpu_s, began = thread_time(), perf_counter()
        batch = self._make(task)
        self._meter.clocked(perf_counter() - began, thread_time() - cpu_s)
        self._unclocked = 0 if self._meter.totals.loaded < _CLOCKED else _CLOCKED
        return batch

    def _look(self, batch: Any) -> None:
        """Closes the window if it is long enough, and has the governor look at it."""
        now, meter = self._meter.left_at, self._meter
        self._watch_the_start(now)
        left = None if self._now.length is None else max(0, self._now.length - self._delivered)
        if not self._begun and left != 0:
            self._begun = True
            target = self._governor.begin(left)
            if target is not None and target != self.workers:
                self.resize(target, batch)
                return
        if not meter.window_is_open:
            self._due = now + _LOOK_AGAIN_S
            if self._is_steady():
                self._open_window(now)
            return
        batches, seconds = meter.seen()
        least_batches, least_s = self._governor.next_window()
        if batches < least_batches or seconds < least_s:
            return
        window = meter.close_window(self._feed.serving if self._feed else 0)
        target = self._governor.review(window, left)
        if target is not None and target != self.workers:
            self.resize(target, batch)
        else:
            self._open_window(now)

    def _open_window(self, now: float) -> None:
        self._meter.open_window()
        self._due = now + self._governor.next_window()[1]

    def _is_steady(self) -> bool:
        """Whether the effect of the last change, or of the epoch's beginning, is over."""
        feed = self._feed
        if feed is None or not (feed.crew.men or self.workers):
            return True
        if feed.crew.unsettled or feed.crew.staying < self.workers:
            self._mark = None
            return False
        if self._mark is None:
            self._mark = feed.assigned_so_far
        return self._delivered >= self._mark

    def _watch_the_start(self, now: float) -> None:
        feed = self._feed
        if feed is None:
            return
        failed, feed.crew.failed_start = feed.crew.failed_start, None
        if failed is not None:
            self._rule_out(how_it_failed(failed))
        complete = feed.crew.staying >= self.workers and not feed.crew.starting
        if self._starting is not None and complete:
            began, count = self._starting
            self._starting = None
            if feed.crew.men:
                self._governor.came_up(count, now - began)

    def resize(self, workers: int, batch: Any = None) -> None:
        """Has so many workers from now on; none where there can't be any.

        Args:
            workers: How many; may be called between any two batches.
            batch: One that the main process made, to see whether workers could send it.
        """
        self._meter.spoil_window()
        self._mark = None
        self._due = 0.0
        workers = self._allowed(workers)
        if workers and not self._governor.least and not self._suits(batch):
            return
        if self._feed is None:
            self._feed = self._now.new_feed()
            self._restarted = 0
            # Weak, so that both are gone, with their descriptors, when nobody needs them.
            again = weakref.WeakMethod(self._second_try)
            if not self._governor.least:
                self._feed.opening.on_second_try = lambda *tried: _held(again)(*tried)
            self._feed.begin_epoch(self._now.plan, self._message, self._now.plan.upcoming)
        self._starting = None
        self.workers = workers
        self._feed.crew.resize(min(workers, self._feed.crew.staying), self._message)
        if self._grow(self._feed.crew):
            self._governor.performed(self.workers)

    def _allowed(self, workers: int) -> int:
        """So many, or as many as there are where no more may be forked."""
        there = self._feed.crew.staying if self._feed is not None else 0
        if self._governor.least or not self._meter.no_forks or workers <= there:
            return workers
        self._governor.refused(self._meter.no_forks, there)
        return there

    def _grow(self, crew: Crew) -> bool:
        """Starts the workers that are missing, or as many as can be in a moment.

        A batch that is asked for is not to wait for the start of dozens: the rest are started
        when the next ones are asked for. Tells whether nothing prevented it.
        """
        began = perf_counter()
        if crew.staying < self.workers:
            made_of = self._now.likeness()
            self.made_of = made_of if not crew.men or made_of == self.made_of else None
        while crew.staying < self.workers and perf_counter() - began < _GROW_S:
            try:
                crew.resize(crew.staying + 1, self._message)
            except Exception as error:
                if crew.staying < self._governor.least:
                    raise
                self.workers = crew.staying
                told = error if isinstance(error, StokerError) else error.__cause__
                why = told.what if isinstance(told, StokerError) else repr(error)
                self._governor.refused(f"workers could not be started: {why}", self.workers)
                self._governor.performed(self.workers)
                return False
            since, count = self._starting or (began, 0)
            self._starting = since, count + 1
        return True

    def _suits(self, batch: Any) -> bool:
        """Whether batches like this one can come from workers; looks once."""
        if self._suits_workers:
            return True
        try:
            packing = Packing(batch, None, 0)
        except Exception as error:
            why = why_not(batch, "batch") or repr(error)
            self._governor.refused(f"a batch does not pickle: {why}")
            return False
        if packing.devices:
            places = ", ".join(sorted(packing.devices))
            self._governor.refused(f"the data set makes tensors on {places}, not on the CPU")
            return False
        self._meter.batch_bytes = max(self._meter.batch_bytes, packing.size_bytes)
        self._meter.needs_torch |= not may_be_lean(batch)
        self._suits_workers = True
        return True

    def _second_try(self, task: Task, name: str, unreadable: bool) -> tuple[Any, Damage | None]:
        """What a worker failed at first of all, or can't send, may need the main process."""
        batch, damage = self._make(task), self._now.maker.damage
        is_better = not (unreadable and damage is not None and damage.is_whole)
        if self.workers and is_better:  # What else they had begun fails in the same way.
            self._rule_out(f"workers raise {name} where the main process does not")
        return batch, damage

    def _rule_out(self, why: str, most: int = 0) -> None:
        self._governor.refused(why, most)
        if self._feed is not None:
            self._feed.crew.resize(most, self._message)
        self.workers = most
        self._governor.performed(most)
        self._meter.spoil_window()

    def rest(self) -> None:
        """The epoch is over, or was left: keeps no batch until the next one begins."""
        if self._feed is not None:
            self._feed.put_back()

    def close(self) -> None:
        """Stops the workers."""
        if self._feed is not None:
            self._feed.close()
