"""Tight limits of the system, for a process of its own: each applied before anything is loaded."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_MIB = 1 << 20
_SMALL_SHARED = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
_FULL_DISK = (
    "mkdir -p /tmp/stoker-full && mount -t tmpfs -o size=64k tmpfs /tmp/stoker-full && "
    "(head -c 1M /dev/zero > /tmp/stoker-full/ballast || true) 2>/dev/null && "
    "export TMPDIR=/tmp/stoker-full"
)


@dataclass(frozen=True)
class Limit:
    """A limit.

    Attributes:
        wrapped: Words that a command is put behind; empty where the process limits itself.
    """

    wrapped: tuple[str, ...] = ()


def _inside(setup: str) -> Limit:
    """With mounts of its own, which go with the process; only for root."""
    return Limit(("unshare", "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh"))


LIMITS = {
    "128 descriptors": Limit(),
    "64 MB of /dev/shm": _inside(_SMALL_SHARED),
    "a full disk": _inside(_FULL_DISK),
    "little memory": Limit(),
}


def apply(name: str) -> None:
    """In the process that is to be limited, when all that it imports is there."""
    if name == "128 descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    if name == "little memory":
        _limit_memory(_MEMORY_BYTES)


_MEMORY_BYTES = 700 * _MIB


def _limit_memory(size_bytes: int) -> None:
    """By a control group where that can be had, else by the address space."""
    for folder, files in (
        (Path("/sys/fs/cgroup/memory"), ("memory.limit_in_bytes",)),
        (Path("/sys/fs/cgroup"), ("memory.max",)),
    ):
        group = folder / f"stoker-faults-{os.getpid()}"
        try:
            group.mkdir()
            for file in files:
                (group / file).write_text(str(size_bytes))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            continue
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size_bytes, resource.RLIM_INFINITY))
