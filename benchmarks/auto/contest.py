"""Has a loader that chooses and fixed numbers of workers take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.auto.consumers import Consumer
from benchmarks.auto.figures import Contest, finalists
from benchmarks.auto.plan import Plan
from benchmarks.auto.run import AutoRun, Stretch, fixed_loader, steady
from benchmarks.measure import quietly
from benchmarks.settings import Data

AUTO = -1
FAR = 0.7  # of the best rate: fewer workers than those will not come near it


@dataclass(frozen=True)
class Setup:
    """What is looked at, and for how long.

    Attributes:
        rounds: how many figures each contender gets.
        tell: called with what is measured next, for the one who waits.
    """

    data: Data
    consumer: Consumer
    plan: Plan
    rounds: int
    tell: Callable[[str], None]


def contest(setup: Setup, auto: AutoRun) -> Contest:
    """Measures the fixed counts once, and what comes close to the best in all rounds."""
    chosen, before = auto.workers, len(auto.changes())
    stretches: list[Stretch] = []
    workers: list[int] = []

    def auto_s_turn() -> None:
        setup.tell("auto")
        stretches.append(quietly(lambda: auto.steady(setup.plan)))
        workers.append(auto.workers)

    auto_s_turn()
    fixed = {count: [rate] for count, rate in _first_round(setup, chosen).items()}
    counts = finalists({count: rates[0] for count, rates in fixed.items()}, chosen)
    for number in range(1, setup.rounds):
        for contender in _in_turn([AUTO, *counts], number):
            if contender == AUTO:
                auto_s_turn()
            else:
                fixed[contender].append(fixed_rate(setup, contender))
    return Contest(
        fixed=fixed,
        auto=[stretch.per_s for stretch in stretches],
        workers=workers,
        changes=len(auto.changes()) - before,
        auto_s=sum(stretch.seconds for stretch in stretches),
    )


def _first_round(setup: Setup, chosen: int) -> dict[int, float]:
    """The rates of all counts; where they rise, from the largest down to a hopeless one."""
    rates: dict[int, float] = {}
    for count in sorted({*setup.plan.counts, chosen}, reverse=setup.plan.rising):
        hopeless = setup.plan.rising and rates and min(rates.values()) < FAR * max(rates.values())
        if count == chosen or not hopeless:
            rates[count] = fixed_rate(setup, count)
    return rates


def fixed_rate(setup: Setup, workers: int) -> float:
    """The steady rate of a fresh loader, in batches/s."""
    setup.tell(f"{workers} workers")
    return quietly(
        lambda: steady(fixed_loader(setup.data, workers), setup.consumer, setup.plan)
    ).per_s


def _in_turn(contenders: Sequence[int], number: int) -> list[int]:
    """Each round begins with another."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]
