"""The sweep with invented trials instead of processes."""

import itertools
from collections.abc import Callable

import pytest

from stoker.host.cpus import cpu_facts
from stoker.host.software import software_facts
from stoker.tuning.result import Failure, Outcome, TuneResult
from stoker.tuning.search import Search, Trial
from stoker.tuning.sweep import Moment, Progress, Sweep
from tests.unit.tuning.invented import observe

Make = Callable[[Trial], Outcome]


def start(make: Make, counts: list[int], shown: list[Moment] | None = None) -> Sweep:
    ticks = itertools.count()

    def measure(trial: Trial, progress: Progress) -> Outcome:
        progress(3, observe(trial.num_workers, 7.0, complete=False))
        return make(trial)

    show = (shown if shown is not None else []).append
    return Sweep(Search(counts, repeats=2), measure, lambda: float(next(ticks)), show)


def finish(sweep: Sweep) -> TuneResult:
    return sweep.result("here.py:loader", cpu_facts(), software_facts())


def works(trial: Trial) -> Outcome:
    return Outcome(observe(trial.num_workers, 100.0 + 100 * trial.num_workers))


def test_everything_works() -> None:
    shown: list[Moment] = []
    sweep = start(works, [0, 2], shown)
    sweep.run()
    result = finish(sweep)
    assert [summary.repeats for summary in result.counts] == [2, 2]
    assert result.recommendation is not None
    assert result.recommendation.num_workers == 2
    assert result.failures == ()
    assert [moment.done for moment in shown if moment.ended] == [1, 2, 3, 4]
    assert all(moment.done <= moment.planned == 4 for moment in shown)
    assert {seen.repeat for seen in result.observations} == {0, 1}


def test_a_failed_count_leaves_the_others() -> None:
    def make(trial: Trial) -> Outcome:
        if trial.num_workers == 2:
            return Outcome(failure=Failure("died", 2, "It died."))
        return works(trial)

    sweep = start(make, [0, 2, 4])
    sweep.run()
    result = finish(sweep)
    assert [summary.num_workers for summary in result.counts] == [0, 4]
    assert result.recommendation is not None
    assert result.recommendation.num_workers == 4
    assert [failure.what for failure in result.failures] == ["It died."]


def test_an_unusable_target_ends_it_at_once() -> None:
    made: list[Trial] = []

    def make(trial: Trial) -> Outcome:
        made.append(trial)
        return Outcome(failure=Failure("target", None, "There is no such file."))

    sweep = start(make, [0, 2])
    sweep.run()
    assert len(made) == 1
    assert finish(sweep).recommendation is None


def test_an_interruption_keeps_whole_trials_and_the_part_of_the_running_one() -> None:
    def make(trial: Trial) -> Outcome:
        if trial.num_workers == 2:
            raise KeyboardInterrupt
        return works(trial)

    sweep = start(make, [0, 2])
    with pytest.raises(KeyboardInterrupt):
        sweep.run()
    sweep.interrupted("Interrupted.")
    result = finish(sweep)
    assert [(each.num_workers, each.complete) for each in result.counts] == [(0, True), (2, False)]
    assert result.recommendation is not None
    assert result.recommendation.num_workers == 0
    assert [failure.kind for failure in result.failures] == ["interrupted"]
