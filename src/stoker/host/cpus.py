"""How many CPUs this process may really use, each number with its source."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

OVERRIDE_VARIABLE = "LOKY_MAX_CPU_COUNT"


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A number about this machine and where it came from.

    Attributes:
        value: The number; its unit is in the name of the attribute that holds the fact.
        source: In plain words: the file, call or variable that said so.
    """

    value: T
    source: str


@dataclass(frozen=True)
class CpuFacts:
    """The CPUs of this process.

    Attributes:
        usable: CPUs this process may really use; at least 1. Its source names the limits
            that were looked at.
        machine: Logical CPUs of the machine.
        affinity: CPUs in this process's affinity mask.
        quota: CPU time a second that the cgroup allows, in CPUs; None without a quota.
            A quota bounds work, not waiting.
        override: The number in ``LOKY_MAX_CPU_COUNT``; None when unset.
    """

    usable: Fact[int]
    machine: Fact[int]
    affinity: Fact[int | None]
    quota: Fact[float | None]
    override: Fact[int | None]


def cpu_facts() -> CpuFacts:
    """Read every limit on the CPUs of this process; takes well under a millisecond."""
    machine = Fact(os.cpu_count() or 1, "os.cpu_count")
    affinity, quota, override = _affinity(), cgroup_quota(), _override()
    usable = _usable(machine, affinity, quota, override)
    return CpuFacts(usable, machine, affinity, quota, override)


def _usable(
    machine: Fact[int],
    affinity: Fact[int | None],
    quota: Fact[float | None],
    override: Fact[int | None],
) -> Fact[int]:
    limits = {"loky.cpu_count": _loky_count(machine.value), "machine": machine.value}
    told = []
    if affinity.value is None:
        told.append("no affinity mask")
    else:
        limits["affinity"] = affinity.value
        told.append("affinity")
    if quota.value is None:
        told.append("no cgroup quota")
    else:
        limits["quota"] = math.ceil(quota.value)
        told.append(f"cgroup quota of {quota.value:g} CPUs")
    if override.value is not None:
        limits["override"] = override.value
        told.append(f"{OVERRIDE_VARIABLE}={override.value}")
    return Fact(max(1, min(limits.values())), "; ".join(told))


def _loky_count(otherwise: int) -> int:
    """Loky's answer, which also knows Windows' limit of 61 and psutil's affinity masks."""
    from loky import cpu_count

    try:
        return int(cpu_count())
    except (ValueError, OSError):  # an override or a cgroup file that is not a number
        return otherwise


def _affinity() -> Fact[int | None]:
    if not hasattr(os, "sched_getaffinity"):
        return Fact(None, "this system has no os.sched_getaffinity")
    return Fact(len(os.sched_getaffinity(0)), "os.sched_getaffinity")


def _override() -> Fact[int | None]:
    text = os.environ.get(OVERRIDE_VARIABLE, "")
    if not text.isdecimal() or int(text) < 1:
        return Fact(None, f"{OVERRIDE_VARIABLE} holds no number" if text else "unset")
    return Fact(int(text), OVERRIDE_VARIABLE)


def cgroup_quota(root: Path = Path("/")) -> Fact[float | None]:
    """The tightest CPU quota of this process's cgroup and those above it, in CPUs.

    Args:
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.
    """
    found = [fact for fact in _quotas(root) if fact.value is not None]
    if not found:
        return Fact(None, "no cgroup sets a CPU quota")
    return min(found, key=lambda fact: fact.value or math.inf)


def _quotas(root: Path) -> Iterator[Fact[float | None]]:
    mounted = root / "sys/fs/cgroup"
    for controllers, path in _memberships(root):
        if not controllers:
            for folder in _upwards(mounted, path):
                yield _read_quota(folder / "cpu.max")
        elif "cpu" in controllers.split(","):
            for name in {"cpu", controllers}:
                for folder in _upwards(mounted / name, path):
                    yield _read_quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _memberships(root: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each cgroup of this process; version 2 has no controllers."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [("", "/")]
    fields = [line.split(":", 2) for line in lines]
    return [(f[1], f[2]) for f in fields if len(f) == 3] or [("", "/")]


def _upwards(mounted: Path, path: str) -> Iterator[Path]:
    """The group's own folder and every one above it; inside a container some do not exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield mounted.joinpath(*parts[:length])


def _read_quota(*files: Path) -> Fact[float | None]:
    try:
        words = " ".join(file.read_text() for file in files).split()
        quota_us, period_us = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):  # absent, or "max": no limit here
        return Fact(None, str(files[0]))
    if quota_us <= 0 or period_us <= 0:
        return Fact(None, str(files[0]))
    return Fact(quota_us / period_us, str(files[0]))
