"""Whether something has taken CPUs away from this process after Stoker was imported.

Some libraries narrow the affinity mask of the process that imports them; its workers
inherit it and queue for the few CPUs left. The mask is remembered when this module is
imported, which the package does first of all. What was narrow by then is not known to be
wrong: taskset, a launcher or a container may have meant it.
"""

from __future__ import annotations

from pathlib import Path

from stoker.host.cpus import cgroup_cpuset, mask_now

_AT_IMPORT = mask_now()


def mask_at_import() -> frozenset[int] | None:
    """As `mask_now` was when this module was imported; None where nothing could tell."""
    return _AT_IMPORT


def affinity_finding(root: Path = Path("/")) -> str | None:
    """What to tell the user about the mask of this process; None if nothing is known wrong.

    Args:
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.
    """
    first, now = mask_at_import(), mask_now()
    if first is None or now is None or not _shrunk(first, now):
        return None
    lent = cgroup_cpuset(root).value  # a group that was narrowed is no library's doing
    return process_finding(first if lent is None else first & lent, now)


def process_finding(first: frozenset[int] | None, now: frozenset[int] | None) -> str | None:
    """As `affinity_finding`, of masks that are given.

    Args:
        first: The mask at import, without CPUs that the system has taken away since.
        now: The mask at present.
    """
    if first is None or now is None or not _shrunk(first, now):
        return None
    return (
        f"this process may run on {len(now)} of the {len(first | now)} CPUs that it could use when "
        f"stoker was imported: a library has probably changed the affinity; "
        f"os.sched_setaffinity(0, {_as_python(first)}) gives them back"
    )


def worker_finding(
    worker: int, process: frozenset[int] | None, inside: frozenset[int] | None
) -> str | None:
    """What to tell about a worker's mask beside that of the process which started it.

    Args:
        worker: Number of the worker.
        process: The mask of the main process when it started the worker.
        inside: The mask that the worker reports.
    """
    if process is None or inside is None or not _shrunk(process, inside):
        return None
    return (
        f"worker {worker} may run on {len(inside)} of the {len(process | inside)} CPUs of the main "
        f"process: worker_init_fn, or what is imported there, has probably changed the affinity; "
        f"os.sched_setaffinity(0, {_as_python(process)}) at the end of worker_init_fn "
        f"gives them back"
    )


def _shrunk(before: frozenset[int], now: frozenset[int]) -> bool:
    """Moved to as many others is somebody's choice; fewer of the same is what hurts."""
    return bool(before - now) and len(now) < len(before)


def _as_python(cpus: frozenset[int]) -> str:
    """A set as a user can paste it: ``{0, 2}``, or ``range(0, 64)``."""
    numbers = sorted(cpus)
    if len(numbers) > 4 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"range({numbers[0]}, {numbers[-1] + 1})"
    return "{" + ", ".join(map(str, numbers)) + "}"
