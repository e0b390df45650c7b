from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.answer import Limit, LimitKind, Parts, Rate
from stoker.tuning.limits import limit_of
from stoker.tuning.recommend import CountSummary
from stoker.tuning.situation import Situation
from tests.unit.tuning.machines import Machine

KINDS = get_args(LimitKind)

PLANTED: list[tuple[LimitKind, Situation]] = [
    ("consumer", Machine(step_s=0.05).situation(0, 1, 2, here=1)),
    ("consumer", Machine(step_s=0.05).situation(0, 1, 2, here=1, bound_per_s=None)),
    ("consumer", Machine(step_s=0.05, computing_s=0.001).situation(0, here=0)),
    # It waits for batches that are ready: for them to be brought over, by a busy machine.
    (
        "consumer",
        Situation(
            (Machine(step_s=0.1).rate(1),), Parts(1, 0.095, 0.007, 0.001, 0, 0.0014, 0.0, 0.0), 8
        ),
    ),
    ("cpu", Machine(cpus=2, computing_s=0.1).situation(0, 1, 2, 4, here=2)),
    ("cpu", Machine(cpus=8, computing_s=0.3).situation(4, 8, 16, here=8)),
    ("cpu", Machine(cpus=1, computing_s=0.1, step_s=0.0001).situation(0, here=0)),
    # What else runs on the machine has taken the CPUs.
    (
        "cpu",
        Situation(
            (Machine(computing_s=0.1).rate(4),), Parts(4, 0.005, 0.05, 0, 0, 0.1, 0.0, 0.12), 8
        ),
    ),
    ("storage", Machine(off_cpu_s=0.1, cap_per_s=30).situation(0, 2, 4, 8, 16, here=4)),
    ("storage", Machine(off_cpu_s=0.1, cap_per_s=30).situation(0, 2, 4, 8, 16, here=16)),
    ("storage", Machine(off_cpu_s=0.1, cap_per_s=30).situation(4, 8, here=4, memory_workers=4)),
    ("order", Machine(held_up=0.5, computing_s=0.1).situation(0, 2, 4, here=4)),
    ("transport", Machine(handling_s=0.02, computing_s=0.01).situation(0, 1, 2, here=2)),
    ("transport", Machine(link_per_s=50, computing_s=0.01).situation(1, 2, 4, here=4)),
    ("main process", Machine(computing_s=0.0001, step_s=0.0001).situation(0, here=0)),
    (
        "main process",
        Machine(computing_s=0.004, handling_s=0.03, step_s=0.001).situation(0, 1, 2, here=0),
    ),
    ("memory", Machine(computing_s=0.2).situation(0, 1, 2, 3, here=3, memory_workers=3)),
    (
        "start",
        Machine(step_s=0.01).situation(0, 2, 4, here=4, start_s=6.0, epoch_batches=300),
    ),
    (
        "start",
        Machine(step_s=0.05).situation(0, 1, 2, here=1, start_s=1.5, epoch_batches=20),
    ),
    ("unknown", Machine(computing_s=0.2).situation(0, 1, 2, here=2)),
    ("unknown", Machine(off_cpu_s=0.5).situation(0, here=0)),
    ("unknown", Situation()),
]


@pytest.mark.parametrize(("kind", "planted"), PLANTED)
def test_a_planted_limit_is_named(kind: LimitKind, planted: Situation) -> None:
    found = limit_of(planted)
    assert found.kind == kind, found.sentence
    assert 5 < len(found.sentence.split()) <= 40, found.sentence


def test_sentences_carry_the_numbers() -> None:
    storage = Machine(off_cpu_s=0.1, cap_per_s=30).situation(2, 4, 8, here=4, batch_size=64)
    assert limit_of(storage).sentence == (
        "from 4 workers on the rate stays at 30 batches/s (1,920 samples/s) and CPUs are free, "
        "while a batch's waiting grows from 113 ms to 247 ms with 8: storage, network or a lock "
        "that workers share"
    )
    cpu = Machine(cpus=2, computing_s=0.1).situation(0, 1, 2, 4, here=2)
    assert limit_of(cpu).sentence == (
        "with 2 workers the consumer waits 90 % of the time, and 2 of 2 CPUs are in use: there "
        "is no CPU for more"
    )


def test_a_rate_that_is_level_is_not_told_of_storage_when_the_cpus_are_in_use() -> None:
    capped = Machine(cpus=1, off_cpu_s=0.01, cap_per_s=49).situation(1, 2, 4, here=2)
    assert limit_of(capped).kind == "cpu"


def test_waiting_that_does_not_grow_is_not_told_as_shared() -> None:
    slow = Machine(off_cpu_s=0.5)
    found = limit_of(slow.situation(1, 2, 4, 8, here=8))
    assert (found.kind, found.shared) == ("storage", False)
    assert "takes 0.5 s, of which it computes for 20 ms and else waits: " in found.sentence
    assert "still rising at 8 workers" in found.sentence


def test_a_start_that_is_small_beside_the_waiting_is_not_the_limit() -> None:
    slow = Machine(cpus=2, computing_s=0.1)
    found = limit_of(slow.situation(0, 1, 2, here=2, start_s=2.0, epoch_batches=300))
    assert found.kind == "cpu"


def test_rates_alone_will_do() -> None:
    cpu = replace(Machine(cpus=2, computing_s=0.1).situation(0, 1, 2, here=2), parts=None)
    assert limit_of(cpu).kind == "cpu"


numbers = st.one_of(
    st.just(0.0),
    st.floats(1e-9, 1e9),
    st.floats(),
)
maybe = st.one_of(st.none(), numbers)
counts = st.one_of(st.none(), st.integers(-1, 500))
summaries = st.builds(
    CountSummary,
    st.integers(0, 200),
    numbers,
    numbers,
    numbers,
    maybe,
    maybe,
    st.integers(0, 5),
    st.just("steady"),
    st.booleans(),
)
rates = st.builds(Rate, summaries, numbers, maybe, maybe, counts)
parts = st.builds(Parts, st.integers(0, 200), *[numbers] * 8)
situations = st.builds(
    Situation,
    st.lists(rates, max_size=6),
    st.one_of(st.none(), parts),
    numbers,
    maybe,
    counts,
    maybe,
    counts,
    counts,
    numbers,
)


@given(situations)
def test_any_numbers_have_an_answer(said: Situation) -> None:
    found = limit_of(said)
    assert isinstance(found, Limit)
    assert found.kind in KINDS
    assert found.sentence


@given(
    st.builds(
        Machine,
        cpus=st.integers(1, 64),
        computing_s=st.floats(1e-6, 1),
        off_cpu_s=st.floats(0, 1),
        step_s=st.floats(1e-5, 1),
        handling_s=st.floats(0, 0.1),
        cap_per_s=st.floats(0.1, 1e4),
        link_per_s=st.floats(0.1, 1e4),
        held_up=st.floats(0, 0.9),
    ),
    st.sampled_from([0, 1, 2, 4, 8]),
)
def test_plausible_machines_have_an_answer_in_few_words(machine: Machine, here: int) -> None:
    found = limit_of(machine.situation(0, 1, 2, 4, 8, here=here))
    assert len(found.sentence.split()) <= 45
    assert "nan" not in found.sentence
    assert "inf" not in found.sentence
