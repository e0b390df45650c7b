"""One line of a program that makes a loader: hands out its batches, and measures settings.

    iter(loader) ──▶ SiteIterator.next ──▶ Source (own, or another setting) ──▶ the program
                          │                    ▲
                          ▼                    │ ask
                      Stretches ── window ──▶ Prober

The program gets real batches of its own loader all the time, and as many in an epoch as it
expects. While settings are tried they come from the data set's beginning again and again, in an
order of their own: a program that is measured does not train.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from stoker.feed.meter import WAIT_BOUNDS_S
from stoker.feed.window import Window
from stoker.host.identity import machine_digest
from stoker.tuning.answer import Site
from stoker.tuning.decision import Bounds
from stoker.tuning.fingerprint import fingerprint
from stoker.tuning.loader_facts import facts_of, is_iterable, length_of
from stoker.tuning.probing import Ask, Prober, Setting
from stoker.tuning.result import Failure
from stoker.tuning.site_record import Seen, SiteRecord
from stoker.tuning.target import summary_of
from stoker.tuning.wording import workers as workers_of
from stoker.watch.bounds import Limits
from stoker.watch.kept import Kept, size_of
from stoker.watch.leading import AHEAD
from stoker.watch.looking import SiteLook, shares
from stoker.watch.makings import Makings
from stoker.watch.sources import Source
from stoker.watch.stretches import Stretches
from stoker.watch.timeline import Timeline

if TYPE_CHECKING:
    from stoker.watch.conductor import Conductor

_SHORT_EPOCH = 3
"""An epoch of fewer times as many batches as workers take in advance has no steady state: it is
measured as a whole, with the start of the workers."""
_WAITED_S = 0.001
_UNSHARED = "how an iterable data set shares itself out (each worker would read all of it)"
_UNSERVED = "it has a worker_init_fn, which runs in workers only"


class SiteIterator(_BaseDataLoaderIter):
    """What the program iterates. Looks like PyTorch's iterator."""

    def __init__(self, owner: WatchedSite, loader: Any) -> None:
        self._owner, self._watched_loader = owner, loader
        self.length = None if is_iterable(loader) else length_of(loader)
        self.served = 0
        self.ended = False
        self.began_s = perf_counter()
        self._own_source: Source | None = None

    def __iter__(self) -> SiteIterator:
        return self

    def __next__(self) -> Any:
        return self._owner.next(self)

    def __len__(self) -> int:
        return len(self._watched_loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_owner":
            raise AttributeError(name)
        return getattr(self._owner.iterator, name)


class WatchedSite:
    """See the module.

    Args:
        name: The same in every process of the program.
        site: The line.
        loader: The first loader that it made.
        conductor: Says which site is measured, and when it is enough.

    Attributes:
        total: Batches handed out.
        touched_s: When the last of them was.
        cut_at: The batch before which this epoch will be ended; None where it will not.
    """

    def __init__(self, name: str, site: Site, loader: Any, conductor: Conductor) -> None:
        self.name, self.site = name, site
        self.made = self.epochs = self.ended = self.total = 0
        self.cut_at: int | None = None
        self.loader_facts = facts_of(loader)
        self.stretches = Stretches()
        self.timeline = Timeline(conductor.began_s, keep_all=conductor.settings.trace)
        self.seen: list[Seen] = []
        self.starts_s: list[float] = []
        self.failures: list[Failure] = []
        self.touched_s = 0.0
        self._conductor = conductor
        self._look_into = SiteLook(conductor.folder)
        self._own = 0 if self.loader_facts.automatic else self.loader_facts.num_workers
        self.prober = Prober(self._own, counts=conductor.settings.counts)
        self._fingerprint, self._machine = fingerprint(loader), machine_digest()
        self._method = conductor.method_of(loader)
        self._limits = Limits(self._method)
        self._least, self._most = self._bounds_of(loader)
        self._current: weakref.ref[SiteIterator] | None = None
        self._source: Source | None = None
        self._source_loader: Any = None
        self._makings: Makings | None = None
        self._kept = Kept()
        self._steady_at = 0
        self._replays: list[float] = []
        self._mark = (0.0, 0)
        self._order_s = 0.0
        self._waits: list[tuple[int, float, float]] = []
        self._fresh_for: tuple[str, int, Setting] | None = None
        self._now: Ask | None = None
        self._due: tuple[int, Ask] | None = None

    # -- what the program does ------------------------------------------------------------

    def begin(self, loader: Any) -> SiteIterator:
        """The program calls ``iter(loader)``."""
        self.epochs += 1
        iterator = SiteIterator(self, loader)
        self._current = weakref.ref(iterator)
        self.stretches.pause()
        source = self._source
        if source is not None and (
            source.own or self._source_loader is not loader or self._whole_epochs(iterator)
        ):
            self._drop_source()
        elif source is not None:
            self._steady_at = source.served + source.outstanding + source.workers
            self._not_steady()
        self._source_loader = loader
        return iterator

    def next(self, iterator: SiteIterator) -> Any:
        """The program asks for a batch; blocks."""
        now = perf_counter()
        conductor = self._conductor
        self._note_step(now)
        conductor.check(self)
        if iterator.ended or conductor.cuts(self) or self._is_complete(iterator):
            self._leave(iterator)
            raise StopIteration
        ask = self._ask()
        batch = self._replayed(now) if ask.stage == "replay" else self._batch(iterator, ask, now)
        iterator.served += 1
        self.total += 1
        self.touched_s = end = perf_counter()
        conductor.spent(end - now)
        self._mark = conductor.elsewhere
        return batch

    @property
    def in_epoch(self) -> bool:
        """Whether the program is in the middle of an epoch of this site."""
        current = self._current() if self._current else None
        return current is not None and not current.ended and current.served > 0

    @property
    def done(self) -> bool:
        """Whether its answer is found."""
        return self.prober.stage == "done"

    @property
    def iterator(self) -> Any:
        """What is iterated underneath."""
        return self._source.iterator if self._source is not None else iter(())

    # -- batches --------------------------------------------------------------------------

    def _batch(self, iterator: SiteIterator, ask: Ask, entered: float) -> Any:
        while True:
            source = self._source_for(ask, iterator)
            whole = self._whole_epochs(iterator)
            opening = source.served == source.served_before
            began, cpu_s = (entered if whole else perf_counter()), thread_time()
            try:
                batch = self._fetch(source)
            except StopIteration:
                if self._ends_epoch(source, iterator) or opening:
                    self._leave(iterator)
                    raise
                source.restart()
                self._steady_at = source.served + source.workers
                continue
            except Exception as error:
                if source.own:
                    raise
                self._failed(source, error)
                ask = self._ask()
                continue
            end = perf_counter()
            self._note(source, began, end, thread_time() - cpu_s, opening and not whole)
            self._kept.keep(batch, self.stretches.batch_bytes)
            self._look(ask, source, iterator, batch)
            return batch

    def _fetch(self, source: Source) -> Any:
        if source.workers:
            return source.next()
        self._look_into.resume()
        try:
            return source.next()
        finally:
            self._look_into.pause()

    def _note(self, source: Source, began: float, end: float, cpu_s: float, opening: bool) -> None:
        if opening and source.own:
            self.starts_s.append(source.first_batch_s or end - began)
        self.stretches.counting = source.own and not opening
        self.timeline.consumer("load" if not source.workers else "wait", began, end, source)
        if source.workers:
            self.stretches.received(end - began, cpu_s, end, opening=opening)
            if end - began > _WAITED_S:
                self._waits.append((source.served - 1, began, end))
        else:
            self.stretches.loaded(end - began, cpu_s, end)

    def _replayed(self, now: float) -> Any:
        """A batch that is ready: nothing that a loader can do is faster."""
        self._drop_source()
        self._replays.append(now)
        batch = self._kept.again() if self._kept else None
        ask = self.prober.ask
        count, seconds = len(self._replays) - 1, now - self._replays[0]
        if count >= ask.batches and seconds >= ask.seconds and count > 0:
            window = Window(
                ask.setting.workers,
                count,
                seconds,
                0.0,
                seconds,
                0.0,
                count,
                1e-6,
                1e-6,
                None,
                0.0,
                self.stretches.batch_bytes,
            )
            self._replays = []
            self._observe(ask, window, None, whole=False)
        self.stretches.replayed(now)
        self.timeline.replay(now)
        return batch

    # -- sources --------------------------------------------------------------------------

    def _ask(self) -> Ask:
        """What is measured now; the same in all processes of the program at this batch."""
        leading = self._conductor.leading
        own = Ask("own", Setting(self._own), 10**9, 1e9)
        if leading is None or not leading.leads:
            told = leading.ask_for(self.name, self.total) if leading else None
            return told or own
        wanted = self.prober.ask if self._conductor.measures(self) else own
        if wanted.stage == "replay" and not self._kept:
            wanted = replace(wanted, stage="own", setting=Setting(self._own))
        if self._now is None or _alike(wanted, self._now) or not leading.together:
            self._now, self._due = wanted, None
        elif self._due is None:
            self._due = self.total + AHEAD, wanted
            leading.asks(self.name, self.total + AHEAD, wanted)
        elif self.total >= self._due[0]:
            self._now, self._due = self._due[1], None
        return self._now

    def _source_for(self, ask: Ask, iterator: SiteIterator) -> Source:
        source = self._source
        if source is not None and source.setting != ask.setting:
            self._drop_source()
            source = None
        fresh_for = (ask.stage, ask.round, ask.setting)
        if source is not None and ask.fresh and self._fresh_for != fresh_for:
            self._drop_source()
            source = None
        self._fresh_for = fresh_for
        return source if source is not None else self._open_source(ask, iterator)

    def _open_source(self, ask: Ask, iterator: SiteIterator) -> Source:
        loader = iterator._watched_loader
        plain = ask.setting == Setting(self._own) and not self.loader_facts.automatic
        source = Source(
            loader,
            ask.setting,
            plain,
            self._conductor.open_iterator,
            self._conductor.settings.timeout_s,
        )
        self._source, self._source_loader = source, loader
        iterator._own_source = source if plain and iterator.served == 0 else None
        self._makings = Makings(source, self._conductor.folder) if source.workers else None
        self._order_s = self._makings.order_s if self._makings else 0.0
        self._steady_at = max(1, source.workers)
        self._not_steady()
        return source

    def _drop_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            pids = source.pids
            source.close()
            self._look_into.read(pids, last=not source.own)
        if self._makings is not None:
            self._makings.close()
            self._makings = None
        self._not_steady()

    def _ends_epoch(self, source: Source, iterator: SiteIterator) -> bool:
        """Whether the program's epoch ends together with a source's."""
        return iterator.length is None or iterator._own_source is source

    def _is_complete(self, iterator: SiteIterator) -> bool:
        if iterator.length is None or iterator._own_source is self._source is not None:
            return False
        return iterator.served >= iterator.length

    def _leave(self, iterator: SiteIterator) -> None:
        if not iterator.ended:
            iterator.ended = True
            self.ended += 1
        if self._source is not None and self._whole_epochs(iterator):
            self._look(self._ask(), self._source, iterator, None)
        self.stretches.pause()
        if self._source is not None and self._source.own:
            self._drop_source()

    def _whole_epochs(self, iterator: SiteIterator) -> bool:
        """Whether epochs are too short for a steady state, so that they are measured whole."""
        source = self._source
        if iterator.length is None or source is None or not source.workers:
            return False
        return iterator.length < _SHORT_EPOCH * source.outstanding

    # -- measuring ------------------------------------------------------------------------

    def _note_step(self, now: float) -> None:
        seconds, batches = self._conductor.elsewhere
        if batches - self._mark[1] > 2:
            self.stretches.pause()  # a loop over another loader
        left = self.touched_s
        step_s = self.stretches.entered(now, seconds - self._mark[0])
        if step_s is not None:
            self.timeline.step(left, now)

    def _not_steady(self) -> None:
        self.stretches.spoil_window()
        self._waits.clear()

    def _look(self, ask: Ask, source: Source, iterator: SiteIterator, batch: Any) -> None:
        """Opens a window once the setting is steady, and closes it when it is long enough."""
        leading = self._conductor.leading
        if leading is None or not leading.leads or self._due is not None or ask.stage == "done":
            return
        if not self._conductor.measures(self):
            return
        stretches, whole = self.stretches, self._whole_epochs(iterator)
        if not stretches.window_is_open:
            if whole and source.served > 1:
                return
            if whole or source.served >= self._steady_at:
                self._take_marks(source)
                if batch is not None:
                    size_bytes = size_of(batch)
                    stretches.batch_bytes = max(stretches.batch_bytes, size_bytes)
                stretches.open_window()
            return
        batches, seconds = stretches.so_far()
        if batches < ask.batches or seconds < ask.seconds or (whole and not iterator.ended):
            return
        self._take_marks(source)
        window = _with_makings(stretches.close_window(source.workers))
        self._observe(ask, window, source, whole=whole)
        self._waits.clear()
        if self._makings is not None:
            self._take_marks(source)
        if self.prober.ask.setting == ask.setting and not self.prober.ask.fresh:
            stretches.open_window()

    def _take_marks(self, source: Source) -> None:
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

    def _observe(self, ask: Ask, window: Window, source: Source | None, *, whole: bool) -> None:
        memory_bytes = None
        if source is not None and not any(each.setting == ask.setting for each in self.seen):
            memory_bytes = source.memory_bytes() if source.workers else 0
        first_batch_s = source.first_batch_s if source is not None else None
        self.seen.append(
            Seen(ask.setting, ask.stage, ask.round, window, first_batch_s, memory_bytes, whole)
        )
        self.prober.observe(window, self._bounds())
        if self.done or self.prober.stage == "replay":
            self._drop_source()
        if self.done:
            self._kept.clear()
        self.stretches.pause()

    def _failed(self, source: Source, error: Exception) -> None:
        """A setting that was tried does not work: the program must not notice."""
        count = source.workers
        failure = Failure(
            kind="raised",
            num_workers=count,
            what=summary_of(error),
            doing=f"trying {workers_of(count)} in the running program",
        )
        self.failures.append(failure)
        self._drop_source()
        self.stretches.pause()
        self.prober.failed(count, "an error of the loader")

    # -- what may be used -----------------------------------------------------------------

    def _bounds_of(self, loader: Any) -> tuple[int, tuple[int, str] | None]:
        if getattr(loader, "worker_init_fn", None) is not None and self._own:
            return 1, None
        return 0, None

    def _bounds(self) -> Bounds:
        most: tuple[int, str] | None = self._most
        if self.loader_facts.iterable and not shares(self._conductor.folder):
            most = max(1, self._own), _UNSHARED
        if most is None:
            return self._limits.bounds(least=self._least)
        return self._limits.bounds(least=self._least, most=most[0], why=most[1])

    # -- what is told ---------------------------------------------------------------------

    def record(self, *, whole: bool) -> SiteRecord:
        """Everything seen so far.

        Args:
            whole: With the timeline and the lines, which take longer to write.
        """
        stretches, bounds = self.stretches, self._bounds()
        return SiteRecord(
            site=self.site,
            loader=self.loader_facts,
            made=self.made,
            epochs=self.epochs,
            ended=self.ended,
            batches=stretches.sums.batches,
            seconds=stretches.sums.seconds,
            own=self._own,
            persistent=self.loader_facts.persistent_workers,
            method=self._method,
            chosen=self.prober.chosen,
            certain=self.done and not self.prober.gave_up,
            reason=self.prober.reason,
            stage=self.prober.stage,
            seen=self.seen,
            starts_s=self.starts_s[-200:],
            waits=list(zip(WAIT_BOUNDS_S, stretches.waits, strict=True)),
            waits_s=list(stretches.waits_s),
            lines=self._lines() if whole else [],
            spans=self.timeline.spans if whole else [],
            failures=self.failures,
            cpus=(bounds.cpus, bounds.cpus_source),
            workers_most=(bounds.workers, bounds.workers_source),
            batch_bytes=stretches.batch_bytes,
            fingerprint=self._fingerprint,
            machine=self._machine,
            shards=shares(self._conductor.folder) if self.loader_facts.iterable else None,
            consumer=self._conductor.settings.consumer,
        )

    def close(self) -> None:
        """The program ends."""
        self._drop_source()
        self._look_into.close()

    def _lines(self) -> list[Any]:
        if self._source is not None and self._source.workers:
            self._look_into.read(self._source.pids, last=False)
        return self._look_into.counts()


def _alike(one: Ask, other: Ask) -> bool:
    """Whether two asks want the same to run."""
    same = one.stage == other.stage or not one.fresh
    return same and one.setting == other.setting and one.round == other.round


def _with_makings(window: Window) -> Window:
    """A window of workers that told nothing: taken to be busy all the time."""
    if window.made or not window.batches:
        return window
    busy_s = max(window.workers, 1) * window.seconds
    return replace(window, made=window.batches, busy_s=busy_s, cpu_s=busy_s)
