"""What a process holds: the numbers that must not grow."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

_SEGMENT = "memfd:stoker"


@dataclass(frozen=True)
class Held:
    """What this process and its children hold at one moment.

    Attributes:
        descriptors: Open descriptors of this process.
        segments: Mapped segments of batches, and those with a name in /dev/shm.
        threads: Of this process.
        processes: Children, and theirs.
        memory_mib: Anonymous memory of this process, whoever shares it, in MiB.
    """

    descriptors: int
    segments: int
    threads: int
    processes: int
    memory_mib: float

    def above(self, before: Held) -> Held:
        """What there is more than before."""
        names = [field.name for field in fields(self)]
        return Held(*(getattr(self, name) - getattr(before, name) for name in names))

    def __str__(self) -> str:
        return (
            f"{self.descriptors:+d} descriptors, {self.segments:+d} segments, "
            f"{self.threads:+d} threads, {self.processes:+d} processes, "
            f"{self.memory_mib:+.1f} MiB"
        )


def held_now() -> Held:
    """Counts, after a garbage collection."""
    gc.collect()
    me = psutil.Process()
    maps = Path("/proc/self/maps").read_text()
    named = [name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "torch_"))]
    return Held(
        descriptors=len(os.listdir("/proc/self/fd")),
        segments=maps.count(_SEGMENT) + len(named),
        threads=threading.active_count(),
        processes=len(me.children(recursive=True)),
        memory_mib=_anonymous_mib(),
    )


def _anonymous_mib() -> float:
    """What children share depends on how many there are; what there is of it does not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024
