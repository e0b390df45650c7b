"""Watches loaders of the test's own process, and names what is tried."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.utils.data
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch, worker

import stoker.loader
from stoker.tuning.probing import Ask, Setting
from stoker.watch import asking, tuned
from stoker.watch.conductor import Conductor
from stoker.watch.settings import Settings

_PATCHED = [
    (torch.utils.data.DataLoader, "__init__"),
    (torch.utils.data.DataLoader, "__iter__"),
    (stoker.loader.DataLoader, "__iter__"),
    (fetch._MapDatasetFetcher, "fetch"),
    (fetch._IterableDatasetFetcher, "fetch"),
    (torch.utils.data, "get_worker_info"),
    (dataloader, "get_worker_info"),
    (worker, "get_worker_info"),
]


class Scripted:
    """A prober that asks for these settings, each for so many windows, and then is done."""

    def __init__(self, own: int, *, counts: Any = None) -> None:
        self.own, self.script, self.windows = own, list(_script), []
        self.at = 0
        self.reason, self.gave_up, self.rare, self.failures = "", False, 0.0, []

    @property
    def ask(self) -> Ask:
        if self.at < len(self.script):
            stage, setting, batches = self.script[self.at]
            return Ask(stage, setting, batches, 0.0, self.at, fresh=True)
        return Ask("done", Setting(self.own), 0, 0.0)

    @property
    def stage(self) -> str:
        return self.ask.stage

    @property
    def chosen(self) -> int:
        return self.own

    def observe(self, window: Any, bounds: Any, passed_s: float | None = None) -> None:
        self.windows.append(window)
        self.at += 1

    def failed(self, workers: int, why: str) -> None:
        self.failures.append(workers)
        self.at += 1

    def stop(self) -> None:
        self.at = len(self.script)


_script: list[tuple[str, Setting, int]] = []


@contextlib.contextmanager
def scripted(*steps: tuple[str, Any, int]) -> Iterator[None]:
    """Each site tries these: stage, setting or number of workers, batches of a window."""
    named = [(a, b if isinstance(b, Setting) else Setting(b), c) for a, b, c in steps]
    before, usual = list(_script), asking.Prober
    _script[:] = named
    asking.Prober = Scripted  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        _script[:] = before
        asking.Prober = usual  # type: ignore[misc]


class Watch:
    """Of this process."""

    def __init__(self, process: tuned.Process, folder: Path) -> None:
        self.process, self.folder = process, folder

    @property
    def conductor(self) -> Conductor:
        return self.process.conductor

    @property
    def sites(self) -> list[Any]:
        return list(self.conductor._sites.values())

    @property
    def site(self) -> Any:
        assert not self.failed(), self.failed()
        (only,) = self.sites
        return only

    def failed(self) -> str:
        return "".join(each.read_text() for each in self.folder.glob("failed-*.txt"))

    def told(self) -> list[str]:
        return [each.what for site in self.sites for each in site.record(whole=False).failures]


@contextlib.contextmanager
def watched(
    folder: Path, *, never_enough: bool = True, expects_failure: bool = False, **settings: Any
) -> Iterator[Watch]:
    """Loaders of this process are watched.

    Args:
        folder: Of the run.
        never_enough: Whether the program is never stopped.
        expects_failure: Whether Stoker itself may fail.
        settings: Fields of `Settings`.
    """
    before = [(holder, name, vars(holder)[name]) for holder, name in _PATCHED]
    process: Any = None

    def installed(of: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(of)
        def make(*given: Any) -> Any:
            nonlocal process
            process = of(*given)
            return process

        return make

    original, closes = tuned.Process, tuned.atexit.register
    tuned.Process = installed(original)  # type: ignore[assignment,misc]
    tuned.atexit.register = lambda act: act  # type: ignore[assignment]
    try:
        tuned.install(Settings("tune", str(folder), **{"seconds": 1e6, **settings}))
    finally:
        tuned.Process, tuned.atexit.register = original, closes  # type: ignore[misc]
    if never_enough:
        process.conductor.turns.enough = lambda site: ""
        process.conductor.turns.cut = lambda site: False
    try:
        yield Watch(process, folder)
    finally:
        process.close()
        assert expects_failure or not Watch(process, folder).failed(), Watch(
            process, folder
        ).failed()
        for holder, name, value in before:
            setattr(holder, name, value)
        if process._conductor is not None:
            process._conductor.off = True
