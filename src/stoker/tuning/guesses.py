"""All that could be true of the work on another machine, after what was measured here. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stoker.tuning.answer import Answer, Work
from stoker.tuning.evidence import (
    Evidence,
    evidence,
    explanations,
    moved,
    shape,
    step_may_compute,
)
from stoker.tuning.foretold import Machine
from stoker.tuning.model import KNEE, MOST, Curve, Point
from stoker.tuning.scenario import BLUNT, SHARP, Scenario

SHARED = ("storage", "transport")
"""Limits that do not depend on CPUs, and are carried over."""
LOOK = 4
"""Contention that noise may have hidden is followed to so many times what was measured."""


@dataclass(frozen=True)
class Guesses:
    """What could be true there.

    Attributes:
        scenarios: The most likely one first.
        ceiling_per_s: The ceiling that was seen here and is carried over; infinite for none.
        contended: Whether workers were seen to slow each other down.
        crowding: Share of that which is CPU time; None when not known.
        step_may_compute: Whether the consumer's step may keep a CPU busy.
        reach: The most workers that were seen making batches at once.
    """

    scenarios: tuple[Scenario, ...]
    ceiling_per_s: float
    contended: bool
    crowding: float | None
    step_may_compute: bool
    reach: int


def guesses(answer: Answer, work: Work, cpus_here: float, there: Machine) -> Guesses:
    """Every explanation that fits, moved by the doubt there is."""
    seen = _hypotheses(answer, work, cpus_here)
    ways = [way for each in seen for way in _ways(each, answer, work, there)]
    best = ways[0].curve
    return Guesses(
        scenarios=tuple(ways),
        ceiling_per_s=best.ceiling_per_s,
        contended=bool(shape(best) - {"ceiling"}),
        crowding=seen[0].crowding,
        step_may_compute=any(each.step_cpus for each in seen),
        reach=max(each.reach for each in seen),
    )


def _hypotheses(answer: Answer, work: Work, cpus: float) -> list[Evidence]:
    """With a step that computes and with one that does not, unless only one explains the rates
    without inventing something that is shared.
    """
    seen = [evidence(answer, work, cpus, 0)]
    if step_may_compute(answer, work, cpus):
        seen.append(evidence(answer, work, cpus, 1))
    first = [explanations(each.points, each.floors)[0] for each in seen]
    simplest = min(len(shape(curve)) for curve in first)
    pairs = [pair for pair in zip(seen, first, strict=True) if len(shape(pair[1])) == simplest]
    return [each for each, _ in sorted(pairs, key=lambda pair: pair[1].cost)]


def _ways(seen: Evidence, answer: Answer, work: Work, there: Machine) -> Iterator[Scenario]:
    likely = explanations(seen.points, seen.floors)
    shapes = frozenset({"queueing"}).union(*map(shape, likely))
    reach = MOST if shape(likely[0]) else LOOK * seen.reach
    yield from _of(likely, seen.points, 1.0, seen, answer, work, there)
    for points, longer in moved(seen.points):
        found = explanations(points, seen.floors, shapes)
        if not shape(likely[0]):
            found = [_looked(curve, reach, there, work) for curve in found]
        yield from _of(found, points, longer, seen, answer, work, there)


def _looked(curve: Curve, reach: int, there: Machine, work: Work) -> Curve:
    """The curve with less contention, where that was not seen and is only not ruled out."""
    step_s = work.step_s if there.step_s is None else there.step_s
    per_s = min(there.cpus / max(work.cpu_s, 1e-9), 1 / max(step_s + work.handling_s, 1e-9))
    workers = curve.first_s * per_s
    return replace(curve, queueing_s=curve.queueing_s * min(1.0, reach / max(1.0, workers)))


def _of(
    found: Sequence[Curve],
    points: Sequence[Point],
    longer: float,
    seen: Evidence,
    answer: Answer,
    work: Work,
    there: Machine,
) -> Iterator[Scenario]:
    """The scenarios of some curves through `points`; the first one is the plainest."""
    crowding = (0.0, 1.0) if seen.crowding is None else (seen.crowding, 0.0, 1.0)
    speeds = {1.0: None, there.cpu_speed: None, 1 / there.cpu_speed: None}
    sharps = ((float(KNEE), 0.0), (SHARP, 0.0), (BLUNT, work.spread))
    for curve in found:
        each = Scenario(
            curve=_carried(curve, points, answer),
            offsets=_offsets(curve, points),
            main_s=seen.main_s * longer,
            cpu_s=work.cpu_s * longer,
            crowding=0.0,
            handling_s=work.handling_s,
            step_s=work.step_s if there.step_s is None else there.step_s,
            step_cpus=seen.step_cpus,
            cpus=there.cpus,
        )
        for crowded in crowding if shape(curve) - {"ceiling"} else (0.0,):
            for sharp, spread in sharps:
                for speed in speeds:
                    yield _faster(each, speed, crowded, sharp, spread)


def _carried(curve: Curve, points: Sequence[Point], answer: Answer) -> Curve:
    """Under the ceiling that was met here, where that does not depend on CPUs."""
    if answer.limit.kind not in SHARED or answer.limit.shared is False:
        return curve
    met_per_s = max(point.rate_per_s for point in points)
    return replace(curve, ceiling_per_s=min(curve.ceiling_per_s, met_per_s))


def _offsets(curve: Curve, points: Sequence[Point]) -> tuple[tuple[int, float], ...]:
    return tuple(
        (point.workers, math.log(point.rate_per_s / curve.rate_per_s(point.workers)))
        for point in points
    )


def _faster(each: Scenario, speed: float, crowding: float, sharp: float, spread: float) -> Scenario:
    """The scenario with CPUs that are `speed` times as fast."""
    share = min(1.0, each.cpu_s / each.curve.first_s)
    longer = 1 - share + share / speed
    return replace(
        each,
        curve=replace(each.curve, first_s=each.curve.first_s * longer),
        main_s=each.main_s * longer,
        cpu_s=each.cpu_s / speed,
        handling_s=each.handling_s / speed,
        crowding=crowding,
        sharp=sharp,
        spread=spread,
    )
