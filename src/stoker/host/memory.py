"""How much memory this process may still take, and who says so.

Files and their meaning: the kernel's admin-guide/cgroup-v2.rst ("Memory Interface Files")
and admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.host.cgroups import group_folders, read_number
from stoker.host.facts import Fact

# Version 1 writes "no limit" as the largest multiple of a page below 2**63 bytes.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True)
class MemoryFacts:
    """Memory in bytes that can be taken without swapping or being killed.

    Attributes:
        available_bytes: The tightest of the two below.
        machine_bytes: What the system calls available.
        group_bytes: What the tightest cgroup leaves: its limit, less what it uses, where
            pages of files that were not used of late count as free; None without a limit.
    """

    available_bytes: Fact[int]
    machine_bytes: Fact[int]
    group_bytes: Fact[int | None]


@dataclass(frozen=True)
class _Files:
    """Names of the files of one version; `cache` is a line of ``memory.stat``."""

    limits: tuple[str, ...]
    usage: str
    cache: str


_VERSIONS = (
    _Files(("memory.max", "memory.high"), "memory.current", "inactive_file"),
    _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_facts(root: Path = Path("/")) -> MemoryFacts:
    """Read what the system and the cgroups leave; takes well under a millisecond.

    Args:
        root: Where ``proc`` and ``sys`` of the cgroups are found; a test gives a folder of
            its own.
    """
    import psutil

    machine = Fact(int(psutil.virtual_memory().available), "memory available on the machine")
    group = _tightest_group(root)
    if group.value is None or group.value >= machine.value:
        return MemoryFacts(machine, machine, group)
    return MemoryFacts(Fact(group.value, group.source), machine, group)


def _tightest_group(root: Path) -> Fact[int | None]:
    left = [found for folder in group_folders("memory", root) for found in _left_in(folder)]
    if not left:
        return Fact(None, "no cgroup limits memory")
    least = min(left, key=lambda fact: fact.value)
    return Fact(least.value, least.source)


def _left_in(folder: Path) -> Iterator[Fact[int]]:
    for files in _VERSIONS:
        used = read_number(folder / files.usage)
        if used is None:
            continue
        needed = max(0, used - _reclaimable_bytes(folder, files.cache))
        for name in files.limits:
            limit = read_number(folder / name)
            if limit is not None and limit < _NO_LIMIT_BYTES:
                yield Fact(max(0, limit - needed), f"cgroup limit in {folder / name}")


def _reclaimable_bytes(folder: Path, line: str) -> int:
    """Pages of files that are dropped first when memory is short: no reason to be killed."""
    try:
        words = (folder / "memory.stat").read_text().split()
        return int(words[words.index(line) + 1])
    except (OSError, ValueError, IndexError):
        return 0
