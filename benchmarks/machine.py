"""The facts of the machine that a figure means nothing without."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch


@dataclass(frozen=True)
class Machine:
    cpu: str
    cpus_usable: int
    memory_gib: float
    system: str
    python: str
    torch: str

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cpus_usable} CPUs usable, {self.memory_gib:.0f} GiB, "
            f"{self.system}, Python {self.python}, torch {self.torch}"
        )


def look() -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cpus_usable=_cpus_usable(),
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
    )


def _cpus_usable() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
