"""``loader.statistics()``: what a user is told of a loader, at any time."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.tuning.statistics import Statistics
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import FORK, begun, epoch_with, loader, needs_still, still
from tests.contract.methods import many_workers
from tests.datasets import Drawing, Failing, Plain, Slow, Stream, Telling

__all__ = ["still"]
KINDS: dict[str, dict[str, Any]] = {
    "auto": {},
    "0": {"num_workers": 0},
    "1": {"num_workers": 1},
    "3": {"num_workers": 3},
    "3 persistent": {"num_workers": 3, "persistent_workers": True},
    "unordered": {"num_workers": 2, "in_order": False},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def of_kind(dataset: Any, options: dict[str, Any], **more: Any) -> Any:
    return stoker.DataLoader(dataset, batch_size=2, **options, **more)


def stages(made: Any) -> Iterator[tuple[str, Statistics]]:
    """What it tells before, during and after two epochs, and after one that was left."""
    yield "before", made.statistics()
    for _ in range(2):
        for _ in made:
            yield "during", made.statistics()
        yield "after", made.statistics()
    for number, _ in enumerate(made):
        if number == 2:
            break
    yield "left", made.statistics()


def slow_enough() -> Any:
    """With workers that a governor of its own has really started."""
    dataset = Slow(120, 0.006, FORK.Semaphore(0))
    made = stoker.DataLoader(dataset, batch_size=4)
    for _ in range(2):
        for batch in made:
            del batch
    return made


@many_workers
@every_kind
def test_it_adds_up_at_any_time(options: dict[str, Any]) -> None:
    batches = 0
    for stage, told in stages(of_kind(Plain(24), options)):
        batches += stage == "during"
        parts = told.waited_s + told.away_s + told.handling_s + told.loading_s
        assert told.seconds == pytest.approx(parts)
        assert min(told.waited_s, told.away_s, told.handling_s, told.loading_s) >= 0
        assert told.batches == batches + (3 if stage == "left" else 0)
        assert told.made >= told.batches
        assert told.order_s <= told.waited_s
        assert 0 <= told.waiting <= 1
        assert told.peak_in_flight >= told.in_flight
        assert told.peak_slot_bytes >= told.slot_bytes
        assert told.peak_workers >= told.num_workers == len(told.workers)
        assert (told.batch_size, told.length) == ((2, 12) if told.epochs else (None, None))
    assert told.epochs == 3


@many_workers
@every_kind
def test_it_prints_at_any_time(options: dict[str, Any]) -> None:
    for stage, told in stages(of_kind(Plain(24), options)):
        text = str(told)
        assert "workers" in text
        assert f"{told.batches:,} (" in text
        assert "nan" not in text.lower()
        if stage != "before":
            chosen = "chosen by the loader" if not options else "as given"
            assert chosen in text
            assert told.automatic == (not options)


@many_workers
@every_kind
def test_it_is_json_at_any_time(options: dict[str, Any]) -> None:
    for _, told in stages(of_kind(Plain(24), options)):
        read = json.loads(json.dumps(told.as_dict(), allow_nan=False))
        names = {field.name for field in dataclasses.fields(told)}
        assert set(read) == names | {"rate_per_s", "waiting"}
        assert read["batches"] == told.batches


def test_it_is_frozen() -> None:
    told = stoker.DataLoader(Plain(4)).statistics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.batches = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del told.batches


def test_it_is_of_one_moment() -> None:
    made = of_kind(Plain(24), {})
    told = made.statistics()
    list(made)
    assert told.batches == 0
    assert made.statistics().batches == 12


@many_workers
@every_kind
def test_asking_changes_nothing(options: dict[str, Any]) -> None:
    """Neither batches, nor the global generators, nor the loader's attributes."""
    expected = [copied(batch) for batch in of_kind(Drawing(24), {"num_workers": 0}, seed=3)]
    made = of_kind(Drawing(24), options, seed=3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    before = {k: v for k, v in vars(made).items() if k not in ("num_workers", "_iterator")}
    got = []
    made.statistics()
    for batch in made:
        got.append(copied(batch))
        made.statistics()
        str(made.statistics())
    if made.in_order:
        assert_same(got, expected)
    assert len(got) == len(expected)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    after = {k: v for k, v in vars(made).items() if k not in ("num_workers", "_iterator")}
    assert after == before


@many_workers
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=str)
def test_the_workers_are_listed(options: dict[str, Any]) -> None:
    made = of_kind(Plain(24), {"num_workers": 3} | options)
    iterator = iter(made)
    next(iterator)
    told = made.statistics()
    assert told.num_workers == len(told.workers) == 3
    assert [worker.number for worker in told.workers] == [0, 1, 2]
    assert [worker.pid for worker in told.workers] == [each.pid for each in iterator._workers]
    assert all(each.state in ("starting", "idle", "working") for each in told.workers)
    list(iterator)
    assert made.statistics().num_workers == (3 if options else 0)


@many_workers
def test_the_most_workers_are_remembered() -> None:
    """Whether or not somebody asked while they were there."""
    made = of_kind(Plain(24), {"num_workers": 3})
    list(made)
    assert made.statistics().peak_workers == 3
    assert made.statistics().num_workers == 0


@needs_still
def test_waits_are_those_for_batches_that_workers_made() -> None:
    made = loader(Telling(60), batch_size=2)
    by_workers = 0
    for workers in (0, 2, 1):
        by_workers += sum(bool(batch[2].all()) for batch in epoch_with(made, workers))
        assert sum(count for _, count in made.statistics().waits) == by_workers
    assert by_workers > 0
    bounds = [bound for bound, _ in made.statistics().waits]
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")


def test_sizes_are_those_of_the_batches() -> None:
    made = stoker.DataLoader(Plain(24, (100, 100)), batch_size=2, num_workers=1)
    list(made)
    told = made.statistics()
    assert told.batch_bytes == 2 * 100 * 100 * 4
    assert told.total_bytes == 12 * told.batch_bytes
    assert told.peak_slot_bytes >= told.batch_bytes


def test_batches_that_failed_are_not_counted() -> None:
    for num_workers in (0, 1):
        made = of_kind(Failing(24, 3), {"num_workers": num_workers})
        iterator = iter(made)
        next(iterator)
        with pytest.raises(ValueError, match="sample 3 is broken"):
            next(iterator)
        list(iterator)
        assert made.statistics().batches == 11


def test_decisions_say_when_and_why() -> None:
    made = slow_enough()
    told = made.statistics()
    assert told.decisions
    assert told.decisions[0].before == 0
    assert told.decisions[0].workers > 0
    assert told.peak_workers > 0
    times = [decision.at_s for decision in told.decisions]
    batches = [decision.batch for decision in told.decisions]
    assert times == sorted(times)
    assert batches == sorted(batches)
    assert times[0] > 0
    assert 0 < batches[0] <= told.batches
    for decision in told.decisions:
        assert decision.reason
        assert decision.reason in str(told)
        assert all(isinstance(value, float) for _, value in decision.evidence)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_number_that_was_given_has_no_decisions(num_workers: int) -> None:
    made = of_kind(Plain(24), {"num_workers": num_workers})
    list(made)
    assert made.statistics().decisions == ()
    assert not made.statistics().automatic


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "stoker"]


def test_each_decision_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker")
    made = slow_enough()
    told = made.statistics()
    assert logged(caplog) == [
        f"num_workers {each.before} -> {each.workers} at batch {each.batch}: {each.reason}"
        for each in told.decisions
    ]
    assert all(record.levelno == logging.INFO for record in caplog.records)


@pytest.mark.parametrize("init", [None, print], ids=["main process", "worker"])
def test_that_of_an_iterable_is_logged_once(init: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker")
    made = stoker.DataLoader(Stream(8), worker_init_fn=init and _nothing)
    for _ in range(2):
        assert len(list(made)) == 8
    [message], [decision] = logged(caplog), made.statistics().decisions
    assert decision.reason in message


def _nothing(worker: int) -> None:
    pass


def test_nothing_is_logged_where_nothing_is_decided(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "stoker")
    for num_workers in (0, 1):
        list(of_kind(Plain(24), {"num_workers": num_workers}))
    assert logged(caplog) == []


def test_the_memory_limit_and_where_it_comes_from() -> None:
    made = stoker.DataLoader(Plain(8), memory_limit="64MB")
    list(made)
    told = made.statistics()
    assert (told.memory_limit, told.memory_limit_source) == (64_000_000, "memory_limit")
    made = stoker.DataLoader(Plain(8))
    list(made)
    told = made.statistics()
    assert told.memory_limit is not None
    assert told.memory_limit > 1 << 20
    assert "% of " in told.memory_limit_source


def test_the_cpus_and_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stoker.DataLoader(Plain(8))
    told = made.statistics()
    assert told.cpus is not None
    assert told.cpus > 0
    assert told.cpus_source
    monkeypatch.setenv("STOKER_CPUS", "3")
    told = stoker.DataLoader(Plain(8)).statistics()
    assert (told.cpus, told.cpus_source) == (3, "STOKER_CPUS")
    assert "STOKER_CPUS" in str(told)


@needs_still
def test_live_numbers_follow_a_change() -> None:
    made = loader(Telling(40), batch_size=2)
    iterator, _ = begun(made, 2)
    assert made.statistics().num_workers == 2
    iterator.feed.resize(1)
    assert made.statistics().num_workers == 1
    iterator.feed.resize(0)
    told = made.statistics()
    assert told.num_workers == 0
    assert told.peak_workers == 2
    list(iterator)
