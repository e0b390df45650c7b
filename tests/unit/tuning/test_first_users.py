"""What first users stumbled over: steps that warm up, data that come twice, dear workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stoker.report.answers import verdict
from stoker.report.plain_words import gain_sentence
from stoker.tuning.answer import Advice
from stoker.watch.bounds import Limits
from tests.unit.tuning.planted import answer, own, rounds, seen


def test_steps_that_warm_up_say_nothing_of_now() -> None:
    warm = [seen(0, 9.0, step_s=0.09, stage="own"), *own(0, 60.0, step_s=0.006)]
    found = answer(warm, rounds({2: (70.0, 71.0), 3: (70.5, 70.6)}), chosen=2)
    assert found.now_per_s == pytest.approx(60.0, rel=0.05)


def test_data_that_come_once_for_each_worker_are_told_as_a_fault() -> None:
    found = answer(own(2, 30.0, 30.2), own=2, shards=False)
    [remark] = [each for each in found.remarks if "get_worker_info" in each]
    assert "every sample comes 2 times" in remark


def test_an_automatic_loader_is_not_told_to_keep_a_number() -> None:
    found = answer(own(0, 9.9, 10.0), rounds({0: (10.0, 9.9), 1: (10.0, 10.0)}))
    assert found.loader is not None
    automatic = replace(found, loader=replace(found.loader, automatic=True), change=None)
    told = verdict(automatic, partial=False)
    assert "the loader chooses its number" in told
    assert "keep num_workers" not in told


def test_a_gain_over_epochs_is_not_told_as_one_of_the_rate() -> None:
    found = answer(own(0, 14.0), rounds({5: (28.0, 28.6), 6: (28.1, 28.2)}), chosen=5)
    gained = replace(found, advice=Advice(5, 28.6, "", True, gain=4.4), now_per_s=13.9)
    told = gain_sentence(gained)
    assert "over 4.4 times as fast, with what starting workers takes" in told
    assert "28.6 a second instead of 13.9" in told


def test_fresh_interpreters_are_tried_in_small_numbers(tmp_path: Path) -> None:
    assert Limits("spawn").most <= max(4, 2 * int(Limits("spawn").share.cpus.value))
    assert Limits("fork").most > Limits("spawn").most
