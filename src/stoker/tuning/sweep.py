"""Runs the trials that the search asks for, and keeps what they gave whatever happens. Pure:
how a trial is run, the clock and the display are arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.tuning.meter import Observation
from stoker.tuning.reason import reason
from stoker.tuning.recommend import summarise
from stoker.tuning.result import Failure, LoaderFacts, Outcome, Recommendation, TuneResult
from stoker.tuning.search import Search, Trial
from stoker.tuning.wording import workers

if TYPE_CHECKING:
    from stoker.host.cpus import CpuFacts
    from stoker.host.software import SoftwareFacts

Progress = Callable[[int, "Observation | None"], None]
Measure = Callable[[Trial, Progress], Outcome]


@dataclass(frozen=True)
class Moment:
    """Where a sweep stands, for whoever shows it.

    Attributes:
        trial: The trial that runs or has just ended.
        done: Trials that have ended.
        planned: Trials known so far, those included.
        observation: What the trial says so far; None before it says anything.
        ended: Whether it has ended.
    """

    trial: Trial
    done: int
    planned: int
    observation: Observation | None
    ended: bool


class Sweep:
    """One run of ``stoker tune`` on one target.

    Args:
        search: Which trial comes next.
        measure: Runs one trial; blocks.
        clock: Seconds that never go back.
        show: Called as the sweep moves on, in the same thread.
    """

    def __init__(
        self,
        search: Search,
        measure: Measure,
        clock: Callable[[], float],
        show: Callable[[Moment], None],
    ) -> None:
        self._search, self._measure, self._clock, self._show = search, measure, clock, show
        self._failures: list[Failure] = []
        self._loader: LoaderFacts | None = None
        self._running: tuple[Trial, Observation | None] | None = None
        self._began = clock()
        self._done = 0

    def run(self) -> None:
        """Run trials until the search is satisfied or the target proves unusable.

        Raises:
            KeyboardInterrupt: Passed on; call ``interrupted`` and then ``result``.
        """
        while (trial := self._search.next(self._clock() - self._began)) is not None:
            self._running = trial, None
            self._tell(trial, None, ended=False)
            outcome = self._measure(trial, self._progress)
            self._running = None
            self._take(trial, outcome)
            if outcome.failure is not None and outcome.failure.kind == "target":
                return

    def interrupted(self, what: str) -> None:
        """Note that the sweep was ended from outside, and keep the running trial's part."""
        if self._running is None:
            self._failures.append(Failure("interrupted", None, what))
            return
        trial, observation = self._running
        self._running = None
        if observation is not None:
            self._search.record(observation)
        doing = f"measuring {workers(trial.num_workers)}"
        self._failures.append(Failure("interrupted", trial.num_workers, what, doing))

    def result(self, target: str, cpus: CpuFacts, software: SoftwareFacts) -> TuneResult:
        """Everything found up to now."""
        observations = tuple(self._search.observations)
        return TuneResult(
            target=target,
            loader=self._loader,
            counts=tuple(summarise(observations)),
            observations=observations,
            recommendation=self._recommendation(),
            failures=tuple(self._failures),
            cpus=cpus,
            software=software,
            elapsed_s=self._clock() - self._began,
        )

    def _recommendation(self) -> Recommendation | None:
        decision = self._search.decision()
        if decision is None:
            return None
        whole = [seen for seen in self._search.observations if seen.complete]
        counts = [each for each in summarise(whole) if each.num_workers in decision.comparisons]
        chosen = next(each for each in counts if each.num_workers == decision.chosen)
        return Recommendation(
            num_workers=decision.chosen,
            batches_per_s=chosen.batches_per_s,
            reason=reason(decision, counts),
            certain=not decision.contested,
        )

    def _take(self, trial: Trial, outcome: Outcome) -> None:
        self._done += 1
        self._loader = self._loader or outcome.loader
        if outcome.observation is not None:
            self._search.record(dataclasses.replace(outcome.observation, repeat=trial.repeat))
        if outcome.failure is not None:
            self._failures.append(outcome.failure)
            self._search.fail(trial.num_workers)
        self._tell(trial, outcome.observation, ended=True)

    def _progress(self, batches: int, observation: Observation | None) -> None:
        if self._running is not None:
            trial = self._running[0]
            self._running = trial, observation
            self._tell(trial, observation, ended=False)

    def _tell(self, trial: Trial, observation: Observation | None, *, ended: bool) -> None:
        planned = max(self._search.planned, self._done)
        self._show(Moment(trial, self._done, planned, observation, ended))
