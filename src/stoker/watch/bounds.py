"""How many workers a program's loader may be tried with."""

from __future__ import annotations

from stoker.host.limits import limit_facts
from stoker.host.memory import memory_facts
from stoker.host.ranks import CpuShare, cpu_share
from stoker.tuning.decision import Bounds

_WORKERS_PER_CPU, _FEWEST_CAP, _LARGEST_CAP = 4, 32, 128
_MEMORY_SHARE = 0.5
_FORKED_BYTES, _FRESH_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_DESCRIPTORS_A_WORKER, _DESCRIPTORS_LEFT_ALONE = 8, 64
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


def _most(share: CpuShare, method: str) -> tuple[int, str]:
    own = min(max(_WORKERS_PER_CPU * int(share.cpus.value), _FEWEST_CAP), _LARGEST_CAP)
    memory, limits = memory_facts().available_bytes, limit_facts()
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
