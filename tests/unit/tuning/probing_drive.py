"""Drives a `Prober` with a simulated machine, as a program's loader does. Pure.

What a visit costs is counted as the program would feel it: workers are started anew, and the
first batches of each are handed out without being measured.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from stoker.tuning.probing import Ask, Prober, Setting
from tests.unit.tuning.simulated import World, random_world

FORK_S = 0.01
"""Seconds to start one worker by fork."""
TRIAL_S = 0.001
"""What the program's bounds say that a start costs: it is run to be measured."""
WORKERS_PER_CPU, FEWEST_CAP, LARGEST_CAP = 4, 16, 128
"""How many workers are tried in a program at most; as in `stoker.watch.bounds`."""
MOST_WINDOWS = 1000
"""A prober that is not done after so many never will be."""


@dataclass
class Drive:
    """What became of one loader.

    Attributes:
        now_s: Simulated seconds that the program has run.
        stages_s: These by stage.
        starts: Times that workers were started or ended for another setting.
        seen_s: When it saw the last window.
        asks: Everything that was measured, in order.
    """

    prober: Prober
    now_s: float = 0.0
    stages_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    starts: int = 0
    seen_s: float = 0.0
    asks: list[Ask] = field(default_factory=list)

    @property
    def chosen(self) -> int:
        return self.prober.chosen

    def pass_s(self, stage: str, seconds: float) -> None:
        self.now_s += seconds
        self.stages_s[stage] += seconds


def program_world(seed: int) -> World:
    """A random world with the bounds that a program's loader has."""
    world = random_world(seed)
    cap = min(max(WORKERS_PER_CPU * int(world.cpus), FEWEST_CAP), LARGEST_CAP)
    return replace(world, start_s=TRIAL_S, most=min(world.most, cap))


def start_cost_s(world: World, setting: Setting) -> float:
    """Until a setting is steady: its workers start, and each makes a batch that is not counted."""
    count = setting.workers
    if count == 0:
        return 1 / world.rate_per_s(0)
    return FORK_S * count + world.made_in_s(count) + count / world.rate_per_s(count)


def drive(
    world: World | Callable[[float], World],
    prober: Prober,
    seed: int = 0,
    *,
    fails: Collection[int] = (),
    until: Callable[[Drive], bool] = lambda _: False,
) -> Drive:
    """Run a program until its prober is done.

    Args:
        world: The machine, or the machine at a second.
        prober: A new one.
        seed: Of the noise.
        fails: Numbers of workers with which the loader raises.
        until: Looked at before every window.
    """
    draw = random.Random(f"drive {seed}")
    world_at = world if callable(world) else lambda _: world
    life = Drive(prober)
    running: tuple[str, int, Setting] | None = None
    while prober.stage != "done" and not until(life):
        ask, here = prober.ask, world_at(life.now_s)
        wanted = (ask.stage, ask.round, ask.setting)
        if running is None or running[2] != ask.setting or (ask.fresh and running != wanted):
            life.starts += 1
            life.pass_s(ask.stage, start_cost_s(here, ask.setting))
        running = wanted
        if ask.setting.workers in fails and ask.stage != "replay":
            prober.failed(ask.setting.workers, "an error of the loader")
            running = None
            continue
        _measure(life, ask, here, draw)
        if len(life.asks) > MOST_WINDOWS:
            raise AssertionError(f"still in {prober.stage} after {MOST_WINDOWS} windows")
    return life


def _measure(life: Drive, ask: Ask, world: World, draw: random.Random) -> None:
    if ask.stage == "replay":
        fed = replace(world, service_s=1e-6, alone_s=None, measured_per_s=())
        window = replace(fed.window(0, ask.batches, ask.seconds, draw), busy_s=1e-6)
    else:
        window = world.window(ask.setting.workers, ask.batches, ask.seconds, draw)
    life.asks.append(ask)
    life.pass_s(ask.stage, window.seconds)
    life.prober.observe(window, world.bounds(), life.now_s - life.seen_s)
    life.seen_s = life.now_s


def share_of_best(world: World, count: int) -> float:
    """The noise-free rate of a number, over the best there is."""
    return world.rate_per_s(count) / world.best()[1]


def fewest_within(world: World, share: float) -> int:
    """The fewest workers that lose no more than that share of the best rate."""
    enough = (1 - share) * world.best()[1]
    counts = range(world.least, world.most + 1)
    return min(n for n in counts if world.rate_per_s(n) >= enough)


def is_fewest(world: World, count: int) -> bool:
    """Whether no fewer would do: up to 2 % is the same, and up to 5 % either may be taken.

    Where there are many, one in twenty more is no error: no measurement would tell them apart.
    """
    most = fewest_within(world, 0.02)
    return fewest_within(world, 0.05) <= count <= most + int(0.05 * most)
