"""What was answered for one loader of a program, beside what a sweep found. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_SHARE = 0.95
MOST_OF_SWEEP = 0.1
MOST_S = 10.0  # a loader


@dataclass(frozen=True)
class Seen:
    """What one run of ``stoker tune`` says of one loader.

    Attributes:
        rates: batches/s by number of workers.
        answer: the number that it recommends; None without advice.
        waiting: share of the time that the consumer waited, with the script's own setting.
        step_s: the consumer's own time for a batch.
    """

    rates: Mapping[int, float]
    answer: int | None
    waiting: float | None
    step_s: float | None


@dataclass(frozen=True)
class Run:
    """One run of ``stoker tune``.

    Attributes:
        seconds: from its start to its end, the program's own start included.
        loaders: by name, as "plain_loop.py:104".
        failure: why there is nothing to see; empty where there is.
    """

    seconds: float
    loaders: Mapping[str, Seen]
    failure: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: a loader of a program.

    Attributes:
        program: its name.
        loader: the line that makes it; empty where the program gave none.
        rounds: rates in batches/s by number of workers, one mapping for each sweep.
        tuned: what the run without a sweep said; None where it did not know the loader.
        start_s: seconds of a run that stops after one batch: what the program's start and its
            end take, however long is measured between them.
        tune_s: seconds that the run with the answer took, beyond these.
        sweep_s: seconds that one sweep took beyond these, the median.
        failures: of runs that gave nothing.
        others_cpus: CPUs that other programs kept busy meanwhile, on average.
        loaders: of the program; one answer after the other is found.
    """

    program: str
    loader: str
    rounds: Sequence[Mapping[int, float]]
    tuned: Seen | None
    start_s: float
    tune_s: float
    sweep_s: float | None
    failures: Sequence[str]
    others_cpus: float
    loaders: int = 1

    @property
    def counts(self) -> list[int]:
        """The numbers of workers that some sweep has a rate for."""
        return sorted({count for rates in self.rounds for count in rates})

    def rates(self, count: int) -> list[float]:
        return [rates[count] for rates in self.rounds if count in rates]

    @property
    def best(self) -> int | None:
        """The count with the highest rate, of those that every sweep measured."""
        whole = [count for count in self.counts if len(self.rates(count)) == len(self.rounds)]
        return max(whole, key=lambda count: statistics.median(self.rates(count)), default=None)

    @property
    def fewest(self) -> int | None:
        """The fewest workers within 5 % of the best rate."""
        near = (count for count in self.counts if (self.share_of(count) or 0.0) >= LEAST_SHARE)
        return min(near, default=None)

    @property
    def answer(self) -> int | None:
        return None if self.tuned is None else self.tuned.answer

    @property
    def share(self) -> float | None:
        """The rate of the answered count over the best, both from the sweeps."""
        return None if self.answer is None else self.share_of(self.answer)

    @property
    def of_sweep(self) -> float | None:
        """The time for the answer over that of a sweep."""
        return None if not self.sweep_s else self.tune_s / self.sweep_s

    def share_of(self, count: int) -> float | None:
        """The median of ratios within one sweep, so that the machine's drift cancels out."""
        best = self.best
        if best is None:
            return None
        ratios = [
            rates[count] / rates[best]
            for rates in self.rounds
            if count in rates and rates.get(best, 0.0) > 0
        ]
        return statistics.median(ratios) if ratios else None

    def missed(self) -> list[str]:
        """What is off its target, in words; empty where all are reached."""
        if self.fewest is None:
            return ["no rate"]
        if self.answer is None:
            return ["no answer"]
        return [*self._share_missed(), *self._count_missed(), *self._time_missed()]

    def _share_missed(self) -> list[str]:
        share = self.share
        if share is None:
            return ["rate unknown"]
        return [] if share >= LEAST_SHARE else [f"rate {share:.0%}"]

    def _count_missed(self) -> list[str]:
        answer, fewest = self.answer, self.fewest
        if answer is None or fewest is None or answer <= fewest:
            return []
        return [f"{answer} workers, {fewest} would do"]

    def _time_missed(self) -> list[str]:
        most_s = max(MOST_S * self.loaders, MOST_OF_SWEEP * (self.sweep_s or 0.0))
        return [] if self.tune_s <= most_s else [f"took {self.tune_s:.0f} s of {most_s:.0f}"]


def rows(
    program: str, started: Run, tuned: Run, sweeps: Sequence[Run], others_cpus: float
) -> list[Row]:
    """A line for each loader that any of the runs saw; one line where none did."""
    whole = [sweep for sweep in sweeps if not sweep.failure]
    failures = [run.failure for run in (started, tuned, *sweeps) if run.failure]
    sweeps_s = [max(0.0, sweep.seconds - started.seconds) for sweep in whole]
    names = dict.fromkeys(name for run in (tuned, *whole) for name in run.loaders)
    return [
        Row(
            program=program,
            loader=name,
            rounds=[sweep.loaders[name].rates for sweep in whole if name in sweep.loaders],
            tuned=tuned.loaders.get(name),
            start_s=started.seconds,
            tune_s=max(0.0, tuned.seconds - started.seconds),
            sweep_s=statistics.median(sweeps_s) if sweeps_s else None,
            failures=failures,
            others_cpus=others_cpus,
            loaders=max(1, len(names)),
        )
        for name in names or ("",)
    ]
