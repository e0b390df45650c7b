"""Samples that wait: the limit stays the same whatever noise one run has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.tuning.answer import Rate
from stoker.tuning.limits import limit_of
from stoker.tuning.situation import Situation
from tests.unit.tuning.machines import Machine

COUNTS = (0, 1, 2, 4, 8, 16)


def noise(share: float) -> st.SearchStrategy[float]:
    return st.floats(1 - share, 1 + share)


@st.composite
def seen(draw: st.DrawFn, machine: Machine, here: int, share: float, starved: float) -> Situation:
    """What one run sees of a machine.

    Args:
        draw: Of Hypothesis.
        machine: The truth.
        here: The recommended number.
        share: By how much each figure may be off.
        starved: Share of making a batch for which others may have kept workers off the CPUs.
    """
    told = machine.situation(*COUNTS[: draw(st.integers(2, len(COUNTS)))], here=here)

    def off(rate: Rate) -> Rate:
        factors = [draw(noise(share)) for _ in range(3)]
        per_s = rate.summary.batches_per_s * factors[0]
        busy = rate.busy_workers
        return replace(
            rate,
            summary=replace(rate.summary, batches_per_s=per_s),
            busy_workers=None if busy is None else min(rate.summary.num_workers, busy * factors[1]),
            cpus_used=(rate.cpus_used or 0.0) * factors[2],
        )

    parts = told.parts
    assert parts is not None
    stood_s = draw(st.floats(0, starved)) * parts.service_s
    parts = replace(
        parts,
        waited_s=parts.waited_s * draw(noise(share)),
        computing_s=parts.computing_s * draw(noise(share)),
        off_cpu_s=max(0.0, parts.off_cpu_s - stood_s),
        starved_s=parts.starved_s + min(stood_s, parts.off_cpu_s),
    )
    return replace(told, rates=tuple(off(each) for each in told.rates), parts=parts)


@given(st.data())
def test_samples_that_sleep_are_waiting_whatever_noise(data: st.DataObject) -> None:
    """Sleeps of 5 ms to a second, with up to an eighth of them computing, on busy machines."""
    off_s = data.draw(st.floats(0.005, 1.0))
    computing_s = off_s * data.draw(st.floats(0.001, 0.125))
    cpus = data.draw(st.sampled_from([1, 2, 4, 8]))
    here = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    machine = Machine(cpus=cpus, off_cpu_s=off_s, computing_s=computing_s, step_s=1e-4)
    assume(here * computing_s / (computing_s + off_s) < 0.7 * cpus)
    said = data.draw(seen(machine, here, 0.25, 0.3))
    found = limit_of(said)
    assert found.kind == "storage", found.sentence


@given(st.data())
def test_noise_never_turns_waiting_into_computing(data: st.DataObject) -> None:
    """Two runs of the same work: one may not know, but they don't contradict each other."""
    making_s = data.draw(st.floats(0.005, 1.0))
    computing_s = making_s * data.draw(st.floats(0.05, 1.0))
    machine = Machine(
        cpus=data.draw(st.sampled_from([1, 2, 4, 8])),
        computing_s=computing_s,
        off_cpu_s=making_s - computing_s,
        step_s=1e-4,
    )
    here = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    kinds = {limit_of(data.draw(seen(machine, here, 0.07, 0.05))).kind for _ in range(2)}
    assert not {"storage", "cpu"} <= kinds


def test_a_cpu_that_others_take_is_no_storage() -> None:
    """Eight workers compute, and others on the machine leave them a fifth of the CPUs."""
    told = Machine(cpus=8, computing_s=0.2).situation(8, here=8)
    assert told.parts is not None
    rates = tuple(replace(each, busy_workers=8.0, cpus_used=1.6) for each in told.rates)
    parts = replace(told.parts, computing_s=0.2, off_cpu_s=0.0, starved_s=0.8)
    assert limit_of(replace(told, rates=rates, parts=parts)).kind == "cpu"


def test_more_sleepers_than_cpus_can_wake_are_short_of_cpus() -> None:
    slow = Machine(cpus=2, computing_s=0.006, off_cpu_s=0.05, step_s=1e-4)
    told = slow.situation(1, 4, 32, here=32)
    assert told.parts is not None
    assert told.parts.starved_s == pytest.approx(0.04, abs=0.001)
    assert limit_of(told).kind == "cpu"


def test_what_lies_between_is_not_known_and_told_so() -> None:
    """A quarter of it computes, and nine tenths of the CPUs are in use."""
    told = Machine(cpus=2, computing_s=0.025, off_cpu_s=0.075).situation(1, 2, 4, 7, here=7)
    found = limit_of(told)
    assert found.kind == "unknown"
    assert "does not tell which of both it waits for" in found.sentence
    assert "of which it computes for 25 ms and else waits" in found.sentence


@pytest.mark.parametrize(("busy", "kind"), [(7.0, "storage"), (4.0, "unknown"), (1.0, "transport")])
def test_workers_that_stand_idle_are_not_what_is_waited_for(busy: float, kind: str) -> None:
    told = Machine(cpus=8, computing_s=0.001, off_cpu_s=0.05).situation(8, here=8)
    assert told.parts is not None
    [rate] = told.rates
    per_s = busy / 0.051
    rate = replace(
        rate,
        summary=replace(rate.summary, batches_per_s=per_s),
        busy_workers=busy,
        cpus_used=per_s * 0.001,
    )
    parts = replace(told.parts, waited_s=1 / per_s - 0.0052)
    assert limit_of(replace(told, rates=(rate,), parts=parts)).kind == kind
