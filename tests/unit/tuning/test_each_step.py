"""An epoch begun for each batch is named, and is no reason to change the number."""

from __future__ import annotations

import pytest

from stoker.report.answers import verdict
from stoker.report.plain_words import headline
from tests.unit.tuning.planted import again, answer, own, rounds, seen

EACH = {"epochs": 60, "batches": 60, "seconds": 30.0}


def test_workers_that_are_started_for_each_batch_are_named() -> None:
    """0.4 s to start four workers, 100 ms to make the batch, and a step of 1 ms."""
    found = answer(
        own(4, 2.0, 2.0, whole=True, first_batch_s=0.5),
        [seen(0, 9.9)],
        rounds({0: (9.9, 9.8), 4: (2.0, 2.1)}, whole=True),
        own=4,
        chosen=0,
        starts_s=[0.5] * 60,
        **EACH,
    )
    [told] = [each for each in found.remarks if "next(iter(loader))" in each]
    assert told.startswith("60 epochs were begun for 60 batches of 1,000 each, ")
    assert "0.5 s a step, in which 4 workers are started for one batch and ended" in told
    assert not any("started anew every epoch" in each for each in found.remarks)
    assert found.limit.kind == "start"
    assert "an epoch is begun for each batch: 0.5 s of each step" in found.limit.sentence
    assert found.change is not None
    assert found.change.text.startswith("keep its iterator: batches = iter(loader) before the loop")
    assert "persistent_workers=True as well" in found.change.text
    assert found.advice is not None
    assert (found.advice.num_workers, found.advice.certain) == (4, False)
    assert headline(found) == "Keep 4 workers, and change how they are used"
    assert "Keep its iterator: batches = iter(loader)" in verdict(found, partial=False)


def test_without_workers_they_are_not_told_to_be_useless() -> None:
    found = answer(
        own(0, 9.9, 10.0),
        rounds({1: (2.0, 2.1)}, whole=True),
        again(0, 9.9),
        starts_s=[0.1] * 60,
        **EACH,
    )
    assert any("nothing is made in advance" in each for each in found.remarks)
    assert found.limit.kind != "start"
    assert not found.nothing_to_gain
    assert found.change is not None
    assert "persistent_workers" not in found.change.text


def test_a_consumer_that_hardly_waits_is_told_and_left_alone() -> None:
    found = answer(own(0, 9.9, 10.0, step_s=0.0995), starts_s=[0.001] * 60, **EACH)
    assert any("next(iter(loader))" in each for each in found.remarks)
    assert found.change is None


def test_a_loader_that_is_made_for_each_batch_is_to_be_made_once() -> None:
    found = answer(own(2, 2.0, 2.0, whole=True), own=2, made=60, starts_s=[0.5] * 60, **EACH)
    assert found.change is not None
    assert found.change.text.startswith("make the loader once, before the loop, and keep its iter")


@pytest.mark.parametrize(
    "more",
    [
        {"epochs": 3, "batches": 3},  # a look or two
        {"epochs": 60, "batches": 600},
        {"epochs": 60, "batches": 60, "epoch_batches": 1},
        {"epochs": 60, "batches": 80, "ended": 60},  # short epochs, or cut ones
    ],
)
def test_other_loops_are_not_that(more: dict[str, int]) -> None:
    found = answer(own(4, 2.0, 2.0), own=4, starts_s=[0.5] * 60, **more)
    assert not any("next(iter" in each for each in found.remarks)
