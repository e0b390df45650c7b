"""What may have run short when the system ended a process: memory, or shared memory.

Counts of processes killed for lack of memory: ``oom_kill`` in ``memory.events`` (version 2) or
``memory.oom_control`` (version 1) of the control group, see the kernel's admin-guide, and in
``/proc/vmstat`` for the whole machine.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from stoker.host.cgroups import group_folders

_EVENTS = ("memory.events", "memory.oom_control")
_COUNT = "oom_kill"
_SHARED = "/dev/shm"


@dataclass(frozen=True)
class Shortage:
    """The state of what runs short, at one moment; None where the system does not tell.

    Attributes:
        group_kills: Processes of this control group that were killed for lack of memory.
        machine_kills: Processes of the machine that were, ever.
        shared_free_bytes: What is free in /dev/shm.
        shared_bytes: How large that is.
    """

    group_kills: int | None = None
    machine_kills: int | None = None
    shared_free_bytes: int | None = None
    shared_bytes: int | None = None


def shortage(root: Path = Path("/")) -> Shortage:
    """What there is now; takes some 50 us.

    Args:
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.
    """
    file = _group_file(root)
    free, size = _shared()
    return Shortage(
        None if file is None else _count(file), _count(root / "proc/vmstat"), free, size
    )


@functools.lru_cache(maxsize=8)
def _group_file(root: Path) -> Path | None:
    for folder in group_folders("memory", root):
        for name in _EVENTS:
            if _count(folder / name) is not None:
                return folder / name
    return None


def _count(file: Path) -> int | None:
    try:
        words = file.read_text().split()
        return int(words[words.index(_COUNT) + 1])
    except (OSError, ValueError, IndexError):
        return None


def _shared() -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(_SHARED)
    except (OSError, AttributeError):
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
