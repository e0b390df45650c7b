"""Tight limits of the system, for a process of its own: each applied before anything is loaded."""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

_HEADROOM = 1.1
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


LITTLE_MEMORY = "little memory"
LIMITS = {
    "128 descriptors": Limit(),
    "64 MB of /dev/shm": _inside(_SMALL_SHARED),
    "a full disk": _inside(_FULL_DISK),
    LITTLE_MEMORY: Limit(),
}


def apply(name: str) -> None:
    """In the process that is to be limited, when all that it imports is there."""
    if name == "128 descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    if name == LITTLE_MEMORY:
        _enter_group()


def tighten() -> None:
    """When a small run has shown how much memory is needed: no more than a little above that."""
    if _group is not None:
        needed = int((_group.folder / _group.peak).read_text())
        (_group.folder / _group.limit).write_text(str(int(needed * _HEADROOM)))
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (int(used * _HEADROOM), resource.RLIM_INFINITY))


@dataclass(frozen=True)
class _Group:
    """A control group of this process alone, and the names of its files."""

    folder: Path
    peak: str
    limit: str


_group: _Group | None = None


def _enter_group() -> None:
    """A control group that this process and its workers are in, where that can be had."""
    global _group
    for parent, peak, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.peak", "memory.max"),
    ):
        folder = parent / f"stoker-faults-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            (folder / peak).read_text()
        except OSError:
            continue
        _group = _Group(folder, peak, limit)
        atexit.register(_leave_group, parent, folder)
        return


def _leave_group(parent: Path, folder: Path) -> None:
    with contextlib.suppress(OSError):
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()
