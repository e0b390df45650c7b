import dataclasses
import io
import json

import pytest
from rich.console import Console

from stoker.host.facts import Fact
from stoker.report.foretold import (
    assumptions_text,
    foretold_heading,
    foretold_json,
    foretold_table,
    foretold_verdict,
)
from stoker.tuning.answer import Answer, Limit, Report
from stoker.tuning.foretold import Foretold, Machine, Range, Row
from tests.unit.report.invented import CPUS, invent

THERE = Machine(24, 128 * 10**9, 0.04)
RATES = Range(23.1, 24.8, 24.9)
TOLD = Foretold(
    name="train.py:31",
    consumer="the script's own step",
    num_workers=6,
    fewest=5,
    most=7,
    batches_per_s=RATES,
    waiting=Range(0.0, 0.003, 0.05),
    memory_bytes=6 << 30,
    limit=Limit("consumer", "The consumer is fed."),
    rows=(
        Row(1, Range(4.63, 4.86, 5.09), Range(0.79, 0.8, 0.81), None),
        Row(6, RATES, Range(0.0, 0.003, 0.05), 6 << 30),
    ),
    reach=2,
    assumptions=("A CPU there is as fast as one here.", "Nothing else runs there."),
)


def test_table() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=100)
    console.print(foretold_table(TOLD, console))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert rows == [
        ["", "1", "4.86", "4.63 .. 5.09", "80 %", ""],
        ["→", "6", "24.8", "23.1 .. 24.9", "0.3 %", "6 GiB"],
    ]


@pytest.mark.parametrize("width", [*range(27, 60)])
def test_a_narrow_table_has_fewer_columns_and_no_number_that_is_cut(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(foretold_table(TOLD, console))
    told = stream.getvalue()
    assert "…" not in told
    assert all(rate in told for rate in ("4.86", "24.8"))
    assert max(map(len, told.splitlines())) <= width


def test_what_does_not_fit_has_no_number_to_use() -> None:
    limit = Limit("memory", "It does not fit there.")
    assert foretold_verdict(dataclasses.replace(TOLD, limit=limit, fits=False)) == limit.sentence


def test_words() -> None:
    assert foretold_heading(TOLD, THERE) == (
        "train.py:31 on 24 CPUs, 119 GiB of memory, a step of 40 ms"
    )
    lines = foretold_verdict(TOLD).splitlines()
    assert lines[0].startswith("6 workers (5 to 7): 24.8 batches/s (23.1 to 24.9)")
    assert lines[1] == "The consumer is fed."
    assert "num_workers=6" in lines[2]
    assert assumptions_text(TOLD).count("\n  - ") == 2


def test_json() -> None:
    report = Report(
        "train.py",
        "program",
        (Answer("train.py:31", None, ""),),
        (),
        CPUS,
        Fact(8 << 30, "memory available"),
        invent().software,
        1.0,
    )
    record = json.loads(foretold_json([TOLD], report, 2.0, THERE))
    assert (record["schema"], record["kind"], record["command"]) == (1, "simulation", "train.py")
    assert record["machine"]["cpus"] == 24
    assert record["measured_on"] == {"cpus": 2.0, "memory_bytes": 8 << 30}
    [loader] = record["loaders"]
    assert [loader[key] for key in ("fewest", "num_workers", "most")] == [5, 6, 7]
    assert loader["batches_per_s"] == {"low": 23.1, "expected": 24.8, "high": 24.9}
    assert loader["rows"][0]["memory_bytes"] is None
    assert loader["limit"]["kind"] == "consumer"
