"""Ends a program that should have ended by itself, and tells how far it is meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stoker.watch import launch
from stoker.watch.settings import Settings

STOP_GRACE_S = 15.0
OVERTIME_S = 30.0
DEFAULT_SECONDS = 120.0


class TimeKeeper:
    """See the module.

    Args:
        folder: Of the run; what was seen is written there.
        running: The program.
        settings: What its processes were told.
        hangs: Whether a program without batches is a hang; a user's own may do something else.
        show: Called with the folder whenever something new was written.

    Attributes:
        hung: Whether it was ended because no batch came.
        pressed: Whether because its time was over.
    """

    def __init__(
        self,
        folder: Path,
        running: launch.Running,
        settings: Settings,
        *,
        hangs: bool,
        show: Callable[[Path], object],
    ) -> None:
        self.hung = self.pressed = False
        self._folder, self._running, self._settings = folder, running, settings
        self._hangs, self._show = hangs, show
        self._began = self._moved = time.monotonic()
        self._stamp: float | None = None

    def tick(self) -> None:
        """A few times a second."""
        if self.pressed or self.hung:
            return
        now = time.monotonic()
        stamp = _newest(self._folder)
        if stamp != self._stamp:
            if self._stamp is None and stamp is not None:
                self._began = now
            self._stamp, self._moved = stamp, now
            self._show(self._folder)
        if (self._folder / "stopped").exists():
            self._running.stop(STOP_GRACE_S)
            return
        seconds = self._settings.seconds or DEFAULT_SECONDS
        if self._stamp is not None and now - self._began > seconds + OVERTIME_S:
            self.pressed = True
            self._running.stop(0)
        elif self._hangs and now - self._moved > self._settings.timeout_s + STOP_GRACE_S:
            self.hung = True
            self._running.stop(0)


def _newest(folder: Path) -> float | None:
    stamps = []
    for path in folder.glob("sites-*.json"):
        try:
            stamps.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(stamps, default=None)
