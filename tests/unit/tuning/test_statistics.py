from __future__ import annotations

import json
import math
import re
from dataclasses import fields

import pytest

from stoker.tuning.statistics import Statistics, WorkerState
from stoker.tuning.table import memory, two_columns
from tests.unit.tuning.invented_statistics import USUAL, invent


def value_of(text: str, name: str) -> str:
    """What stands beside a name in the table."""
    found = re.search(rf"^ *{re.escape(name)} {{2,}}(.*)$", text, re.MULTILINE)
    assert found is not None, f"{name} is not in\n{text}"
    return found[1]


class TestShares:
    def test_rate_and_waiting(self) -> None:
        assert USUAL.rate_per_s == 15.0
        assert USUAL.waiting == 0.05

    def test_loading_in_the_main_process_is_waiting(self) -> None:
        assert invent(waited_s=0.0, loading_s=60.0).waiting == 0.5

    def test_before_any_time_has_passed_both_are_0(self) -> None:
        assert Statistics().rate_per_s == 0.0
        assert Statistics().waiting == 0.0

    def test_a_share_is_at_most_1(self) -> None:
        assert invent(waited_s=121.0).waiting == 1.0


class TestText:
    def test_every_number_has_its_unit(self) -> None:
        text = str(USUAL)
        assert value_of(text, "workers now") == "4 (chosen by the loader; 6 at its peak)"
        assert value_of(text, "epochs") == "2, 938 batches in each"
        assert value_of(text, "batches") == "1,800 (15 a second)"
        assert value_of(text, "time inside epochs") == "120.0 s"
        assert value_of(text, "waiting for a batch") == "6.0 s (5 %)"
        assert value_of(text, "away in the training step") == "110.0 s (92 %)"
        assert value_of(text, "making one takes") == "100 ms"
        assert value_of(text, "largest batch of a worker") == "9.16 MiB"
        assert value_of(text, "memory for batches") == (
            "40 MiB (at most 120 MiB so far; limit 2 GiB, by a quarter of memory.max)"
        )
        assert value_of(text, "CPUs") == "8, by affinity"

    def test_waits_have_a_line_for_each_bound_that_was_met(self) -> None:
        lines = str(USUAL).splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("waits"))
        assert lines[at].endswith("  up to 0.1 ms: 1,500")
        assert lines[at + 1].strip() == "above 10 ms: 300"

    def test_decisions_and_remarks_follow(self) -> None:
        assert str(USUAL).splitlines()[-6:] == [
            "decisions:",
            "  1.5 s, batch 12: 0 -> 2: a batch takes 100 ms",
            "  12.0 s, batch 130: 2 -> 4: the consumer waits 40 %",
            "",
            "remarks:",
            "  something stood out",
        ]

    def test_a_loader_that_has_done_nothing_is_a_table_too(self) -> None:
        text = str(Statistics())
        assert value_of(text, "workers now") == "0 (as given; 0 at its peak)"
        assert value_of(text, "of that without a free CPU") == "not known"
        assert value_of(text, "waits") == "none"
        assert "decisions" not in text
        assert "remarks" not in text

    def test_it_is_plain(self) -> None:
        assert str(USUAL).replace("\n", "").isprintable()
        assert not any(line.endswith(" ") for line in str(USUAL).splitlines())


class TestDict:
    def test_it_has_every_field_and_both_shares(self) -> None:
        told = USUAL.as_dict()
        names = {field.name for field in fields(Statistics)}
        assert set(told) == names | {"rate_per_s", "waiting"}

    def test_json_takes_it(self) -> None:
        told = json.loads(json.dumps(USUAL.as_dict(), allow_nan=False))
        assert told["waits"] == [[0.0001, 1500], [0.01, 0], [None, 300]]
        assert told["workers"][0] == {
            "number": 0, "pid": 4711, "state": "working", "batches": 451, "service_s": 0.1,
        }  # fmt: skip
        assert told["recent"]["batches"] == 100
        assert told["decisions"][1]["evidence"] == [["waiting", 0.4]]

    @pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
    def test_numbers_that_json_lacks_are_none(self, odd: float) -> None:
        worker = WorkerState(0, 1, "idle", 0, odd)
        told = invent(away_s=odd, seconds=odd, workers=(worker,)).as_dict()
        json.dumps(told, allow_nan=False)
        assert told["away_s"] is None
        assert told["workers"][0]["service_s"] is None


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        (999, "999 bytes"),
        (1000, "0.977 KiB"),
        (1536, "1.5 KiB"),
        (40 << 20, "40 MiB"),
        (5 << 70, "5,242,880 PiB"),
    ],
)
def test_memory(size_bytes: int, text: str) -> None:
    assert memory(size_bytes) == text


def test_two_columns() -> None:
    assert two_columns([("a", "1"), ("long", "2\n3"), ("b", "")]) == "a     1\nlong  2\n      3\nb"
    assert two_columns([]) == ""
