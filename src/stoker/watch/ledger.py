"""Keeps account of the loaders that are served in this process, and writes it where the
command that started the program will look.

Guarantees: bounded by the number of lines that make loaders, not by the number of loaders.
What is written is whole, or the one before. Nothing here ever fails the program.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import util
from pathlib import Path
from typing import Any

import psutil

from stoker.host.forks import at_fork
from stoker.host.interrupts import held_back
from stoker.tuning.answer import Site
from stoker.tuning.statistics import Statistics
from stoker.watch.served import Served, encode, together
from stoker.watch.settings import Settings

WRITE_EVERY_S = 1.0
PART = "part-{}.json"
_MOST_LINES = 1000
_MOST_GONE = 20

Key = tuple[Site, str]
Look = Callable[[], Statistics]


@dataclass
class _Entry:
    """A loader that may still make batches.

    Attributes:
        key: Its line.
        asked: The program's own number of workers.
        look: Tells its numbers.
        hide: Has them shown to nobody any more.
        loader: The loader itself; None where it is gone.
        iterator: Its latest iterator, which may outlive it; None where there is none any more.
        begun: Whether there ever was one.
    """

    key: Key
    asked: int
    look: Look
    hide: Callable[[], None]
    loader: Callable[[], object]
    iterator: Callable[[], object] = lambda: None
    begun: bool = False

    def line(self) -> Served:
        """Its numbers now."""
        if not self.begun:  # looking costs a millisecond the first time
            return Served(self.key[0], (self.asked,))
        return _line(self.key[0], self.asked, self.look())


class Ledger:
    """See the module. Any thread may call it.

    Args:
        settings: Of this run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._over = False
        self.forget()
        at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin anew."""
        self._lock = threading.RLock()
        self._at_end: Any = None
        self._past: dict[Key, Served] = {}
        self._live: dict[int, _Entry] = {}
        self._gone: deque[int] = deque()
        self._next = 0
        self._write_at = 0.0

    def serves(
        self, loader: object, site: Site, asked: int, look: Look, hide: Callable[[], None]
    ) -> int:
        """A loader was made.

        Args:
            loader: The loader; when it is gone, its numbers are kept.
            site: The line that made it.
            asked: The program's own number of workers.
            look: Tells its numbers; must not keep the loader alive.
            hide: Called when the loader and its iterator are gone, which may be anywhere.

        Returns:
            What it is known by here.
        """
        with self._lock:
            number = self._next
            self._next += 1
            entry = _Entry((site, ""), asked, look, hide, weakref.ref(loader))
            self._live[number] = entry
        weakref.finalize(loader, self._left, number).atexit = False
        self.write_now_and_then()
        return number

    def iterates(self, number: int, iterator: object) -> None:
        """A loader has begun an epoch. It may be dropped now, and its iterator go on."""
        entry = self._live.get(number)
        if entry is not None:
            entry.iterator, entry.begun = weakref.ref(iterator), True
            weakref.finalize(iterator, self._left, number).atexit = False
        self.write_now_and_then()

    def _left(self, number: int) -> None:
        """A loader or its iterator is gone. This is a finalizer, so it takes no lock."""
        entry = self._live.get(number)
        if entry is not None and entry.loader() is None and entry.iterator() is None:
            entry.hide()
            self._gone.append(number)

    def falls_back(self, site: Site, asked: int, why: str, number: int | None = None) -> None:
        """A loader was left to PyTorch's own class; `number` where it was served until now."""
        with self._lock:
            self._live.pop(-1 if number is None else number, None)
        self._add((site, why), Served(site, (asked,), fallback=why, workers=(asked, asked)))
        self.write_now_and_then()

    def write_now_and_then(self) -> None:
        """Write, but not more often than every second."""
        now = time.monotonic()
        if now >= self._write_at:
            self._write_at = now + WRITE_EVERY_S
            self.write()
        elif len(self._gone) > _MOST_GONE:
            with contextlib.suppress(Exception):
                self._settle()

    def write(self) -> None:
        """Write what is known now; silently not, where that can't be done."""
        try:
            self._at_the_end_too()
            self._settle()
            lines = self._lines()
            if lines:
                path = self._folder / PART.format(os.getpid())
                fresh = path.with_suffix(".new")
                fresh.write_text(encode(lines), encoding="utf-8")
                os.replace(fresh, path)
        except Exception:
            self._write_at = time.monotonic() + 60 * WRITE_EVERY_S  # the run may be over

    def _at_the_end_too(self) -> None:
        """A process of multiprocessing's ends with its finalizers, and with no others."""
        if not self._over and (self._at_end is None or not self._at_end.still_active()):
            self._at_end = util.Finalize(None, self._end, exitpriority=100)

    def _end(self) -> None:
        self._over = True
        with held_back(ending=True):
            self.write()
            if self._settings.command and not psutil.pid_exists(self._settings.command):
                shutil.rmtree(self._folder, ignore_errors=True)  # at once, and not by the next run

    def _lines(self) -> list[Served]:
        with self._lock:
            found = dict(self._past)
            live = list(self._live.values())
        for entry in live:
            line, key = entry.line(), entry.key
            found[key] = together(found[key], line) if key in found else line
        return [replace(line, processes=1) for line in found.values()]

    def _settle(self) -> None:
        """Keep the numbers of loaders that are gone."""
        with self._lock:
            for number in [self._gone.popleft() for _ in range(len(self._gone))]:
                entry = self._live.pop(number, None)
                if entry is not None:
                    self._add(entry.key, entry.line())

    def _add(self, key: Key, line: Served) -> None:
        with self._lock:
            if key in self._past:
                line = together(self._past[key], line)
            elif len(self._past) >= _MOST_LINES:
                return
            self._past[key] = replace(line, processes=1)


def _line(site: Site, asked: int, told: Statistics) -> Served:
    """One loader's numbers."""
    workers, reason = asked, ""
    if told.automatic:
        last = told.decisions[-1] if told.decisions else None
        workers = last.workers if last is not None else 0
        reason = last.reason if last is not None else "too few batches to choose by"
    return Served(
        site=site,
        asked=(asked,),
        epochs=told.epochs,
        batches=told.batches,
        seconds=told.seconds,
        lost_s=told.waited_s + told.loading_s,
        start_s=told.start_s,
        coming_up_s=told.coming_up_s,
        starts=told.starts,
        workers=(workers, workers),
        automatic=told.automatic,
        reason=reason,
    )
