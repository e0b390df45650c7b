"""What is foretold from one small machine: each limit by itself."""

from __future__ import annotations

import dataclasses

import pytest

from stoker.tuning.answer import Answer, Limit
from stoker.tuning.foretold import Machine
from stoker.tuning.simulate import NotMeasured, foretell
from tests.unit.tuning.foretelling import PLENTY, machine, measured
from tests.unit.tuning.simulated import World

COUNTS = [0, 1, 2, 4, 8, 16]
LARGE = Machine(24, PLENTY)


def test_a_small_machine_that_computes_foretells_a_large_one() -> None:
    here = World(cpus=4, service_s=0.1, noise=0.01)
    told = foretell(measured(here, COUNTS), 4, machine(dataclasses.replace(here, cpus=24)))
    assert 23 <= told.num_workers <= 25
    assert told.batches_per_s.expected == pytest.approx(230, rel=0.06)
    assert told.limit.kind == "cpu"
    assert "24 CPUs" in told.limit.sentence


def test_a_step_that_is_longer_wants_fewer_workers() -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS)
    fed = foretell(answer, 4, Machine(24, PLENTY, step_s=0.04))
    assert 2 <= fed.fewest <= 3 <= fed.num_workers <= fed.most <= 4
    assert fed.limit.kind == "consumer"
    assert fed.waiting.expected < 0.05
    slow = foretell(answer, 4, Machine(24, PLENTY, step_s=10.0))
    assert slow.num_workers <= 1
    assert slow.batches_per_s.high <= 0.1


def test_samples_that_wait_get_more_workers_than_cpus() -> None:
    answer = measured(World(cpus=2, service_s=0.1, cpu=0.1, noise=0.01), [0, 1, 2, 4, 8, 16])
    assert 35 <= foretell(answer, 2, Machine(4, PLENTY)).num_workers <= 45


@pytest.mark.parametrize(
    ("kind", "said"), [("storage", "Storage gives no more"), ("transport", "Bringing batches")]
)
def test_a_ceiling_that_cpus_do_not_lift_is_carried_over(kind: str, said: str) -> None:
    world = World(cpus=8, service_s=0.1, cpu=0.1, ceiling_per_s=50.0, noise=0.01)
    answer = measured(world, COUNTS, limit=kind)  # type: ignore[arg-type]
    told = foretell(answer, 8, Machine(64, PLENTY))
    assert told.batches_per_s.high < 55
    assert 4 <= told.num_workers <= 7
    assert told.limit.kind == kind
    assert said in told.assumptions[2]
    assert "50" in told.assumptions[2] or "49" in told.assumptions[2]


def test_a_ceiling_is_carried_over_even_where_rates_still_rose() -> None:
    """The limit was found to be storage by other means than the rates."""
    answer = measured(
        World(cpus=8, service_s=0.1, cpu=0.1, noise=0.01), [0, 1, 2, 4], limit="storage"
    )
    told = foretell(answer, 8, Machine(64, PLENTY))
    assert told.batches_per_s.high < 45


def test_memory_bounds_the_workers() -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS, worker_bytes=1 << 30)
    told = foretell(answer, 4, Machine(24, 16 << 30))
    assert told.num_workers == told.most == 7
    assert told.limit.kind == "memory"
    assert told.memory_bytes == 7 * (1 << 30) + 15 * (1 << 20)


def test_memory_for_no_worker_at_all_is_told() -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS, worker_bytes=1 << 30)
    none = foretell(answer, 4, Machine(24, 1 << 30))
    assert (none.num_workers, none.most, none.limit.kind) == (0, 0, "memory")
    assert none.limit.sentence == (
        "There is no memory for even one worker, which takes 1 GiB and 2 batches of 1 MiB: half "
        "of 1 GiB is for loading."
    )
    fed = foretell(answer, 4, Machine(24, 1 << 30, step_s=30.0))
    assert fed.limit.kind == "consumer"
    assert "There is no memory for even one worker" in fed.limit.sentence


@pytest.mark.parametrize("worker_bytes", [None, 1 << 30])
@pytest.mark.parametrize("step_s", [0.0, 30.0])
def test_a_batch_that_does_not_fit_is_told(worker_bytes: int | None, step_s: float) -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS, worker_bytes=worker_bytes)
    assert foretell(answer, 4, Machine(24, 1 << 30, step_s=step_s)).fits
    told = foretell(answer, 4, Machine(24, 1000, step_s=step_s))
    assert not told.fits
    assert told.limit.kind == "memory"
    assert told.limit.sentence == (
        "It does not fit there, not even without workers: a batch takes 1 MiB, and half of "
        "0.977 KiB is for loading."
    )


def test_memory_that_is_not_known_bounds_nothing_and_says_so() -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS, worker_bytes=None)
    told = foretell(answer, 4, Machine(24, 1 << 30))
    assert told.num_workers > 20
    assert told.memory_bytes is None
    assert any("not known" in each for each in told.assumptions)


def test_the_speed_of_cpus_is_assumed_unless_it_is_in_doubt() -> None:
    answer = measured(World(cpus=4, service_s=0.1, noise=0.01), COUNTS)
    same = foretell(answer, 4, LARGE)
    assert same.assumptions[0] == "A CPU there is as fast as one here."
    doubted = foretell(answer, 4, dataclasses.replace(LARGE, cpu_speed=2.0))
    assert doubted.batches_per_s.low < 0.6 * same.batches_per_s.expected
    assert doubted.batches_per_s.high > 1.8 * same.batches_per_s.expected
    assert doubted.batches_per_s.expected == pytest.approx(same.batches_per_s.expected)
    assert "2 times" in doubted.assumptions[0]


def test_it_says_how_many_workers_were_seen_at_once() -> None:
    told = foretell(measured(World(cpus=4, service_s=0.1, noise=0.01), [0, 1]), 4, LARGE)
    assert told.reach == 1
    assert any("more than one worker at once" in each for each in told.assumptions)


def test_tiny_work_stays_in_the_main_process() -> None:
    told = foretell(measured(World(cpus=2, service_s=5e-5, noise=0.01), COUNTS), 2, LARGE)
    assert told.num_workers == 0
    assert told.limit.kind == "main process"


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(NotMeasured, match=r"What a batch of train.py:31 costs") as caught:
        foretell(Answer("train.py:31", None, "its step"), 4, LARGE)
    assert "--exhaustive" in caught.value.change


def test_without_rates_the_cost_of_a_batch_is_enough() -> None:
    answer = dataclasses.replace(measured(World(cpus=4, service_s=0.1), COUNTS), rates=())
    told = foretell(answer, 4, Machine(24, PLENTY, step_s=0.02))
    assert 4 <= told.num_workers <= 7
    assert told.reach == 1


def test_what_each_worker_waits_for_by_itself_is_no_ceiling() -> None:
    """Samples that sleep: more workers elsewhere would get more."""
    answer = measured(
        World(cpus=8, service_s=0.1, cpu=0.1, noise=0.01), [0, 1, 2, 4], limit="storage"
    )
    answer = dataclasses.replace(answer, limit=Limit("storage", "", shared=False))
    assert foretell(answer, 8, Machine(64, PLENTY)).batches_per_s.expected > 100
