"""Keeps together what is measured of a program's loaders in one process, and ends the program.

Guarantees: an error of Stoker's own ends the watching for good. The reason is written down, and
every iterator of the program goes on by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from stoker.tuning.answer import Site
from stoker.tuning.site_record import SiteRecord, to_json
from stoker.tuning.wording import count_of
from stoker.watch.failed import write_reason
from stoker.watch.iterating import SiteIterator
from stoker.watch.keys import Key, Keys
from stoker.watch.leading import AHEAD, Leading
from stoker.watch.quick import MOST
from stoker.watch.settings import Settings
from stoker.watch.site import WatchedSite
from stoker.watch.turns import Turns
from stoker.workers.methods import context_of

WRITE_EVERY_S, WRITE_SHARE = 1.0, 0.002
"""How often what is known is written, and the most of the program's time that it may take."""
DEFAULT_SECONDS = 120.0
_AHEAD_MOST, _AHEAD_S = 16, 2.0
_END_PATIENCE_S = 2.0

T = TypeVar("T")


class Stop(SystemExit):
    """Ends the program from within, as ``sys.exit(0)`` would: everything is measured."""


class Conductor:
    """See the module; one in each process that loads.

    Args:
        settings: What was asked for.
        open_iterator: PyTorch's ``iter(loader)``, unwatched.
        clock: Gives seconds.

    Attributes:
        off: Whether nothing is watched any more.
        elsewhere: Seconds and batches that all loaders have taken: a site looks what others
            took since its own last batch.
    """

    def __init__(
        self,
        settings: Settings,
        open_iterator: Callable[[Any], Iterator[Any]],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings, self.folder = settings, settings.folder
        self.open_iterator = open_iterator
        self.began_s = clock()
        self.off = False
        self.elsewhere = (0.0, 0)
        self.leading: Leading | None = None
        self._clock = clock
        self._pid = os.getpid()
        self._keys = Keys()
        self._sites: dict[Key, WatchedSite] = {}
        self._made: dict[Key, int] = {}
        self._unseen: dict[Key, int] = {}
        self.turns = Turns(self._sites.values, lambda: len(self._unseen), clock)
        self._first_s: float | None = None
        self._written_s = 0.0
        self._write_s = WRITE_EVERY_S
        self._stopping: tuple[str, WatchedSite, int] | None = None
        self._lock = threading.RLock()

    # -- what the program does ------------------------------------------------------------

    def made(self, site: Site, loader: Any) -> Key:
        """The program has made a loader."""
        with self._lock:
            key = self._keys.key(site, loader)
            self._made[key] = self._made.get(key, 0) + 1
            if key in self._sites:
                self._sites[key].made += 1
            else:
                self._unseen[key] = id(loader.dataset)
        return key

    def iterate(self, key: Key, site: Site, loader: Any) -> SiteIterator:
        """The program calls ``iter(loader)``; what comes back is to be started."""
        with self._lock:
            if self.leading is None:
                self.leading = Leading(self.folder)
            data = id(loader.dataset)
            self._unseen = {k: seen for k, seen in self._unseen.items() if seen != data}
            watched = self._sites.get(key)
            if watched is None:
                name = f"{site.file}:{site.line}:{len(self._sites)}"
                watched = self._sites[key] = WatchedSite(name, site, loader, self)
                watched.made = self._made.get(key, 1)
        return watched.begin(loader)

    # -- what fails -----------------------------------------------------------------------

    def guarded(self, act: Callable[..., T], *given: Any) -> T | None:
        """Does something of Stoker's own; None where it failed, and nothing is watched then."""
        try:
            return act(*given)
        except Exception as error:
            self.fails(error)
            return None

    def give_up(self, error: Exception, iterator: SiteIterator) -> Any:
        """Nothing is watched any more; the next batch of an iterator that goes on by itself.

        Raises:
            StopIteration: Its epoch is over.
            Exception: What the user's code raised.
        """
        self.fails(error)
        return iterator.alone()

    def fails(self, error: Exception) -> None:
        """Stoker itself has failed: nothing is watched any more."""
        if self.off:
            return
        self.off = True
        write_reason(self.folder, error)
        for site in list(self._sites.values()):
            with contextlib.suppress(Exception):
                site.release()

    def let_alone(self) -> None:
        """This is a copy of the process that measures: nothing is watched here."""
        self.off = True
        for site in list(self._sites.values()):
            site.look_again()

    @property
    def seconds(self) -> float:
        """Since the first batch was asked for."""
        return self._clock() - self._first_s if self._first_s is not None else 0.0

    # -- what sites ask -------------------------------------------------------------------

    def measures(self, site: WatchedSite) -> bool:
        """Whether this site's settings may be tried now; what was found is kept up."""
        return site.done or self.turns.measured is site

    def check(self, site: WatchedSite) -> None:
        """Before each batch.

        Raises:
            Stop: It is enough.
        """
        if self._first_s is None:
            self._first_s = self._clock()
        self.turns.comes(site)
        why = self._why_stop(site)
        if why:
            self._mark_stopped()
            raise Stop(0)

    def cuts(self, site: WatchedSite) -> bool:
        """Whether the rest of this epoch is left out, so that other loaders get their turn."""
        leading = self.leading
        if leading is None:
            return False
        if not leading.leads:
            return leading.is_cut(site.name, site.total)
        if site.cut_at is not None:
            if site.total < site.cut_at:
                return False
            site.cut_at = None
            return True
        if not self.turns.cut(site):
            return False
        if not leading.together:
            return True
        site.cut_at = site.total + self._ahead(site)
        leading.cuts(site.name, site.cut_at)
        return False

    def looks_at(self, site: WatchedSite) -> None:
        """This site is looked at: what others hand out in between is to be known exactly."""
        if len(self._sites) > 1:
            for other in list(self._sites.values()):
                if other is not site:
                    other.look_again()

    @property
    def passes_over(self) -> bool:
        """Whether single batches may go unseen: nobody waits for this process at one of them."""
        leading, steps = self.leading, self.settings.steps
        few = steps is not None and steps - self.elsewhere[1] <= MOST
        return leading is not None and leading.leads and not leading.together and not few

    def spent(self, seconds: float, batches: int = 1) -> None:
        """A site has handed out batches."""
        self.elsewhere = (self.elsewhere[0] + seconds, self.elsewhere[1] + batches)
        if self._clock() - self._written_s >= self._write_s:
            self.write()

    def method_of(self, loader: Any) -> str:
        """How processes are started for a loader."""
        return str(context_of(loader).get_start_method())

    # -- the end --------------------------------------------------------------------------

    def write(self, *, whole: bool = False) -> None:
        """Writes what is known for the command to read; `whole` as in `WatchedSite.record`."""
        began = self._clock()
        if self._pid != os.getpid():
            return
        records = [self._record(site, whole) for site in list(self._sites.values())]
        text = to_json(
            records,
            stopping=self._stopping[0] if self._stopping else "",
            leads=self.leading is None or self.leading.leads,
            seconds=began - self.began_s,
        )
        target = Path(self.folder) / f"sites-{self._pid}.json"
        part = target.with_suffix(".part")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, target)
        except OSError:  # the command has gone, or the disk is full
            pass
        self._written_s = self._clock()
        self._write_s = max(WRITE_EVERY_S, (self._written_s - began) / WRITE_SHARE)

    def close(self) -> None:
        """The program ends: workers of a trial are not left to the interpreter's end."""
        for site in list(self._sites.values()):
            self.guarded(site.close, _END_PATIENCE_S)
        if self._sites:
            self.guarded(lambda: self.write(whole=True))

    def _mark_stopped(self) -> None:
        """Tells the command that the program should end now."""
        stopped = Path(self.folder) / "stopped"
        with contextlib.suppress(OSError):
            if not stopped.exists():
                self.write(whole=True)
                stopped.touch()

    def _record(self, site: WatchedSite, whole: bool) -> SiteRecord:
        record = site.record(whole=whole)
        record.live = site is self.turns.measured
        record.beside = site.beside = self._beside(site)
        if self.leading is not None:
            record.ranks = 1 + self.leading.followers
        return record

    def _beside(self, site: WatchedSite) -> list[int]:
        """Workers of the other loaders in whose epochs this one's batches fell; never fewer."""
        others = [each for each in list(self._sites.values()) if each is not site]
        now = [each._own for each in others if each.in_epoch and each._own]
        return max(now if site.in_epoch else [], site.beside, key=sum)

    def _why_stop(self, site: WatchedSite) -> str:
        """Why the program stops now; empty where it does not."""
        leading = self.leading
        if leading is None:
            return ""
        if not leading.leads:
            leading.follow()
            return leading.told_to_stop(site.name, site.total)
        if self._stopping is None:
            why = self._enough(site)
            if not why:
                return ""
            ahead = self._ahead(site) if leading.together else 0
            self._stopping = why, site, site.total + ahead
            leading.stops(site.name, site.total + ahead, why)
        why, where, at = self._stopping
        return why if where is not site or site.total >= at else ""

    def _ahead(self, site: WatchedSite) -> int:
        """Batches until all processes end together; those between two waits may be apart."""
        return max(AHEAD, min(_AHEAD_MOST, int(_AHEAD_S / max(1e-6, site.step_s))))

    def _enough(self, site: WatchedSite) -> str:
        """Why the program is to be stopped; empty where it is not."""
        settings, seconds = self.settings, self.seconds
        if seconds >= (settings.seconds or DEFAULT_SECONDS):
            self._end_search()
            return f"after {seconds:.0f} s of loading"
        if settings.steps is not None and self.elsewhere[1] >= settings.steps:
            self._end_search()
            return f"after {count_of(self.elsewhere[1], 'step')}"
        why = self.turns.enough(site)
        if why:
            self._end_search()
        return why

    def _end_search(self) -> None:
        for each in self._sites.values():
            each.stop()
