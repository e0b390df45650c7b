"""One line of a program that makes a loader: hands out its batches, and measures settings.

    iter(loader) ──▶ SiteIterator ──▶ WatchedSite.next ──▶ Source (own, or another setting)
                                           │                   ▲
                                           ▼                   │ Asking
                                       Measuring ── window ──▶ Prober

The program gets real batches of its own loader all the time, and as many in an epoch as it
expects. While settings are tried they come from the data set's beginning again and again, in an
order of their own: a program that is measured does not train.

Guarantees: the user's own error reaches the program as it is; an error of another setting ends
that trial; an error of Stoker's own ends the watching, and the program goes on.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections import deque
from time import perf_counter, thread_time
from typing import Any

from stoker.feed.window import Window
from stoker.host.identity import machine_digest
from stoker.tuning.answer import Site
from stoker.tuning.fingerprint import fingerprint
from stoker.tuning.loader_facts import facts_of
from stoker.tuning.probing import Ask
from stoker.tuning.site_record import SiteRecord
from stoker.watch.asking import Asking
from stoker.watch.bounds import Allowed
from stoker.watch.iterating import SiteIterator
from stoker.watch.kept import Kept
from stoker.watch.lengths import length_known
from stoker.watch.looking import SiteLook
from stoker.watch.measuring import Measuring, Replay
from stoker.watch.quick import Quick
from stoker.watch.roles import Conducts
from stoker.watch.sources import PREFETCH, Source
from stoker.watch.supply import Supply
from stoker.watch.timeline import Timeline

_KEPT_STARTS = 200
_COUNTING_S = 5.0
"""So long an epoch of unknown length is not disturbed: it may come to its end."""


class WatchedSite:
    """See the module.

    Args:
        name: The same in every process of the program.
        site: The line.
        loader: The first loader that it made.
        conductor: Says which site is measured, and when it is enough.

    Attributes:
        in_epoch: Whether the program is in the middle of an epoch.
        beside: As in `SiteRecord`.
        cut_at: The batch before which this epoch will be ended; None where it will not.
    """

    def __init__(self, name: str, site: Site, loader: Any, conductor: Conducts) -> None:
        self.name, self.site = name, site
        self.made = self.epochs = self.ended = 0
        self.cut_at: int | None = None
        self.loader_facts = facts_of(loader)
        self.starts_s: deque[float] = deque(maxlen=_KEPT_STARTS)
        self._handed_out, self._touched_s = 0, 0.0
        self._conductor = conductor
        self._own = 0 if self.loader_facts.automatic else self.loader_facts.num_workers
        self._asking = Asking(self, self._own, conductor)
        self.prober = self._asking.prober
        self.timeline = Timeline(conductor.began_s, keep_all=conductor.settings.trace)
        ahead = max(conductor.settings.counts or (0,)) * (loader.prefetch_factor or PREFETCH)
        self._measuring = Measuring(self.timeline, conductor.folder, ahead)
        self._look_into = SiteLook(conductor.folder)
        self._fingerprint, self._machine = fingerprint(loader), machine_digest()
        self._method = conductor.method_of(loader)
        self._allowed = Allowed(loader, self._own, self._method, conductor.folder)
        self._asking.failures += self._allowed.failures()
        self._number = 0
        self._lock = threading.RLock()
        self.in_epoch = False
        self.beside: list[int] = []
        self._current: weakref.ref[SiteIterator] | None = None
        self._known: int | None = None
        self._supply = Supply(conductor, self._asking, self._measuring, self._look_into)
        self._kept = Kept()
        self._replay: Replay | None = None
        self._mark = (0.0, 0)
        self._quick = Quick(self._lock)

    # -- what the program does ------------------------------------------------------------

    def begin(self, loader: Any) -> SiteIterator:
        """The program calls ``iter(loader)``; `start` follows."""
        with self._lock:
            return self._begin(loader)

    def _begin(self, loader: Any) -> SiteIterator:
        self._conductor.guarded(self._look_again)
        previous = self._current() if self._current is not None else None
        if previous is not None and not previous.ended:
            if previous.length is not None and previous.served >= previous.length:
                self._conductor.guarded(self._end_epoch, previous)  # who counts asks no further
            else:
                self._leave_alone(previous)
        self.epochs += 1
        self._number += 1
        self._quick = Quick(self._lock)
        length = length_known(loader, self._known)
        iterator = SiteIterator(self, loader, self._number, length, self._quick)
        self._current = weakref.ref(iterator)
        self._measuring.stretches.pause()
        if self._supply.source is not None:
            self._supply.pass_on(iterator)
        return iterator

    def start(self, iterator: SiteIterator) -> None:
        """Starts workers where PyTorch would: at ``iter(loader)``.

        Raises:
            Exception: What the user's code raised.
        """
        with self._lock:
            if iterator.number == self._number:
                self._start(iterator)

    def _start(self, iterator: SiteIterator) -> None:
        ask = self._conductor.guarded(self._asking.now)
        if ask is not None and self._supply.source is None and self._asking.is_plain(ask):
            self._supply.open(ask, iterator)

    def next(self, iterator: SiteIterator) -> Any:
        """The program asks for a batch; blocks.

        Raises:
            StopIteration: The epoch is over.
            Stop: It is enough.
            Exception: What the user's code raised.
        """
        if not self._conductor.off:
            with self._lock:  # two threads may have an iterator each; the last one is measured
                if iterator.number == self._number:
                    return self._next(iterator)
        return iterator.alone()

    def passed(self, error: Exception, iterator: SiteIterator) -> bool:
        """Whether the program need not know of what came instead of a batch without a look."""
        self._conductor.guarded(self._look_again)
        source = self._supply.source
        return source is None or self._passed(error, source, iterator)

    def look_again(self) -> None:
        """The next batch is looked at."""
        self._quick.end()

    def _look_again(self) -> None:
        quick, touched_s = self._quick, self.touched_s
        quick.end()
        spent_s, batches = quick.flush(self._measuring.stretches)
        if batches:
            self._touched_s = touched_s
            self._handed_out += batches
            if self._supply.source is not None:
                self._supply.source.served += batches
            self._conductor.spent(spent_s, batches)
            self._mark = self._mark[0] + spent_s, self._mark[1] + batches

    def _next(self, iterator: SiteIterator) -> Any:
        conductor, now = self._conductor, perf_counter()
        try:
            ask = self._before(iterator, now)
        except Exception as error:
            return conductor.give_up(error, iterator)
        if ask is None:
            raise StopIteration
        if ask.stage == "replay" and self._kept.full:
            batch = conductor.guarded(self._replayed, ask)
        else:
            batch = self._load(ask, iterator, now)
        if conductor.off and batch is None:
            return iterator.alone()
        iterator.served += 1
        self._handed_out += 1
        conductor.guarded(self._after, iterator, ask, now)
        return batch

    def abandoned(self, iterator: SiteIterator) -> None:
        """The program has let go of an iterator in the middle of its epoch; never raises."""
        if self._conductor.off or not self._lock.acquire(blocking=False):
            return
        try:
            if iterator.number == self._number:
                self._conductor.guarded(self._leave_early, iterator)
        finally:
            self._lock.release()

    @property
    def total(self) -> int:
        """Batches handed out."""
        return self._handed_out + self._quick.count

    @property
    def touched_s(self) -> float:
        """When the last of them was."""
        return max(self._touched_s, self._quick.last_s)

    @property
    def done(self) -> bool:
        """Whether its answer is found."""
        return self._asking.done

    def stop(self) -> None:
        """There is no time to measure more."""
        self._asking.stop()

    @property
    def step_s(self) -> float:
        """Mean time between two batches."""
        sums = self._measuring.stretches.sums
        return sums.seconds / sums.batches if sums.batches else 0.0

    @property
    def iterator(self) -> Any:
        """What is iterated underneath."""
        return self._supply.source.iterator if self._supply.source is not None else iter(())

    def open_own(self, loader: Any) -> Any:
        """The program's own iterator, unwatched."""
        return self._conductor.open_iterator(loader)

    # -- batches --------------------------------------------------------------------------

    def _before(self, iterator: SiteIterator, now: float) -> Ask | None:
        """What runs now; None where the epoch is over."""
        self._conductor.looks_at(self)
        self._look_again()
        seconds, batches = self._conductor.elsewhere
        stretches = self._measuring.stretches
        if batches - self._mark[1] > 2 and iterator.served == 0:
            stretches.pause()  # a loop over another loader
        step_s = stretches.entered(now, seconds - self._mark[0])
        if step_s is not None:
            self.timeline.step(self.touched_s, now)
        self._conductor.check(self)
        if iterator.ended:
            return None
        ask = self._asking.now()
        if self._is_complete(iterator, ask) or self._conductor.cuts(self):
            self._end_epoch(iterator)
            return None
        if ask.stage == "replay" and self._kept.full:
            self._note_replay(ask, step_s, now)
            ask = self._asking.now()
        return ask

    def _load(self, ask: Ask, iterator: SiteIterator, entered: float) -> Any:
        """A batch of a source; the user's own errors pass."""
        conductor, asked = self._conductor, ask
        while not conductor.off:
            source = self._supply.get(ask, iterator)
            if source is None:
                ask = conductor.guarded(self._asking.now) or asked
                continue
            whole = conductor.guarded(self._begin_batch, source, ask, iterator)
            began = self._begins(source, iterator, entered) if whole else perf_counter()
            cpu_s = thread_time()
            try:
                batch = source.next() if source.workers else self._made_here(source)
            except Exception as error:
                if not self._passed(error, source, iterator):
                    raise
                ask = conductor.guarded(self._asking.now) or asked
                continue
            end = perf_counter()
            conductor.guarded(
                self._came, source, ask, batch, (began, end, thread_time() - cpu_s, whole)
            )
            return batch
        return None

    def _passed(self, error: Exception, source: Source, iterator: SiteIterator) -> bool:
        """Whether the program need not know of what a source raised."""
        if isinstance(error, StopIteration):
            return not self._conductor.guarded(self._at_end, source, iterator)
        if not source.own:
            self._conductor.guarded(self._supply.failed, source, error)
        return not source.own

    def _begins(self, source: Source, iterator: SiteIterator, entered: float) -> float:
        """When the wait for a batch began; the first one of an epoch with the start of workers."""
        if iterator.served or source.began_s >= entered:
            return entered
        return entered - source.opening_s

    def _made_here(self, source: Source) -> Any:
        self._look_into.resume()
        try:
            return source.next()
        finally:
            self._look_into.pause()

    def _begin_batch(self, source: Source, ask: Ask, iterator: SiteIterator) -> bool:
        whole = self._measuring.whole(source, iterator)
        if whole and not iterator.served and self._measured(ask):
            anew = self.made > 1 and self.epochs <= self.made
            self._measuring.begin_whole(source, kept=not anew and (not source.own or source.stays))
        return whole

    def _came(
        self, source: Source, ask: Ask, batch: Any, took: tuple[float, float, float, bool]
    ) -> None:
        began, end, cpu_s, whole = took
        if source.own and source.served == source.served_before + 1:
            self.starts_s.append(source.first_batch_s or end - began)
        measuring = self._measuring
        measuring.note(source, began, end, cpu_s, whole)
        if ask.stage == "replay":
            self._kept.keep(batch, measuring.stretches.batch_bytes)
        elif self._measured(ask):
            measuring.sized(batch)
            window = measuring.window(ask, source, whole=whole, ended=False)
            if window is not None:
                self._observe(ask, window, source)

    def _after(self, iterator: SiteIterator, ask: Ask, entered: float) -> None:
        """A batch is about to be handed out."""
        end = perf_counter()
        conductor = self._conductor
        conductor.spent(end - entered)
        self._mark = conductor.elsewhere
        self.in_epoch = True
        self._touched_s = end = perf_counter()
        self._measuring.stretches.left(end)
        source = self._supply.source
        if source is None or ask.stage in ("replay", "done") or self._asking.due:
            return
        if self._measuring.may_pass_over(source) and conductor.passes_over:
            left = math.inf if iterator.length is None else iterator.length - 1 - iterator.served
            if left > 0:
                self._quick.begin(source, self._look_into.loading, left, end)

    def _measured(self, ask: Ask) -> bool:
        leading = self._conductor.leading
        if leading is None or not leading.leads or ask.stage in ("replay", "done"):
            return False
        return not self._asking.due and self._conductor.measures(self)

    # -- epochs ---------------------------------------------------------------------------

    def _at_end(self, source: Source, iterator: SiteIterator) -> bool:
        """A source is at the end of its data set: whether the program's epoch is, too."""
        passed = source.served - source.served_before
        if self._supply.holder == iterator.number and source.own:
            self._known = passed
        elif iterator.length is not None and passed:
            self._supply.restart(source)
            return False
        self._end_epoch(iterator)
        return True

    def _is_complete(self, iterator: SiteIterator, ask: Ask) -> bool:
        """Whether all batches were handed out; the program's own iterator knows that by itself."""
        if iterator.length is None or iterator.served < iterator.length:
            return False
        replays = ask.stage == "replay" and self._kept.full
        return replays or self._supply.holder != iterator.number or self._supply.changes(ask)

    def _end_epoch(self, iterator: SiteIterator) -> None:
        """The program's epoch is over: at its end, or because the rest is left out."""
        iterator.ended = True
        self.ended += 1
        self._measuring.abandoned = None
        self._close_epoch(iterator)

    def _leave_early(self, iterator: SiteIterator) -> None:
        self._look_again()
        iterator.ended = True
        self._measuring.abandoned = iterator.served or self._measuring.abandoned
        self._close_epoch(iterator)

    def _close_epoch(self, iterator: SiteIterator) -> None:
        self.in_epoch = False
        measuring, source = self._measuring, self._supply.source
        if source is not None:
            ask = self._asking.now()
            measured = self._measured(ask) and source.setting == ask.setting
            if measured and measuring.whole(source, iterator):
                window = measuring.window(ask, source, whole=True, ended=True)
                if window is not None:
                    self._observe(ask, window, source)
            elif measured and source.own and self._supply.from_start:
                measuring.ends_with_epoch(source, iterator.served)
        measuring.stretches.pause()
        if self._supply.source is not None and self._supply.source.own:
            self._supply.drop()

    def _leave_alone(self, iterator: SiteIterator) -> None:
        """Another iterator begins before this one has ended; that one goes on by itself."""
        source = self._supply.source
        if source is not None and source.own and self._supply.holder == iterator.number:
            iterator.go_on_with(source.iterator)
            self._supply.let_go()
        self.in_epoch = False

    # -- sources --------------------------------------------------------------------------

    def counts_first(self) -> bool:
        """Whether the length of an epoch is about to be known, and the own setting has to stay."""
        iterator = self._current() if self._current is not None else None
        if iterator is None or iterator.length is not None or self.epochs > 1:
            return False
        if self._supply.holder != iterator.number and iterator.served:
            return False
        return self._conductor.seconds < _COUNTING_S

    def forbids(self, workers: int) -> str:
        """Why so many workers must not be tried; empty where they may."""
        return self._allowed.forbids(workers)

    # -- measuring ------------------------------------------------------------------------

    def _observe(self, ask: Ask, window: Window, source: Source | None) -> None:
        measuring = self._measuring
        measuring.observed(ask, window, source)
        now = self._asking.observe(window, self._allowed.bounds())
        if self.done:
            self._kept.clear()
            self._supply.drop()
        elif now.setting == ask.setting and not now.fresh and source and not window.whole:
            measuring.take_marks(source)
            measuring.stretches.open_window()
        measuring.stretches.pause()

    def _note_replay(self, ask: Ask, step_s: float | None, now: float) -> None:
        if self._replay is None:
            self._supply.drop()
            self._replay = Replay(self._measuring.stretches.batch_bytes)
        self._replay.step(step_s, now)
        window = self._replay.window(ask, now)
        if window is not None:
            self._observe(ask, window, None)

    def _replayed(self, ask: Ask) -> Any:
        batch = self._kept.again()
        now = perf_counter()
        self._measuring.stretches.replayed(now)
        self.timeline.replay(now)
        return batch

    # -- what is told ---------------------------------------------------------------------

    def record(self, *, whole: bool) -> SiteRecord:
        """Everything seen so far.

        Args:
            whole: With the timeline and the lines, which take longer to write.
        """
        self._look_again()
        return SiteRecord(
            site=self.site,
            loader=self.loader_facts,
            made=self.made,
            epochs=self.epochs,
            ended=self.ended,
            persistent=self.loader_facts.persistent_workers,
            method=self._method,
            starts_s=list(self.starts_s),
            lines=self._look_into.lines(self._supply.source) if whole else [],
            spans=self.timeline.spans if whole else [],
            fingerprint=self._fingerprint,
            machine=self._machine,
            consumer=self._conductor.settings.consumer,
            **self._asking.told(),
            **self._allowed.told(),
            **self._measuring.told(),
        )

    def release(self) -> None:
        """Nothing is measured any more: a trial ends, and the program's own workers go on."""
        self._quick.end()
        self._look_into.close()
        source = self._supply.source
        if source is not None and not source.own:
            with contextlib.suppress(Exception):
                self._supply.drop(0.0)

    def own_of(self, iterator: SiteIterator) -> Any:
        """The program's own iterator that stands where this epoch does; None without one."""
        return self._supply.own_of(iterator)

    def close(self, patience_s: float) -> None:
        """The program ends."""
        self._supply.drop(patience_s)
        self._look_into.close()
