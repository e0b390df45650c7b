"""Which loader of a program is measured when, and when it is enough.

One loader at a time: another one that runs meanwhile keeps its own setting. Where a loader has
its answer and others have not had their turn, the rest of its epoch is left out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.multiprocessing

from stoker.tuning.answer import Site
from stoker.tuning.site_record import SiteRecord, to_json
from stoker.watch.leading import AHEAD, Leading
from stoker.watch.settings import Settings
from stoker.watch.site import SiteIterator, WatchedSite

WRITE_EVERY_S = 1.0
IDLE_S = 2.0
"""A loader that was not asked for so long does not run beside the one that is."""
DEFAULT_SECONDS = 120.0


class Stop(SystemExit):
    """Ends the program from within, as ``sys.exit(0)`` would: everything is measured."""


Key = tuple[str, int, str, str, int | None, int | None]


class Conductor:
    """See the module; one in each process that loads.

    Args:
        settings: What was asked for.
        open_iterator: PyTorch's ``iter(loader)``, unwatched.

    Attributes:
        elsewhere: Seconds and batches that all loaders have taken: a site looks what others
            took since its own last batch.
    """

    def __init__(self, settings: Settings, open_iterator: Callable[[Any], Iterator[Any]]) -> None:
        self.settings, self.folder = settings, settings.folder
        self.open_iterator = open_iterator
        self.began_s = time.perf_counter()
        self.elsewhere = (0.0, 0)
        self._pid = os.getpid()
        self._sites: dict[Key, WatchedSite] = {}
        self._made: dict[Key, int] = {}
        self._unseen: dict[Key, int] = {}
        self._measuring: WatchedSite | None = None
        self._progress = -1
        self._first_s: float | None = None
        self._written_s = 0.0
        self._stopping: tuple[str, WatchedSite, int] | None = None
        self._lock = threading.RLock()
        self.leading: Leading | None = None

    # -- what the program does ------------------------------------------------------------

    def made(self, site: Site, loader: Any) -> Key:
        """The program has made a loader."""
        key = key_of(site, loader)
        with self._lock:
            self._made[key] = self._made.get(key, 0) + 1
            if key in self._sites:
                self._sites[key].made += 1
            else:
                self._unseen[key] = id(loader.dataset)
        return key

    def iterate(self, key: Key, site: Site, loader: Any) -> SiteIterator:
        """The program calls ``iter(loader)``."""
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

    # -- what sites ask -------------------------------------------------------------------

    def measures(self, site: WatchedSite) -> bool:
        """Whether this site's settings may be tried now; what was found is kept up."""
        return site.done or self._measuring is site

    def check(self, site: WatchedSite) -> None:
        """Before each batch.

        Raises:
            Stop: It is enough.
        """
        assert self.leading is not None
        if self._first_s is None:
            self._first_s = time.perf_counter()
        measuring = self._measuring
        free = measuring is None or measuring.done or not measuring.in_epoch
        if free and not site.done:
            self._measuring = site
        why = self._why_stop(site)
        if why:
            self.write(whole=True)
            self._mark_stopped()
            raise Stop(0)

    def cuts(self, site: WatchedSite) -> bool:
        """Whether the rest of this epoch is left out, so that other loaders get their turn."""
        assert self.leading is not None
        if not self.leading.leads:
            return self.leading.is_cut(site.name, site.total)
        if site.cut_at is not None:
            if site.total < site.cut_at:
                return False
            site.cut_at = None
            return True
        if not (site.done and site.in_epoch and self._others_wait()):
            return False
        progress = self._progress_of_others()
        if progress == self._progress:
            return False  # they had a turn, and did not come forward
        self._progress = progress
        if not self.leading.together:
            return True
        site.cut_at = site.total + AHEAD
        self.leading.cuts(site.name, site.cut_at)
        return False

    def spent(self, seconds: float) -> None:
        """A site has handed out a batch."""
        self.elsewhere = (self.elsewhere[0] + seconds, self.elsewhere[1] + 1)
        if time.perf_counter() - self._written_s >= WRITE_EVERY_S:
            self.write()

    def method_of(self, loader: Any) -> str:
        """How processes are started for a loader."""
        context = loader.multiprocessing_context or torch.multiprocessing
        return str(context.get_start_method())

    # -- the end --------------------------------------------------------------------------

    def write(self, *, whole: bool = False) -> None:
        """Writes what is known for the command to read; `whole` as in `WatchedSite.record`."""
        self._written_s = time.perf_counter()
        if self._pid != os.getpid():
            return
        records = [self._record(site, whole) for site in list(self._sites.values())]
        text = to_json(
            records,
            stopping=self._stopping[0] if self._stopping else "",
            leads=self.leading is None or self.leading.leads,
            seconds=self._written_s - self.began_s,
        )
        target = Path(self.folder) / f"sites-{self._pid}.json"
        part = target.with_suffix(".part")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, target)
        except OSError:  # the command has gone, or the disk is full
            pass

    def close(self) -> None:
        """The program ends: workers of a trial are not left to the interpreter's end."""
        for site in list(self._sites.values()):
            site.close()
        self.write(whole=True)

    def _mark_stopped(self) -> None:
        """Tells the command that the program should end now."""
        with contextlib.suppress(OSError):
            (Path(self.folder) / "stopped").touch()

    def _record(self, site: WatchedSite, whole: bool) -> SiteRecord:
        record = site.record(whole=whole)
        record.live = site is self._measuring
        if self.leading is not None:
            record.ranks = 1 + self.leading.followers
        return record

    def _why_stop(self, site: WatchedSite) -> str:
        """Why the program stops now; empty where it does not."""
        assert self.leading is not None
        if not self.leading.leads:
            self.leading.follow()
            return self.leading.told_to_stop(site.name, site.total)
        if self._stopping is None:
            why = self._enough(site)
            if not why:
                return ""
            ahead = AHEAD if self.leading.together else 0
            self._stopping = why, site, site.total + ahead
            self.leading.stops(site.name, site.total + ahead, why)
        why, where, at = self._stopping
        return why if where is not site or site.total >= at else ""

    def _enough(self, site: WatchedSite) -> str:
        """Why the program is to be stopped; empty where it is not."""
        settings, now = self.settings, time.perf_counter()
        seconds = now - (self._first_s or now)
        if seconds >= (settings.seconds or DEFAULT_SECONDS):
            self._end_search()
            return f"after {seconds:.0f} seconds"
        if settings.steps is not None and self.elsewhere[1] >= settings.steps:
            self._end_search()
            return f"after {self.elsewhere[1]:,} steps"
        if not all(each.done for each in self._sites.values()):
            waits = self._others_wait() and site.done and site.in_epoch
            if not waits or self._progress_of_others() != self._progress or site.cut_at:
                return ""
            self._end_search()
            return "every loader that comes up has an answer"
        if self._unseen and (self._progress_of_others() != self._progress or site.cut_at):
            return ""
        if self._unseen and not site.in_epoch:
            return ""
        return "every loader has an answer"

    def _others_wait(self) -> bool:
        """Whether there are loaders without an answer, and none of them runs now."""
        now = time.perf_counter()
        undone = [each for each in self._sites.values() if not each.done]
        if any(now - each.touched_s <= IDLE_S for each in undone):
            return False
        return bool(undone or self._unseen)

    def _progress_of_others(self) -> int:
        """Grows as loaders without an answer come forward."""
        return sum(each.total for each in self._sites.values() if not each.done) + len(self._sites)

    def _end_search(self) -> None:
        for each in self._sites.values():
            each.prober.stop()


def key_of(site: Site, loader: Any) -> Key:
    """Tells loaders apart that one line makes for several data sets."""
    kind = type(loader.dataset)
    try:
        length: int | None = len(loader.dataset)
    except Exception:
        length = None
    name = f"{kind.__module__}.{kind.__qualname__}"
    return site.file, site.line, site.library, name, length, loader.batch_size
