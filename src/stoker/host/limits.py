"""Limits that a loader with many workers meets: descriptors, shared memory, start methods."""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from stoker.host.facts import Fact


@dataclass(frozen=True)
class LimitFacts:
    """What this system lets one process have.

    Attributes:
        descriptors: Soft limit of open descriptors; None without a limit, or where the
            system tells none.
        descriptors_used: Open at the moment; None where the system lists none.
        shm_free_bytes: Free space in ``/dev/shm``; None where there is no such folder.
        start_methods: Ways to start a process; the system's default first.
        start_method: The one that this program uses when none is named: what it has set,
            else the default.
    """

    descriptors: Fact[int | None]
    descriptors_used: Fact[int | None]
    shm_free_bytes: Fact[int | None]
    start_methods: Fact[tuple[str, ...]]
    start_method: Fact[str]

    @property
    def descriptors_free(self) -> int | None:
        """Descriptors that can still be opened; None where one of the two is not known."""
        if self.descriptors.value is None or self.descriptors_used.value is None:
            return None
        return max(0, self.descriptors.value - self.descriptors_used.value)


def limit_facts(root: Path = Path("/")) -> LimitFacts:
    """Read the limits; nothing is started and no start method is settled by asking.

    Args:
        root: Where ``proc`` and ``dev`` are found; a test gives a folder of its own.
    """
    methods = tuple(multiprocessing.get_all_start_methods())
    chosen = multiprocessing.get_start_method(allow_none=True)
    return LimitFacts(
        descriptors=_descriptor_limit(),
        descriptors_used=_descriptors_used(root),
        shm_free_bytes=_shm_free(root / "dev/shm"),
        start_methods=Fact(methods, "multiprocessing.get_all_start_methods"),
        start_method=Fact(chosen, "multiprocessing.set_start_method")
        if chosen
        else Fact(methods[0], f"default of Python on {sys.platform}"),
    )


def _descriptor_limit() -> Fact[int | None]:
    try:
        import resource  # not on Windows
    except ImportError:
        return Fact(None, "this system has no limit of descriptors to ask for")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Fact(None, "RLIMIT_NOFILE is unlimited")
    return Fact(soft, "soft RLIMIT_NOFILE (ulimit -n)")


def _descriptors_used(root: Path) -> Fact[int | None]:
    for folder in (root / "proc/self/fd", root / "dev/fd"):  # Linux; macOS
        try:
            return Fact(len(os.listdir(folder)) - 1, str(folder))  # one is the listing's own
        except OSError:
            continue
    return Fact(None, "this system does not list descriptors")


def _shm_free(folder: Path) -> Fact[int | None]:
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return Fact(None, f"no {folder}")
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return Fact(None, f"{folder}: {error.strerror}")
    return Fact(found.f_bavail * found.f_frsize, str(folder))
