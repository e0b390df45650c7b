"""Signs of life of another process: what tells one that is slow from one that is stuck."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Pulse(NamedTuple):
    """What a process has done since it started, with what it started itself.

    Attributes:
        state: As psutil names it: "running", "sleeping", "disk-sleep", "stopped" ...
        cpu_s: CPU time, of processes it has started too.
        io_bytes: What it has read and written by system calls; None where that isn't told.
        starved_s: How long its main thread could have run and had no CPU; None where that
            isn't told.
    """

    state: str
    cpu_s: float
    io_bytes: int | None = None
    starved_s: float | None = None


def pulse(pid: int) -> Pulse | None:
    """Looks at a process; takes a few milliseconds.

    Returns:
        None where there is no such process, or it may not be looked at.
    """
    import psutil  # Seldom wanted.

    try:
        process = psutil.Process(pid)
        cpu_s = _cpu_s(process.cpu_times())
        for child in _descendants(pid):
            with contextlib.suppress(psutil.Error):
                cpu_s += _cpu_s(psutil.Process(child).cpu_times())
        return Pulse(str(process.status()), cpu_s, _io_bytes(process), _starved_s(pid))
    except psutil.Error:
        return None


def _descendants(pid: int) -> list[int]:
    """All that it has started; psutil would look at every process of the machine for that."""
    import psutil

    if not Path("/proc/self/task").is_dir():
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found[1:]


def _cpu_s(times: object) -> float:
    parts = ("user", "system", "children_user", "children_system")
    return float(sum(getattr(times, part, 0.0) for part in parts))


def _io_bytes(process: object) -> int | None:
    try:
        counters = process.io_counters()  # type: ignore[attr-defined]
        return int(counters.read_chars + counters.write_chars)
    except Exception:  # Not on every system, nor for everybody.
        return None


def _starved_s(pid: int) -> float | None:
    """Documentation/scheduler/sched-stats.rst: ns on a CPU, ns waiting for one, slices."""
    try:
        _, waited_ns, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
    except (OSError, ValueError):
        return None
    return waited_ns / 1e9
