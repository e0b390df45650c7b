"""What the controller may choose within, and what it chose. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """What a loader may use at this moment.

    Attributes:
        cpus: CPUs for its work: this process's share of the machine, less what other live
            loaders of the process use; at least a fraction of one. They bound CPU work, not
            waiting.
        cpus_source: Where that number comes from, in plain words.
        workers: The most worker processes, for reasons other than CPUs; at least `least`.
        workers_source: What sets that: memory, descriptors, the loader's own limit.
        least: The fewest: 1 where something needs a worker, else 0.
        start_s: What starting one worker takes, in seconds.
        batches_left: Batches still to come in this epoch; None when unknown.
    """

    cpus: float
    cpus_source: str
    workers: int
    workers_source: str
    least: int = 0
    start_s: float = 0.05
    batches_left: int | None = None


@dataclass(frozen=True)
class Decision:
    """One choice of a number of workers.

    Attributes:
        before: Workers until then.
        workers: Workers from then on. The same as `before` where the decision is to stay.
        reason: Why, in one sentence with the numbers, for people.
        evidence: What the reason rests on: pairs of a name with its unit, and a value.
        at_s: When, in seconds since the loader began its first epoch; set by who performs it.
        batch: How many batches had been handed out by then; set by who performs it.
    """

    before: int
    workers: int
    reason: str
    evidence: tuple[tuple[str, float], ...] = ()
    at_s: float = 0.0
    batch: int = 0
