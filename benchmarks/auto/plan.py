"""How long each work is looked at, and beside which fixed numbers of workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

QUICK = 0.5  # the part of each window that a quick run takes
MOST_S = 20.0
QUIET_S = 3.0


@dataclass(frozen=True)
class Plan:
    """Times and counts for one work.

    Attributes:
        counts: the fixed numbers of workers, ascending.
        window_s: how long a steady rate is measured, at least.
        warm_up: batches that come before it, at least: until memory has been touched.
        quiet_s: the loader has settled when it has changed nothing for so long.
        least_s: how long it is looked at before that, in any case.
        most_s: how long that is waited for.
        rounds: whether workers finish together, so that whole rounds of batches are counted.
        rising: whether up to the best number each worker adds, so that those far below it
            need not be measured.
    """

    counts: tuple[int, ...]
    window_s: float
    warm_up: int = 1
    quiet_s: float = QUIET_S
    least_s: float = 0.0
    most_s: float = MOST_S
    rounds: bool = False
    rising: bool = False

    def scaled(self, factor: float) -> Plan:
        """With other windows; how long a loader takes to settle does not depend on them."""
        return replace(self, window_s=self.window_s * factor)


ON_CPUS = (0, 1, 2, 3, 4)
READY = Plan(ON_CPUS, window_s=0.75)

PLANS: dict[str, Plan] = {
    "large": replace(READY, warm_up=24),
    "small": READY,
    "fields": READY,
    "uneven": Plan(
        (0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32), window_s=1.0, quiet_s=4.0, rising=True
    ),
    "jpeg": Plan(ON_CPUS, window_s=1.25),
    "waiting": Plan(
        (0, 2, 4, 8, 12, 16, 20, 24, 32), window_s=1.2, quiet_s=4.0, rounds=True, rising=True
    ),
    "mnist": READY,
}
"""By the name of the work."""
