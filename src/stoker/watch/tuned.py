"""Watches every loader of PyTorch that a process makes. Installed when torch has been imported.

Methods of PyTorch's classes are replaced, not the classes: subclasses, libraries that rebuild
loaders and ``isinstance`` see what they always see. In workers only the fetcher is replaced,
which notes down how long each batch took.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from time import perf_counter
from typing import Any

import torch.utils.data
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch, worker

from stoker.watch.conductor import Conductor, Key
from stoker.watch.kept import size_of
from stoker.watch.looking import WorkerLook, note_shares
from stoker.watch.marks import MarkWriter
from stoker.watch.settings import Settings
from stoker.watch.sites import Sites

_KEY = "_stoker_watch_key"
_inside = threading.local()
_original_iter: Any = None


def install(settings: Settings) -> None:
    """Watch the loaders of this process from now on."""
    global _original_iter
    watch = _Process(settings)
    kinds: list[Any] = [torch.utils.data.DataLoader, _stokers_loader()]
    _original_iter = torch.utils.data.DataLoader.__iter__
    _patch_init(kinds[0], watch)
    for kind in kinds:
        _patch_iter(kind, watch)
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _patch_fetch(fetcher, settings.folder)
    _patch_worker_info(settings.folder)
    atexit.register(watch.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=watch.forked)


class _Process:
    """The conductor of this process, made when the first loader is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._conductor: Conductor | None = None
        self.sites = Sites()

    @property
    def conductor(self) -> Conductor:
        """Of this process."""
        if self._conductor is None:
            self._conductor = Conductor(self._settings, open_unwatched)
        return self._conductor

    def forked(self) -> None:
        """A copy of the process has loaders, and nothing to do with what is measured here."""
        self._conductor = None

    def close(self) -> None:
        """The process ends."""
        if self._conductor is not None:
            self._conductor.close()


def open_unwatched(loader: Any) -> Any:
    """``iter(loader)`` without being watched."""
    before = getattr(_inside, "on", False)
    _inside.on = True
    try:
        plain = isinstance(loader, _stokers_loader())
        return iter(loader) if plain else _original_iter(loader)
    finally:
        _inside.on = before


def _stokers_loader() -> Any:
    from stoker.loader import DataLoader

    return DataLoader


def _patch_init(kind: Any, watch: _Process) -> None:
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not getattr(_inside, "on", False) and worker._worker_info is None:
            _told(self, watch)

    kind.__init__ = __init__


def _told(loader: Any, watch: _Process) -> Any:
    """A loader and the line that made it; noted once."""
    key = vars(loader).get(_KEY)
    if key is None:
        site = watch.sites.site(loader.dataset, made=loader)
        watch.sites.remember(loader.dataset, loader, site)
        key = (watch.conductor.made(site, loader), site)
        vars(loader)[_KEY] = key
    return key


def _patch_iter(kind: Any, watch: _Process) -> None:
    if "__iter__" not in vars(kind):
        return
    original = kind.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if getattr(_inside, "on", False) or worker._worker_info is not None:
            return original(self)
        told: tuple[Key, Any] = _told(self, watch)
        return watch.conductor.iterate(told[0], told[1], self)

    kind.__iter__ = __iter__


def _patch_fetch(kind: Any, folder: str) -> None:
    original = kind.fetch

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        if worker._worker_info is None:
            return original(self, possibly_batched_index)
        noted = _noted_here(folder)
        noted.look.begin()
        began = perf_counter()
        try:
            batch = original(self, possibly_batched_index)
        finally:
            noted.look.end()
        end = perf_counter()
        noted.made(began, end, batch)
        return batch

    kind.fetch = fetch


class _Worker:
    """What a worker notes down."""

    def __init__(self, folder: str) -> None:
        self.pid = os.getpid()
        self.look = WorkerLook(folder)
        self._writer = MarkWriter(folder)
        self._size_bytes = 0

    def made(self, began: float, end: float, batch: Any) -> None:
        if not self._size_bytes:
            self._size_bytes = size_of(batch)
        self._writer.made(began, end, self._size_bytes)


_worker: _Worker | None = None


def _noted_here(folder: str) -> _Worker:
    global _worker
    if _worker is None or _worker.pid != os.getpid():
        _worker = _Worker(folder)
    return _worker


def _patch_worker_info(folder: str) -> None:
    """Learns whether an iterable data set asks which worker it is in."""
    original = worker.get_worker_info
    asked = False

    @functools.wraps(original)
    def get_worker_info() -> Any:
        nonlocal asked
        if not asked:
            asked = True
            note_shares(folder)
        return original()

    for holder in (torch.utils.data, dataloader, worker):
        setattr(holder, "get_worker_info", get_worker_info)  # noqa: B010
