from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from stoker.tuning.decision import Decision
from stoker.tuning.statistics import Statistics
from stoker.tuning.status import LAST_DECISIONS, LoaderStatus, Pace, decode, encode, pace
from tests.unit.tuning.invented_statistics import USUAL, WINDOW, invent

NAME = "TensorDataset, 60000 samples, batch 64"


def changed(**fields: Any) -> LoaderStatus | None:
    """What comes of a message in which some fields of the statistics are others."""
    told = json.loads(encode(USUAL, NAME, 5.0))
    told["statistics"].update(fields)
    return decode(json.dumps(told).encode())


class TestCrossing:
    @pytest.mark.parametrize("statistics", [USUAL, Statistics()])
    def test_what_is_told_is_what_arrives(self, statistics: Statistics) -> None:
        assert decode(encode(statistics, NAME, 5.0)) == LoaderStatus(NAME, 5.0, statistics)

    def test_of_many_decisions_the_last_few_are_told(self) -> None:
        many = tuple(Decision(at, at + 1, "more") for at in range(100))
        status = decode(encode(invent(decisions=many), NAME, 5.0))
        assert status is not None
        assert status.statistics.decisions == many[-LAST_DECISIONS:]

    def test_it_is_small(self) -> None:
        assert len(encode(USUAL, NAME, 5.0)) < 2500

    def test_odd_numbers_and_letters_cross(self) -> None:
        status = decode(encode(invent(seconds=math.nan, cpus=math.inf), "Bilder – ü\n", 5.0))
        assert status is not None
        assert status.name == "Bilder – ü\n"
        assert status.statistics.cpus is None


class TestOtherVersions:
    def test_an_unknown_field_is_passed_over(self) -> None:
        assert changed(invented_later={"x": [1]}) == LoaderStatus(NAME, 5.0, USUAL)

    def test_a_missing_field_has_its_default(self) -> None:
        told = json.loads(encode(USUAL, NAME, 5.0))
        del told["statistics"]["batches"], told["statistics"]["recent"]["made"]
        status = decode(json.dumps(told).encode())
        assert status == LoaderStatus(NAME, 5.0, invent(batches=0, recent=None))

    @pytest.mark.parametrize("odd", ["12", [12], {}, 1.5, True])
    def test_a_field_of_another_kind_has_its_default(self, odd: object) -> None:
        assert changed(batches=odd) == LoaderStatus(NAME, 5.0, invent(batches=0))

    def test_a_whole_number_is_as_good_as_a_fraction(self) -> None:
        assert changed(seconds=7, batches=8.0) == LoaderStatus(
            NAME, 5.0, invent(seconds=7.0, batches=8)
        )

    def test_of_a_list_what_fits_is_taken(self) -> None:
        workers = [
            {"number": 0, "state": "invented later"},
            {"state": "idle"},
            7,
            {"number": 3, "state": "idle", "later": 1},
        ]
        status = changed(workers=workers, waits=[[1.0], [None, 3], "x"], remarks=["a", 2])
        assert status is not None
        told = status.statistics
        assert [(each.number, each.state) for each in told.workers] == [
            (0, "starting"),
            (3, "idle"),
        ]
        assert told.waits == ((math.inf, 3),)
        assert told.remarks == ("a",)

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"\xff\xfe",
            b"{",
            b"[]",
            b"null",
            b"{}",
            b'{"name": 1, "at_s": 2, "statistics": {}}',
            b'{"name": "x", "at_s": "2", "statistics": {}}',
            b'{"name": "x", "at_s": 2}',
            b'{"name": "x", "at_s": NaN, "statistics": {}}',
            b"[" * 100_000,
        ],
    )
    def test_what_is_no_message_is_none(self, text: bytes) -> None:
        assert decode(text) is None

    def test_the_least_message(self) -> None:
        status = decode(b'{"name": "x", "at_s": 2, "statistics": {}}')
        assert status == LoaderStatus("x", 2.0, Statistics())


class TestPace:
    now = LoaderStatus(NAME, 20.0, USUAL)

    def test_between_two_messages(self) -> None:
        before = LoaderStatus(NAME, 10.0, invent(seconds=110.0, batches=1700, waited_s=4.0))
        assert pace(before, self.now) == Pace(10.0, 0.2)

    def test_making_batches_in_the_main_process_counts(self) -> None:
        before = LoaderStatus(NAME, 10.0, invent(seconds=110.0, batches=1700, loading_s=-5.0))
        assert pace(before, self.now) == Pace(10.0, 0.5)

    @pytest.mark.parametrize("before", [None, replace(now, at_s=10.0)])
    def test_without_progress_the_last_window_tells(self, before: LoaderStatus | None) -> None:
        assert pace(before, self.now) == Pace(WINDOW.rate_per_s, WINDOW.waiting)

    def test_without_a_window_the_totals_tell(self) -> None:
        assert pace(None, replace(self.now, statistics=invent(recent=None))) == Pace(15.0, 0.05)

    def test_before_the_first_batch_nothing_is_known(self) -> None:
        assert pace(None, LoaderStatus(NAME, 1.0, Statistics())) == Pace(None, None)
