import dataclasses
import io

from rich.console import Console

from stoker.report.chart import rate_chart
from stoker.report.terminal import (
    cpus_line,
    failure_text,
    footnotes,
    grouped,
    heading,
    tune_table,
    verdict,
)
from stoker.tuning.result import Failure, TuneResult
from tests.unit.report.invented import CPUS, LOADER, invent
from tests.unit.tuning.invented import observe, repeats


def table_rows(result: TuneResult, width: int = 100) -> list[list[str]]:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(tune_table(result, console))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith(("│", "┃"))]
    return [[cell.strip() for cell in line.strip("│┃").split(line[0])] for line in lines]


def test_table() -> None:
    header, *rows = table_rows(invent())
    assert header[1:] == ["workers", "batches/s", "± spread", "first batch s", "relative to best"]
    assert [row[:3] for row in rows] == [["", "0", "430"], ["→", "2", "812"], ["", "4", "800"]]
    assert [row[5] for row in rows] == ["53 %", "100 %", "99 %"]


def test_a_narrow_table_has_fewer_columns() -> None:
    rows = [row for row in table_rows(invent(), 40) if row[1].isdecimal()]
    assert rows == [["", "0", "430", "53 %"], ["→", "2", "812", "100 %"], ["", "4", "800", "99 %"]]


def test_heading_names_loader_and_cpus() -> None:
    assert heading(invent()).splitlines() == [
        "mnist.py:loader",
        "torch.utils.data.DataLoader, batch size 64, 938 batches an epoch",
        "2 CPUs usable (affinity; no cgroup quota)",
    ]
    one = dataclasses.replace(CPUS, usable=dataclasses.replace(CPUS.usable, value=1))
    assert cpus_line(one).startswith("1 CPU usable")


def test_verdict_gives_the_reason_and_the_change() -> None:
    lines = verdict(invent()).splitlines()
    assert lines[0].startswith("2 workers: 812 batches/s, 1.9 times the rate of 0")
    assert lines[1] == "Use num_workers=2  (now 4)"


def test_verdict_says_when_there_is_none() -> None:
    result = invent([observe(0, 10.0, complete=False)], (Failure("raised", 0, "ValueError: 7"),))
    assert "none is recommended" in verdict(result)


def test_verdict_says_when_it_is_partial_or_uncertain() -> None:
    assert "partial" in verdict(invent(failures=(Failure("died", 8, "It died."),)))
    assert "More repeats" in verdict(invent(repeats({0: [9.0, 14.0, 11.0], 1: [13.0, 10.0, 12.0]})))


def test_marks_are_explained() -> None:
    result = invent(
        [
            observe(0, 10.0),
            observe(1, 10.0, method="epochs"),
            observe(2, 10.0, method="brief"),
            observe(4, 10.0, complete=False),
        ]
    )
    marks = [row[2][-1] for row in table_rows(result)[1:]]
    assert marks == ["0", "*", "?", "†"]
    assert [note[0] for note in footnotes(result)] == ["*", "?", "†"]
    assert footnotes(invent()) == []


def test_a_failure_has_its_parts_and_the_users_traceback() -> None:
    failure = Failure(
        "raised", 2, "ValueError: 7", "reading", "a bad file", "mend it", "Trace\n  x"
    )
    assert failure_text(failure).splitlines() == [
        "ValueError: 7",
        "  while: reading",
        "  likely cause: a bad file",
        "  to change it: mend it",
        "    Trace",
        "      x",
    ]
    assert failure_text(Failure("empty", 0, "No batch.")) == "No batch."


def test_the_same_failure_is_told_once() -> None:
    failures = (Failure("raised", 0, "same"), Failure("raised", 2, "same"), Failure("hang", 4, "x"))
    assert [failure.num_workers for failure in grouped(failures)] == [0, 4]


class TestChart:
    def test_bars_are_as_high_as_the_rates(self) -> None:
        lines = rate_chart(invent().counts).splitlines()
        assert "batches/s by num_workers" in lines[0]
        assert lines[-1].split() == ["0", "2", "4"]
        filled = [sum(line[column] == "█" for line in lines[1:-2]) for column in _columns(lines)]
        assert filled[0] < filled[1] == filled[2]

    def test_it_keeps_to_the_width(self) -> None:
        assert max(map(len, rate_chart(invent().counts, 40).splitlines())) <= 40

    def test_one_count_needs_no_chart(self) -> None:
        assert rate_chart(invent(repeats({0: [3.0, 3.0]})).counts) == ""

    def test_many_counts_are_dots(self) -> None:
        counts = invent(repeats({count: [10.0 + count] for count in range(40)})).counts
        lines = rate_chart(counts).splitlines()
        assert any("•" in line for line in lines)
        assert lines[-1].split()[:2] == ["0", "4"]


def _columns(lines: list[str]) -> list[int]:
    """Where the labels below the axis stand."""
    return [column for column, letter in enumerate(lines[-1]) if letter != " "]


def test_an_automatic_loader_has_no_number_of_its_own() -> None:
    loader = dataclasses.replace(LOADER, num_workers=0, automatic=True)
    automatic = dataclasses.replace(invent(), loader=loader)
    assert "(now it is chosen while the loader runs)" in verdict(automatic)
    assert "now 0" not in verdict(automatic)
