"""Another machine, and what was foretold for it: plain, frozen records. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.tuning.answer import Limit


@dataclass(frozen=True)
class Machine:
    """A machine that one does not have.

    Attributes:
        cpus: CPUs that may be used; a quota may be a fraction.
        memory_bytes: Memory that there is.
        step_s: The consumer's step there; None for the one that was measured.
        cpu_speed: A CPU there is up to so many times as fast as one here, or as slow; 1.0 for
            as fast as here.
    """

    cpus: float
    memory_bytes: int
    step_s: float | None = None
    cpu_speed: float = 1.0


@dataclass(frozen=True)
class Range:
    """A number that is not known well: what is expected, and from where to where it may be."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class Row:
    """What a number of workers would give.

    Attributes:
        num_workers: The number.
        batches_per_s: What the consumer would get.
        waiting: Share of the time that it would wait.
        memory_bytes: Of the workers and the batches in flight; None when not known.
    """

    num_workers: int
    batches_per_s: Range
    waiting: Range
    memory_bytes: int | None


@dataclass(frozen=True)
class Foretold:
    """What one loader would want there.

    Attributes:
        name: As in its answer.
        consumer: What used the batches here.
        num_workers: The number to begin with.
        fewest: The best number is hardly below this.
        most: It is hardly above this.
        batches_per_s: With `num_workers`.
        waiting: Share of the time that the consumer would wait, with `num_workers`.
        memory_bytes: The same number's; None when not known.
        limit: What would keep batches from coming faster.
        rows: Some numbers of workers, rising; `num_workers` is among them.
        reach: The most workers that were seen making batches at once here.
        assumptions: What all this rests on, a sentence each.
        fits: Whether there is memory for one batch at all.
    """

    name: str
    consumer: str
    num_workers: int
    fewest: int
    most: int
    batches_per_s: Range
    waiting: Range
    memory_bytes: int | None
    limit: Limit
    rows: tuple[Row, ...]
    reach: int
    assumptions: tuple[str, ...]
    fits: bool = True
