"""How much memory a process has for itself, and what that number comes from.

Private is what would be free if the process ended: pages that no other process has (USS). A forked
worker shares its pages with the main process until one of the two writes into them, which for a
Python object begins with reading it: that writes its reference count.

The files are those of the kernel's filesystems/proc.rst.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from stoker.host.facts import Fact

_KIB = 1024


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of one process, in bytes.

    Attributes:
        private_bytes: Pages that only this process has.
        proportional_bytes: Those, and its part of each page that it shares (PSS); None where
            the system does not tell.
    """

    private_bytes: Fact[int]
    proportional_bytes: Fact[int | None]


def process_memory(pid: int, root: Path = Path("/")) -> ProcessMemory | None:
    """Looks at a process.

    The system goes through all its pages for that: 1 ms for a process that has imported torch,
    and some 20 to 100 ms for each GiB that it has in small pages (measured on Linux 6.x).

    Args:
        pid: Whose. Others than this process's own may not be shown, which depends on the system.
        root: Where ``proc`` is found; a test gives a folder of its own.

    Returns:
        None where there is no such process, or it may not be looked at.
    """
    try:
        lines = (root / f"proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _from_psutil(pid)
    sizes = {name: _kib(rest) for name, _, rest in (line.partition(":") for line in lines)}
    if "Private_Dirty" not in sizes:
        return _from_psutil(pid)
    private = sum(sizes.get(f"Private_{kind}", 0) for kind in ("Clean", "Dirty", "Hugetlb"))
    source = f"/proc/{pid}/smaps_rollup"
    return ProcessMemory(
        Fact(private, f"Private_* in {source}"), Fact(sizes.get("Pss"), f"Pss in {source}")
    )


def _kib(rest: str) -> int:
    number = rest.split()
    return int(number[0]) * _KIB if number and number[0].isdigit() else 0


def _from_psutil(pid: int) -> ProcessMemory | None:
    import psutil  # Seldom wanted.

    try:
        told = psutil.Process(pid).memory_full_info()
    except (psutil.Error, OSError, NotImplementedError):
        return None
    pss = getattr(told, "pss", None)
    return ProcessMemory(Fact(int(told.uss), "psutil: uss"), Fact(pss, "psutil: pss"))


def taken_bytes() -> tuple[int, int] | None:
    """What bounds how much private memory this process has got; takes some 5 microseconds.

    Returns:
        Bytes of pages that it was given one by one since it started, and bytes that are in
        memory for it now. What is private can't have grown by more than the first has grown, or
        the second where the system gave large pages. None where the system does not tell.
    """
    if sys.platform != "linux":
        return None
    import resource

    page_bytes = resource.getpagesize()
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * page_bytes
    except (OSError, ValueError, IndexError):
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * page_bytes, resident


def open_files() -> int | None:
    """How many descriptors this process has open; None where the system does not tell.

    Takes some 10 microseconds, and half a microsecond for each.
    """
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # It was open itself.
        except OSError:
            continue
    return None


def open_files_limit() -> int | None:
    """How many descriptors this process may have; None where there is no limit, or none told."""
    try:
        import resource
    except ImportError:  # Windows.
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else int(limit)
