"""The case that most works are: the loaders with the same number of workers, and some limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.figures import Case, Row, Target, Timing, Timings, steady
from benchmarks.measure import Window, time_window
from benchmarks.settings import Data, Settings


@dataclass(frozen=True)
class Limit:
    """What no loader can beat.

    Attributes:
        batches_per_s: measures it, anew at every call.
        how: says in one line how it is found, for the reader of the table.
    """

    batches_per_s: Callable[[], float]
    how: str


@dataclass(frozen=True)
class Batches:
    """What is loaded, in order and without end, and the part of it that is timed."""

    name: str
    data: Data
    window: Window


@dataclass(frozen=True)
class Comparison:
    """One row: every loader with so many workers, beside the limits."""

    batches: Batches
    workers: int
    targets: tuple[Target, ...]
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def case(self, settings: Settings) -> Case:
        contenders = {name: self._loader(settings, name) for name in settings.loaders}
        contenders |= {name: self._limit(limit) for name, limit in self.limits.items()}
        return Case(contenders, self._rows)

    def _loader(self, settings: Settings, name: str) -> Callable[[], Timing]:
        data, window = self.batches.data, self.batches.window
        make = settings.loaders[name]
        return lambda: time_window(
            make(data.samples, num_workers=self.workers, **data.arguments), window
        )

    @staticmethod
    def _limit(limit: Limit) -> Callable[[], Timing]:
        return lambda: Timing(limit.batches_per_s())

    def _rows(self, timings: Timings) -> list[Row]:
        data = self.batches.data
        return [
            Row(
                work=self.batches.name,
                title=data.title,
                workers=str(self.workers),
                figures={name: steady(values) for name, values in timings.items()},
                targets=self.targets,
                how={name: limit.how for name, limit in self.limits.items()},
                batch_bytes=data.batch_bytes,
            )
        ]
