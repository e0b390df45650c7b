"""How many workers a program's loader may be tried with."""

from __future__ import annotations

from typing import Any

from stoker.host import rerun
from stoker.host.limits import limit_facts
from stoker.host.memory import memory_facts
from stoker.host.ranks import CpuShare, cpu_share
from stoker.tuning.decision import Bounds
from stoker.tuning.loader_facts import is_iterable
from stoker.tuning.result import Failure
from stoker.tuning.wording import workers as workers_of
from stoker.watch.looking import shares

_WORKERS_PER_CPU, _FEWEST_CAP, _LARGEST_CAP = 4, 32, 128
_FRESH_PER_CPU, _FEWEST_FRESH = 2, 4
"""Fresh interpreters take seconds of CPU time each to come up: many would outlast the run."""
_MEMORY_SHARE = 0.5
_FORKED_BYTES, _FRESH_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_DESCRIPTORS_A_WORKER, _DESCRIPTORS_LEFT_ALONE = 8, 64
_UNSHARED = "how an iterable data set shares itself out (each worker would read all of it)"
_INIT_ONLY = "worker_init_fn runs in workers only"
_START_S = 0.001
"""What a trial costs is not held against it: the program is run to be measured."""


class Limits:
    """What may be used, looked up once.

    Args:
        method: How processes are started.
        others_cpus: CPUs that other loaders of the program keep busy.
    """

    def __init__(self, method: str, others_cpus: float = 0.0) -> None:
        self.share: CpuShare = cpu_share()
        self.most, self.most_source = _most(self.share, method)
        self.others_cpus = others_cpus

    def bounds(self, *, least: int = 0, most: int | None = None, why: str = "") -> Bounds:
        """What may be used.

        Args:
            least: The fewest workers.
            most: The most, for a reason of the loader's own; `why` tells it.
            why: Ends "the most that ... allows".
        """
        workers, source = self.most, self.most_source
        if most is not None and most < workers:
            workers, source = most, why
        cpus = max(self.share.cpus.value - self.others_cpus, 0.3 * self.share.cpus.value)
        return Bounds(
            cpus=cpus,
            cpus_source=self.share.cpus.source,
            workers=max(workers, least),
            workers_source=source,
            least=least,
            start_s=_START_S,
        )


class Allowed:
    """Numbers of workers that change nothing but the speed of one line's loaders.

    Args:
        loader: The first loader of the line.
        own: The program's own number of workers.
        method: How processes are started.
        folder: Of this run.
    """

    def __init__(self, loader: Any, own: int, method: str, folder: str) -> None:
        self._limits = Limits(method)
        self._kind, self._folder = type(loader.dataset), folder
        self._iterable, self._most = is_iterable(loader), max(1, own)
        self._least = int(getattr(loader, "worker_init_fn", None) is not None and own > 0)
        self._runs_again = method != "fork" and not own and rerun.would_run_again()

    @property
    def shares(self) -> bool:
        """Whether the data set shares itself out, as far as has been seen."""
        return shares(self._folder, self._kind)

    def failures(self) -> list[Failure]:
        """What can't be tried at all."""
        if not self._runs_again:
            return []
        what = f"none was started, because {rerun.WHY}; {rerun.CHANGE}"
        return [Failure("raised", 1, what, "trying workers", "", rerun.CHANGE)]

    def bounds(self) -> Bounds:
        """What may be used."""
        if self._runs_again:
            return self._limits.bounds(most=0, why=rerun.WHY)
        if self._iterable and not self.shares:
            return self._limits.bounds(least=self._least, most=self._most, why=_UNSHARED)
        return self._limits.bounds(least=self._least)

    def told(self) -> dict[str, Any]:
        """Fields of a `SiteRecord`."""
        bounds = self.bounds()
        return {
            "cpus": (bounds.cpus, bounds.cpus_source),
            "workers_most": (bounds.workers, bounds.workers_source),
            "shards": self.shares if self._iterable else None,
        }

    def forbids(self, workers: int) -> str:
        """Why so many workers must not be tried; empty where they may."""
        if workers and self._runs_again:
            return rerun.WHY
        if workers < self._least:
            return f"{workers_of(workers)} would change what is read: {_INIT_ONLY}"
        if self._iterable and workers > self._most and not self.shares:
            return f"{workers_of(workers)} would change what is read: {_UNSHARED}"
        return ""


def _most(share: CpuShare, method: str) -> tuple[int, str]:
    own = min(max(_WORKERS_PER_CPU * int(share.cpus.value), _FEWEST_CAP), _LARGEST_CAP)
    memory, limits = memory_facts().available_bytes, limit_facts()
    if method != "fork":
        own = min(own, max(_FEWEST_FRESH, _FRESH_PER_CPU * int(share.cpus.value)))
    each = _FORKED_BYTES if method == "fork" else _FRESH_BYTES
    by_memory = int(memory.value * _MEMORY_SHARE / share.ranks.value // each)
    caps = [
        (own, f"the most worth trying on {share.cpus.value:g} CPUs"),
        (by_memory, f"memory: {memory.value / 1e9:.1f} GB are left ({memory.source})"),
    ]
    free = limits.descriptors_free
    if free is not None:
        spare = max(0, free - _DESCRIPTORS_LEFT_ALONE) // _DESCRIPTORS_A_WORKER
        caps.append((spare, f"the limit of open files: {free} are left"))
    return min(caps)
