"""How many CPUs this process may really use, each number with its source."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.host.cgroups import group_folders
from stoker.host.facts import Fact
from stoker.host.slurm import cpus_of_task

__all__ = ["CpuFacts", "Fact", "cgroup_cpuset", "cgroup_quota", "cpu_facts", "parse_cpu_list"]

_log = logging.getLogger("stoker")

OVERRIDE_VARIABLE = "STOKER_CPUS"
LOKY_VARIABLE = "LOKY_MAX_CPU_COUNT"


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
        override: The number in ``STOKER_CPUS``, which overrules all that was found, or in
            ``LOKY_MAX_CPU_COUNT``, which is one more limit; None when both are unset.
    """

    usable: Fact[int]
    machine: Fact[int]
    affinity: Fact[int | None]
    quota: Fact[float | None]
    override: Fact[int | None]


def cpu_facts(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> CpuFacts:
    """Read every limit on the CPUs of this process; takes about a millisecond.

    Args:
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.
        environ: The environment; this process's when None.
    """
    environ = os.environ if environ is None else environ
    machine = Fact(os.cpu_count() or 1, "os.cpu_count")
    affinity, quota, override = _affinity(), cgroup_quota(root), _override(environ)
    others = _cpuset_count(root), cpus_of_task(environ)
    usable = _usable(machine, affinity, quota, override, others)
    return CpuFacts(usable, machine, affinity, quota, override)


def _usable(
    machine: Fact[int],
    affinity: Fact[int | None],
    quota: Fact[float | None],
    override: Fact[int | None],
    others: tuple[Fact[int | None], ...] = (),
) -> Fact[int]:
    if override.value is not None and override.source == OVERRIDE_VARIABLE:
        return Fact(override.value, f"{OVERRIDE_VARIABLE}={override.value}")
    limits = [_loky_count(machine.value), machine.value]
    told = ["no affinity mask" if affinity.value is None else "affinity"]
    limits += [] if affinity.value is None else [affinity.value]
    for other in others:
        if other.value is not None and other.value < min(limits):
            limits.append(other.value)
            told.append(f"{other.source}: {other.value}")
    if quota.value is None:
        told.append("no cgroup quota")
    else:
        limits.append(math.ceil(quota.value))
        told.append(f"cgroup quota of {quota.value:g} CPUs")
    if override.value is not None:
        limits.append(override.value)
        told.append(f"{override.source}={override.value}")
    return Fact(max(1, min(limits)), "; ".join(told))


def _loky_count(otherwise: int) -> int:
    """Loky's answer, which also knows Windows' limit of 61 and psutil's affinity masks."""
    from loky import cpu_count

    try:
        return int(cpu_count())
    except (ValueError, OSError):  # an override or a cgroup file that is not a number
        return otherwise


def mask_now() -> frozenset[int] | None:
    """Numbers of the CPUs that the calling thread may run on; None where no system call tells."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def _affinity() -> Fact[int | None]:
    mask = mask_now()
    if mask is None:
        return Fact(None, "this system has no os.sched_getaffinity")
    return Fact(len(mask), "os.sched_getaffinity")


def _override(environ: Mapping[str, str]) -> Fact[int | None]:
    source = "unset"
    for name in (OVERRIDE_VARIABLE, LOKY_VARIABLE):
        text = environ.get(name, "").strip()
        if text.isdecimal() and int(text) >= 1:
            return Fact(int(text), name)
        if text:
            source = f"{name} holds no number"
            _log.warning("%s=%r is ignored: it is to be a number of CPUs, at least 1", name, text)
    return Fact(None, source)


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
    for folder in group_folders("cpu", root):
        yield _read_quota(folder / "cpu.max")  # version 2
        yield _read_quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _read_quota(*files: Path) -> Fact[float | None]:
    try:
        words = " ".join(file.read_text() for file in files).split()
        quota_us, period_us = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):  # absent, or "max": no limit here
        return Fact(None, str(files[0]))
    if quota_us <= 0 or period_us <= 0:
        return Fact(None, str(files[0]))
    return Fact(quota_us / period_us, str(files[0]))


def cgroup_cpuset(root: Path = Path("/")) -> Fact[frozenset[int] | None]:
    """Numbers of the CPUs that the cgroup of this process may use; None when not written.

    The kernel keeps every affinity mask within it, so it matters where masks are not
    known, and to tell a mask that was shrunk from a group that was.
    """
    for folder in group_folders("cpuset", root):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            try:
                found = parse_cpu_list((folder / name).read_text())
            except (OSError, ValueError):
                continue
            if found:
                return Fact(found, str(folder / name))
    return Fact(None, "no cgroup sets the CPUs")


def _cpuset_count(root: Path) -> Fact[int | None]:
    found = cgroup_cpuset(root)
    return Fact(None if found.value is None else len(found.value), "cgroup cpuset")


def parse_cpu_list(text: str) -> frozenset[int]:
    """The kernel's list format: ``0-3,8`` is 0, 1, 2, 3 and 8.

    Raises:
        ValueError: The text is something else.
    """
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
