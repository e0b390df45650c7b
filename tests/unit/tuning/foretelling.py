"""Small simulated machines that were measured, and the larger ones that are the truth."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, replace

from stoker.tuning.answer import Answer, Limit, LimitKind, Rate, Work
from stoker.tuning.foretold import Foretold, Machine
from stoker.tuning.guesses import guesses
from stoker.tuning.noise import spread
from stoker.tuning.recommend import CountSummary
from stoker.tuning.simulate import foretell, row_for
from tests.unit.tuning.simulated import World, random_world

PLENTY = 1 << 50
NOISE = 0.04


def measured(
    world: World,
    counts: list[int],
    *,
    seed: int = 0,
    repeats: int = 5,
    limit: LimitKind = "unknown",
    worker_bytes: int | None = 100 << 20,
) -> Answer:
    """What is found about a loader in `world`."""
    draw = random.Random(seed)

    def about(value: float) -> float:
        return value * math.exp(draw.gauss(0, 0.015))

    work = Work(
        service_s=about(world.service_s),
        cpu_s=about(world.cpu * world.service_s),
        step_s=about(world.away_s),
        handling_s=world.handling_s,
        spread=world.spread,
        worker_bytes=worker_bytes,
        batch_bytes=1 << 20,
        start_s=world.start_s,
        doubt=0.015,
    )
    rates = tuple(_rate(world, count, repeats, draw) for count in counts)
    return Answer("train.py:31", None, "its step", rates=rates, limit=Limit(limit, ""), work=work)


def _rate(world: World, count: int, repeats: int, draw: random.Random) -> Rate:
    windows = [world.window(count, 100, 2.0, draw) for _ in range(repeats)]
    rates = [each.batches / each.seconds for each in windows]
    rate = statistics.median(rates)
    alone = count == 0
    return Rate(
        CountSummary(count, rate, rate, 0.1, None, spread(rates), repeats, "steady", True),
        waiting=statistics.median((w.waited_s + w.busy_s * alone) / w.seconds for w in windows),
        busy_workers=statistics.median(w.busy_s / w.seconds for w in windows),
        cpus_used=statistics.median(w.cpu_s / w.seconds for w in windows),
    )


def counts_for(world: World) -> list[int]:
    """0, 1, 2, 4, ... up to what would keep twice the CPUs busy."""
    top = max(2, min(64, math.ceil(2 * world.cpus / max(world.cpu, 0.05))))
    return [0, *(1 << at for at in range(10) if 1 << at < top), top]


@dataclass(frozen=True)
class Case:
    """One world here, what was foretold from it, and the truth there."""

    kind: str
    here: World
    there: World
    answer: Answer
    told: Foretold

    @property
    def best(self) -> tuple[int, float]:
        """The fewest workers within 5 % of the best rate, and what they give."""
        number, _ = self.there.best()
        return number, self.there.rate_per_s(number)

    @property
    def holds(self) -> bool:
        """Whether the range of doubt holds the truth: the best number, and its rate."""
        number, rate = self.best
        assert self.answer.work is not None
        guessed = guesses(self.answer, self.answer.work, self.here.cpus, machine(self.there))
        range_ = row_for(guessed, self.answer.work, number).batches_per_s
        return self.told.fewest <= number <= self.told.most and range_.low <= rate <= range_.high

    @property
    def shown(self) -> bool:
        """Whether contention was to be seen: a batch took clearly longer with what was reached."""
        longer = self.here.made_in_s(self.told.reach) / self.here.service_s
        reached = self.here.supply_per_s(self.told.reach) > 0.9 * self.here.ceiling_per_s
        return longer > 1.25 or reached

    @property
    def gives(self) -> float:
        """What the number that was told really gives, as a share of the best rate."""
        return self.there.rate_per_s(self.told.num_workers) / self.there.best()[1]


def machine(there: World) -> Machine:
    return Machine(there.cpus, PLENTY, there.away_s)


def case(seed: int) -> Case:
    """A random small machine, and a random large one with another step."""
    draw = random.Random(f"foretold {seed}")
    world = random_world(seed)
    world = replace(world, least=0, most=1024, noise=min(world.noise, NOISE))
    here = replace(world, cpus=draw.choice([2, 4, 8]))
    away_s = draw.choice([world.away_s, 0.0, draw.uniform(0.005, 0.2)])
    there = replace(world, cpus=draw.choice([16, 24, 64]), away_s=away_s)
    answer = measured(here, counts_for(here), seed=seed)
    told = foretell(answer, here.cpus, machine(there))
    return Case(kind_of(world), here, there, answer, told)


def kind_of(world: World) -> str:
    """What workers share in a world: "nothing", "ceiling", "contention" or "both"."""
    ceiling = math.isfinite(world.ceiling_per_s)
    if world.bending or world.queueing:
        return "both" if ceiling else "contention"
    return "ceiling" if ceiling else "nothing"
