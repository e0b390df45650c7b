"""All processes of a program, also those whose parent has ended. Ends them for good.

A process is the program's when it descends from it, or has the run's folder in its
environment. What descends is remembered while that can be seen: a process that has lost
its parent, and has cleared its environment, is known from before.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import psutil

from stoker.watch.settings import VARIABLE

PATIENCE_S = 1.0
_KILLED_S = 5.0
_POLL_S = 0.05


class Tree:
    """The processes that a program consists of.

    Args:
        pid: The program's first process.
        folder: The run's folder.
    """

    def __init__(self, pid: int, folder: str) -> None:
        self._pid = pid
        self._mark = os.path.basename(folder)
        self._known: set[psutil.Process] = set()

    def look(self) -> None:
        """Remember who descends from the first process now; a millisecond or two."""
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._pid)
            self._known |= {first, *first.children(recursive=True)}

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Kill what does not end by itself; blocks until nothing is left, for seconds at most."""
        deadline = time.monotonic() + patience_s
        while self._alive(self._everyone()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill everyone; what is forked meanwhile too. Blocks until nothing is left."""
        deadline = time.monotonic() + _KILLED_S
        while (alive := self._alive(self._everyone())) and time.monotonic() < deadline:
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(_POLL_S)  # not psutil's wait: it would take the exit code

    def _everyone(self) -> set[psutil.Process]:
        self.look()
        for process in set(self._known):
            with contextlib.suppress(psutil.Error):
                self._known |= set(process.children(recursive=True))
        self._known |= {each for each in psutil.process_iter() if _asked(self._is_marked, each)}
        return self._known

    def _is_marked(self, process: psutil.Process) -> bool:
        told = process.environ().get(VARIABLE, "")
        return process.pid != os.getpid() and self._mark in told

    def _alive(self, processes: set[psutil.Process]) -> list[psutil.Process]:
        return [each for each in processes if _asked(_runs, each)]


def _runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def _asked(question: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    """False where the process has ended or is another user's."""
    try:
        return question(process)
    except (psutil.Error, OSError):
        return False
