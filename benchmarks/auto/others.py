"""What other programs on the machine used meanwhile: figures are worth less with it."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil


class OthersWatch:
    """Counts the CPU time of everything but this process and its descendants.

    Descendants that end meanwhile count as this process's own once they were waited for.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._before_s = _others_s()

    def cpus(self) -> float:
        """CPUs that others kept busy since the beginning, on average."""
        took_s = time.perf_counter() - self._began
        return max(0.0, _others_s() - self._before_s) / took_s


def _others_s() -> float:
    """Seconds of CPU time on the whole machine less our own."""
    times = psutil.cpu_times()
    here = psutil.Process()
    own_s = 0.0
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            own_s += used.user + used.system + used.children_user + used.children_system
    return float(times.user + times.system + getattr(times, "nice", 0.0)) - own_s
