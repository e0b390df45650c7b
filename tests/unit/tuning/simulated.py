"""A simulated machine: what a loader with n workers would be seen to do, and the truth behind it.

Pure: a world knows its noise-free rate for every number of workers, and gives windows with the
noise that few batches and a busy machine make.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from stoker.feed.window import Window
from stoker.tuning.controller import Controller
from stoker.tuning.decision import Bounds, Decision

NO_CEILING = math.inf


@dataclass(frozen=True)
class World:
    """One data set, one consumer and one machine. Seconds of wall clock, a batch.

    Attributes:
        service_s: Making a batch alone; `cpu` is the share of it that computes.
        away_s: The consumer's step; `computing` where that needs a CPU.
        handling_s: The main process's work for a batch that a worker made.
        queueing, bending: Contention: n workers at once are slower by
            ``1 + queueing * (n - 1) + bending * n * (n - 1)``.
        crowding: Share of the contention that is CPU time (memory is slow), not waiting.
        ceiling_per_s: The most batches a second that what they share can give.
        sharp: How sharply one limit takes over from another (the exponent of a soft minimum).
        spread: Standard deviation of the log of one batch's service time.
        noise: Standard deviation of the log of the rate of one window, however long; on real
            machines 2 to 6 %, which averages out over windows.
        outliers: Share of windows that go at half the speed.
        alone_s: Making a batch in the main process where that differs: it may use more threads,
            or touch memory for the first time.
        measured_per_s: Rates of a real machine with 0, 1, ... workers, for what no formula gives.
        stretching: Share of what those leave unexplained that is the consumer's own time, slowed
            by the workers beside it; the rest is waiting.
        least, most: Fewest and most workers allowed (`most` is what memory allows).
    """

    cpus: float = 2
    service_s: float = 0.01
    cpu: float = 1.0
    away_s: float = 0.0
    computing: bool = False
    handling_s: float = 0.0002
    queueing: float = 0.0
    bending: float = 0.0
    crowding: float = 0.0
    ceiling_per_s: float = NO_CEILING
    sharp: float = 24.0
    spread: float = 0.2
    noise: float = 0.03
    outliers: float = 0.0
    least: int = 0
    most: int = 512
    start_s: float = 0.03
    sees_starving: bool = True
    alone_s: float | None = None
    measured_per_s: tuple[float, ...] = ()
    stretching: float = 0.0

    def bounds(self, batches_left: int | None = None) -> Bounds:
        return Bounds(
            cpus=self.cpus,
            cpus_source="the simulated machine",
            workers=self.most,
            workers_source="memory",
            least=self.least,
            start_s=self.start_s,
            batches_left=batches_left,
        )

    def made_in_s(self, busy: float) -> float:
        """Making a batch while `busy` workers make one, before CPUs are shared."""
        beside = max(0.0, busy - 1)
        return self.service_s * (1 + self.queueing * beside + self.bending * busy * beside)

    def computes_s(self, busy: float) -> float:
        """CPU time of a batch."""
        slower_s = self.made_in_s(busy) - self.service_s
        return self.cpu * (self.service_s + self.crowding * slower_s)

    def supply_per_s(self, busy: float) -> float:
        """Batches a second that `busy` workers make if nobody keeps them from it."""
        cpu_s = self.computes_s(busy) + self.handling_s + self.away_s * self.computing
        limits = [busy / self.made_in_s(busy), self.ceiling_per_s, self.cpus / cpu_s]
        return soft_minimum(limits, self.sharp)

    def rate_per_s(self, workers: int) -> float:
        """Batches a second with this many workers: the truth."""
        if self.measured_per_s:
            return self.measured_per_s[min(workers, len(self.measured_per_s) - 1)]
        if workers == 0:
            slower = [max(1.0, share / self.cpus) for share in (self.cpu, self.computing)]
            alone_s = (self.alone_s or self.service_s) * slower[0] + self.away_s * slower[1]
            return soft_minimum([1 / alone_s, self.ceiling_per_s], self.sharp)
        limits = [self.supply_per_s(workers), 1 / (self.away_s + self.handling_s)]
        return soft_minimum(limits, self.sharp)

    def best(self) -> tuple[int, float]:
        """The fewest workers within 5 % of the best rate, and that rate."""
        return _best(self)

    def window(self, workers: int, batches: int, seconds: float, draw: random.Random) -> Window:
        """What is seen of at least so many batches and so many seconds."""
        count = max(batches, math.ceil(seconds * self.rate_per_s(workers)), 1)
        few = self.spread / math.sqrt(count * (4 if workers else 1))  # prefetching evens out
        seen = replace(
            self,
            service_s=self.service_s * math.exp(draw.gauss(0, few)),
            away_s=self.away_s * math.exp(draw.gauss(0, 0.02 / math.sqrt(count))),
        )
        slow = math.exp(draw.gauss(0, self.noise) + draw.gauss(0, 0.3 if workers else 0) / count)
        if draw.random() < self.outliers:
            slow *= 2
        return seen._shown(workers, count, slow)

    def _shown(self, workers: int, count: int, slow: float) -> Window:
        seconds = count / self.rate_per_s(workers) * slow
        if workers == 0:
            away_s = min(self.away_s * count * slow, seconds)
            busy_s, waited_s, handling_s, starved_s = seconds - away_s, 0.0, 0.0, 0.0
            computed_s = self.cpu * (self.alone_s or self.service_s)
        else:
            away_s, handling_s = (each * count * slow for each in (self.away_s, self.handling_s))
            waited_s = max(0.0, seconds - away_s - handling_s)
            away_s, waited_s = away_s + self.stretching * waited_s, (1 - self.stretching) * waited_s
            busy = self._busy(workers, waited_s / seconds)
            busy_s = busy * seconds
            starved_s = max(0.0, busy_s - count * self.made_in_s(busy) * slow)
            starved_s *= self._cpu_bound(workers)
            computed_s = self.computes_s(busy)
            if self.measured_per_s:  # memory is slow: waiting for it is computing
                computed_s = min(busy, self.cpus) * seconds / count
                starved_s = max(0.0, busy_s - self.cpus * seconds)
        return Window(
            workers=workers,
            batches=count,
            seconds=seconds,
            waited_s=waited_s,
            away_s=away_s,
            handling_s=handling_s,
            made=count,
            busy_s=busy_s,
            cpu_s=min(computed_s * count * math.sqrt(slow), busy_s),
            starved_s=starved_s if self.sees_starving else None,
            order_s=0.0,
            batch_bytes=1 << 20,
        )

    def _busy(self, workers: int, waiting: float) -> float:
        """Mean busy workers: just enough for the rate, or all where the consumer waits."""
        low, high, rate = 0.0, float(workers), self.rate_per_s(workers)
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if self.supply_per_s(middle) < rate else (low, middle)
        idle = waiting if self.measured_per_s else min(1.0, 8 * waiting)
        return high + (workers - high) * idle

    def _cpu_bound(self, workers: int) -> bool:
        cpu_s = self.computes_s(workers) + self.handling_s + self.away_s * self.computing
        return self.rate_per_s(workers) > 0.9 * self.cpus / cpu_s


def soft_minimum(limits: list[float], sharp: float) -> float:
    least = min(limits)
    return least * math.pow(sum((least / limit) ** sharp for limit in limits), -1 / sharp)


@cache
def _best(world: World) -> tuple[int, float]:
    rates = {n: world.rate_per_s(n) for n in range(world.least, world.most + 1)}
    best = max(rates.values())
    return min(n for n, rate in rates.items() if rate >= 0.95 * best), best


@dataclass
class Life:
    """What became of one loader in one world."""

    workers: int
    now_s: float = 0.0
    changes: list[tuple[float, Decision]] = field(default_factory=list)
    settled_s: float | None = None

    def changes_after(self, start_s: float) -> int:
        return sum(at_s > start_s for at_s, _ in self.changes)


def live(
    world: World | Callable[[float], World],
    seconds: float,
    seed: int = 0,
    *,
    until_settled: bool = False,
    life: Life | None = None,
    controller: Controller | None = None,
    batches_left: int | None = None,
) -> tuple[Life, Controller]:
    """Run a loader under a controller for so many simulated seconds, or until it settles."""
    draw = random.Random(seed)
    world_at = world if callable(world) else lambda _: world
    controller = controller or Controller()
    life = life or Life(world_at(0.0).least)
    end_s = life.now_s + seconds
    while life.now_s < end_s and not (until_settled and controller.settled):
        here = world_at(life.now_s)
        batches, least_s = controller.wanted
        window = here.window(life.workers, batches, least_s, draw)
        life.now_s += window.seconds
        decision = controller.observe(window, here.bounds(batches_left))
        if decision is not None and decision.workers != life.workers:
            _perform(life, decision, here, controller)
        if life.settled_s is None and controller.settled:
            life.settled_s = life.now_s
    return life, controller


def _perform(life: Life, decision: Decision, world: World, controller: Controller) -> None:
    assert decision.before == life.workers
    life.changes.append((life.now_s, decision))
    added = max(0, decision.workers - life.workers)
    life.now_s += world.start_s * added + world.made_in_s(max(1, decision.workers))
    life.workers = decision.workers
    controller.changed(life.workers)


def random_world(seed: int) -> World:
    """A world of any kind: the seed chooses it."""
    draw = random.Random(f"world {seed}")
    service_s = _log_uniform(draw, 50e-6, 2.0)
    cpus = draw.choice([1, 2, 2, 4, 8, 24, 64, 256]) / draw.choice([1, 1, 1, 2, 8])
    world = World(
        cpus=max(0.5, cpus),
        service_s=service_s,
        cpu=draw.choice([1.0, 1.0, _log_uniform(draw, 0.02, 1.0)]),
        away_s=draw.choice([0.0, 0.0, _log_uniform(draw, 1e-3, 1.0), service_s * draw.random()]),
        computing=draw.random() < 0.3,
        handling_s=_log_uniform(draw, 1.5e-4, 5e-4),
        sharp=draw.uniform(14, 40),
        spread=draw.choice([0.05, 0.2, 0.5, 0.8]),
        crowding=draw.choice([0.0, 0.5, 1.0]),
        noise=draw.uniform(0.02, 0.08),
        outliers=draw.choice([0.0, 0.03]),
        most=draw.choice([512, 512, 512, draw.randint(1, 40)]),
        start_s=_log_uniform(draw, 0.02, 3.0),
        sees_starving=draw.random() < 0.7,
    )
    return _hindered(world, draw)


def _hindered(world: World, draw: random.Random) -> World:
    """Adds a ceiling, contention, both or neither."""
    kind = draw.choice(["none", "none", "ceiling", "peak", "queueing", "both"])
    reach = min(world.most, max(2.0, world.cpus / world.cpu))
    if kind in ("ceiling", "both"):
        share = draw.uniform(0.05, 1.0)
        world = replace(world, ceiling_per_s=max(1.2, reach * share) / world.service_s)
    if kind in ("peak", "both"):
        world = replace(world, bending=1 / max(1.5, draw.uniform(0.1, 1.2) * reach) ** 2)
    if kind in ("queueing", "both"):
        world = replace(world, queueing=draw.uniform(0, 0.2))
    return world


def _log_uniform(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))
