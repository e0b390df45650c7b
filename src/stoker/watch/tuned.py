"""Watches every loader of PyTorch that a process makes. Installed when torch has been imported.

Methods of PyTorch's classes are replaced, not the classes: subclasses, libraries that rebuild
loaders and ``isinstance`` see what they always see. In workers only the fetcher is replaced,
which notes down how long each batch took.

Guarantees: what fails here leaves the loader as it is without Stoker.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from dataclasses import astuple
from time import perf_counter
from typing import Any

import torch.utils.data
from torch.utils.data import dataloader
from torch.utils.data._utils import collate, fetch, worker

from stoker.host.forks import at_fork
from stoker.host.interrupts import held_back
from stoker.tuning.answer import Site
from stoker.watch.conductor import Conductor
from stoker.watch.failed import write_reason
from stoker.watch.iterating import SiteIterator, served_here
from stoker.watch.kept import size_of
from stoker.watch.looking import WorkerLook, note_shares
from stoker.watch.marks import MarkWriter
from stoker.watch.settings import Settings
from stoker.watch.sites import Sites
from stoker.watch.unwatched import is_unwatched, unwatched

_KEY = "_stoker_watch_key"
_original_iters: dict[type, Any] = {}


def install(settings: Settings) -> None:
    """Watch the loaders of this process from now on."""
    watch = Process(settings)
    kinds: list[Any] = [torch.utils.data.DataLoader, _stokers_loader()]
    _patch_init(kinds[0], watch)
    for kind in kinds:
        _original_iters[kind] = kind.__iter__
        _patch_iter(kind, watch)
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _patch_fetch(fetcher, settings.folder)
    _patch_worker_info(settings.folder)
    atexit.register(watch.close)
    at_fork(after_in_child=watch.forked)


class Process:
    """The conductor of this process, made when the first loader is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._conductor: Conductor | None = None
        self._of_parents: list[Conductor] = []
        self._unwatched = False
        self.sites = Sites()

    @property
    def conductor(self) -> Conductor:
        """Of this process."""
        with self._lock:
            if self._conductor is None:
                self._conductor = Conductor(self._settings, open_unwatched)
            return self._conductor

    def made(self, loader: Any) -> Any:
        """A loader's key and the line that made it, noted once; None where it isn't watched."""
        told = vars(loader).get(_KEY)
        if told is not None or self._unwatched:
            return told
        try:
            site = self.sites.site(loader.dataset, made=loader)
            self.sites.remember(loader.dataset, loader, site)
            key = self.conductor.made(site, loader)
            # Plain data: the loader may be pickled to where Stoker is not installed.
            told = key, astuple(site)
            vars(loader)[_KEY] = told
        except Exception as error:
            self._fails(error)
        return told

    def iterate(self, loader: Any) -> SiteIterator | None:
        """What the program iterates in place of PyTorch's iterator; None where it is not."""
        told = self.made(loader)
        if told is None or self._unwatched or self.conductor.off:
            return None
        try:
            return self.conductor.iterate(told[0], Site(*told[1]), loader)
        except Exception as error:
            self._fails(error)
            return None

    def forked(self) -> None:
        """A copy of the process has loaders, and nothing to do with what is measured here.

        What its parent measures is never let go of: an iterator that ends here would tell the
        parent's workers to end.
        """
        self._lock = threading.Lock()
        if self._conductor is not None:
            self._conductor.let_alone()
            # Ranks are started before they load. What is forked later is no part of the training.
            self._unwatched = self._unwatched or self._conductor.leading is not None
            self._of_parents.append(self._conductor)
            self._conductor = None

    def close(self) -> None:
        """The process ends."""
        if self._conductor is not None:
            with held_back(ending=True):
                self._conductor.close()

    def _fails(self, error: Exception) -> None:
        self._unwatched = True
        write_reason(self._settings.folder, error)


def open_unwatched(loader: Any) -> Any:
    """PyTorch's or Stoker's own ``iter(loader)``, without being watched."""
    with unwatched():
        kind = _stokers_loader()
        if not isinstance(loader, kind):
            kind = torch.utils.data.DataLoader
        return _original_iters.get(kind, kind.__iter__)(loader)


def _stokers_loader() -> Any:
    from stoker.loader import DataLoader

    return DataLoader


def _is_unwatched() -> bool:
    """Whether a loader here is Stoker's own affair, or part of reading another one's sample."""
    if worker._worker_info is not None or is_unwatched():
        return True
    return served_here() is not None


def _patch_init(kind: Any, watch: Process) -> None:
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not _is_unwatched():
            watch.made(self)

    kind.__init__ = __init__


def _patch_iter(kind: Any, watch: Process) -> None:
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        iterator = None if _is_unwatched() else watch.iterate(self)
        if iterator is None:
            return original(self)
        iterator.start()
        return iterator

    kind.__iter__ = __iter__


def _patch_fetch(kind: Any, folder: str) -> None:
    original = kind.fetch

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        if worker._worker_info is None:
            return original(self, possibly_batched_index)
        noted = _noted_here(folder)
        if noted is None:
            return original(self, possibly_batched_index)
        noted.begin()
        try:
            batch = original(self, possibly_batched_index)
        except BaseException:
            noted.look.end()
            raise
        noted.made(batch)
        return batch

    kind.fetch = fetch


class _Worker:
    """What a worker notes down; never raises once it is made."""

    def __init__(self, folder: str) -> None:
        self.pid = os.getpid()
        self.look = WorkerLook(folder)
        self._writer = MarkWriter(folder)
        self._size_bytes = 0
        self._began = 0.0

    def begin(self) -> None:
        """A batch begins."""
        self.look.begin()
        self._began = perf_counter()

    def made(self, batch: Any) -> None:
        """It is made."""
        self.look.end()
        end = perf_counter()
        if not self._size_bytes:
            self._size_bytes = _size(batch)
        self._writer.made(self._began, end, self._size_bytes)


def _size(batch: Any) -> int:
    try:
        return size_of(batch)
    except Exception:  # the user's own class may do anything
        return 0


_worker: _Worker | None = None
_failed_in = 0


def _noted_here(folder: str) -> _Worker | None:
    global _worker, _failed_in
    if _worker is not None and _worker.pid == os.getpid():
        return _worker
    if _failed_in == os.getpid():
        return None
    try:
        _worker = _Worker(folder)
    except Exception:  # the run is over, or there is no room: the program goes on
        _failed_in = os.getpid()
        return None
    return _worker


def _patch_worker_info(folder: str) -> None:
    """Learns whether an iterable data set asks which worker it is in."""
    original = worker.get_worker_info
    told: set[Any] = set()
    collating = vars(collate)

    @functools.wraps(original)
    def get_worker_info() -> Any:
        info, asks = original(), sys._getframe(1).f_globals
        if asks is collating:  # for every batch of tensors
            return info
        reading = info if info is not None else served_here()
        kind = type(reading.dataset) if reading is not None else None
        if kind is None or kind in told or str(asks.get("__name__", "")).startswith("torch."):
            return info
        told.add(kind)
        note_shares(folder, kind)
        return info

    for holder in (torch.utils.data, dataloader, worker):
        setattr(holder, "get_worker_info", get_worker_info)  # noqa: B010
