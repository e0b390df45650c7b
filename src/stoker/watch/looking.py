"""What is looked at in the code that loads: its lines, and whether it shares itself out.

Workers write what they have found to files of their own; the process that watches reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

from stoker.watch.sampler import Loading, Sampler
from stoker.watch.sources import Source

_WRITE_EVERY_S = 0.5
_SHARES = "shares-itself-out-{}"


def note_shares(folder: str, kind: type) -> None:
    """A data set of this class has asked which worker it is in."""
    with contextlib.suppress(OSError):
        _shares_path(folder, kind).touch()


def shares(folder: str, kind: type) -> bool:
    """Whether one has, in any process."""
    return _shares_path(folder, kind).exists()


def _shares_path(folder: str, kind: type) -> Path:
    name = f"{kind.__module__}.{kind.__qualname__}".encode()
    return Path(folder) / _SHARES.format(hashlib.sha1(name, usedforsecurity=False).hexdigest())


class WorkerLook:
    """A sampler in a worker, which tells what it has found from time to time.

    Args:
        folder: Where to.
    """

    def __init__(self, folder: str) -> None:
        self._sampler = Sampler(threading.get_ident())
        self._target = lines_path(folder, os.getpid())
        self._due_s = 0.0

    def begin(self) -> None:
        """A batch begins."""
        self._sampler.resume()

    def end(self) -> None:
        """A batch is made."""
        self._sampler.pause()
        now = perf_counter()
        if now < self._due_s:
            return
        self._due_s = now + _WRITE_EVERY_S
        part = self._target.with_suffix(".part")
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(self._sampler.counts()))
            os.replace(part, self._target)


def lines_path(folder: str, pid: int) -> Path:
    """Where a worker tells its lines."""
    return Path(folder) / f"lines-{pid}.json"


class SiteLook:
    """What was found in the code that loads for one site.

    Args:
        folder: Where workers tell theirs.

    Attributes:
        loading: Whether this process makes a batch just now.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.loading = Loading()
        self._sampler: Sampler | None = None
        self._of_workers: dict[int, list[Any]] = {}

    def resume(self) -> None:
        """This process begins to make a batch."""
        if self._sampler is None:
            self._sampler = Sampler(threading.get_ident(), loading=self.loading)
        self._sampler.resume()

    def pause(self) -> None:
        """It has made it."""
        if self._sampler is not None:
            self._sampler.pause()

    def read(self, pids: list[int], *, last: bool) -> None:
        """Takes what these workers have told; ``last`` where they have ended."""
        for pid in pids:
            path = lines_path(self._folder, pid)
            with contextlib.suppress(OSError, ValueError):
                self._of_workers[pid] = json.loads(path.read_text())
            if last:
                path.unlink(missing_ok=True)

    def lines(self, source: Source | None) -> list[Any]:
        """All that was counted, by the workers of the running source too."""
        if source is not None and source.workers:
            self.read(source.pids, last=False)
        return self.counts()

    def counts(self) -> list[Any]:
        """All that was counted, as plain data."""
        own = list(self._sampler.counts()) if self._sampler else []
        return own + [each for found in self._of_workers.values() for each in found]

    def close(self) -> None:
        """Nothing more is looked at in this process."""
        if self._sampler is not None:
            self._sampler.close()
