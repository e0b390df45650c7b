"""What people read in a terminal, from planted records."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from rich.console import Console

from stoker.report.answers import COLUMNS, answer_heading, footnote, heading, rates_table, verdict
from stoker.tuning.answer import Answer, Line, Report
from stoker.tuning.probing import Setting
from tests.unit.report.random_reports import REPORTS
from tests.unit.report.samples import report
from tests.unit.tuning.planted import SITE, answer, extras, own, replays, rounds, seen

GAINS = answer(
    own(0, 10.0, 10.0, memory_bytes=0),
    [seen(4, 38.0, first_batch_s=0.2, memory_bytes=40_000_000)],
    rounds({4: (38.0, 39.0), 5: (38.5, 39.2)}),
    replays(200.0, 200.0),
    chosen=4,
)
KEEPS = answer(
    own(0, 9.9, 10.0, step_s=0.099),
    [seen(1, 10.05, step_s=0.099)],
    rounds({0: (10.0, 9.9), 1: (10.0, 10.0)}, step_s=0.099),
    replays(10.1, 10.1),
)


def table(of: Answer, width: int = 120) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(rates_table(of, console))
    return stream.getvalue().splitlines()


def heads(width: int) -> set[str]:
    """Words in the head of a table."""
    head = itertools.takewhile(
        lambda line: "━" not in line and "╇" not in line, table(GAINS, width)[1:]
    )
    return {word for line in head for word in line.replace("┃", " ").split()}


def row(of: Answer, name: str) -> str:
    [found] = [line for line in table(of) if f" {name} " in line]
    return found


class TestVerdict:
    def test_what_is_now_what_can_be_had_and_the_change(self) -> None:
        told = verdict(GAINS, partial=False)
        assert "Now, with 0 workers: 10 batches/s; 99 % of the time goes into waiting" in told
        assert "(99 ms a batch, beside a step of 1 ms)" in told
        assert "With batches that are ready: 200 batches/s: no loader setting gains more" in told
        assert "more than 20.0 times." in told
        assert GAINS.advice is not None
        assert f"\n{GAINS.advice.reason}\n" in told
        assert "Use num_workers=4  (now num_workers=0)" in told
        assert "  train.py:2\n" in told
        assert "  - loader = DataLoader(data, batch_size=4)\n" in told
        assert told.endswith("  + loader = DataLoader(data, batch_size=4, num_workers=4)")
        assert "certain" not in told
        assert "partial" not in told

    def test_nothing_to_gain(self) -> None:
        told = verdict(KEEPS, partial=False)
        assert told.endswith("Nothing to gain: keep num_workers=0.")
        assert "no loader setting gains more than" in told
        assert "Limit (consumer): " in told
        assert "Use " not in told

    def test_one_setting_alone_is_no_proof(self) -> None:
        told = verdict(answer(own(0, 10.0), certain=False), partial=False)
        assert "It is not certain" in told
        assert told.endswith("Keep num_workers=0 for now: nothing else was measured.")

    def test_a_run_that_was_cut_short_says_so(self) -> None:
        assert "This is partial" in verdict(GAINS, partial=True)
        assert "This is partial" not in verdict(GAINS, partial=False)

    def test_nothing_was_measured(self) -> None:
        told = verdict(answer(), partial=True)
        assert told.endswith("No setting was measured to the end, so none is recommended.")
        assert "Limit (unknown): " in told

    def test_lines_are_named_by_file_and_line(self) -> None:
        lines = tuple(
            Line(
                f"/home/me\\data{n}.py", n, "load", "image = resize(image)", 0.4, 100, "PIL.resize"
            )
            for n in range(5)
        )
        told = verdict(replace(GAINS, lines=lines), partial=False)
        assert "Making a batch takes 100 ms; most of that in\n" in told
        assert "  40 %  data0.py:0: image = resize(image), in PIL.resize\n" in told
        assert "data2.py:2" in told
        assert "data3.py:3" not in told

    def test_a_change_in_words_begins_like_a_sentence(self) -> None:
        assert GAINS.change is not None
        changed = replace(GAINS.change, text="pass --workers 4", before="", after="")
        told = verdict(replace(GAINS, change=changed), partial=False)
        assert told.endswith("\nPass --workers 4")


class TestTable:
    def test_the_recommended_one_has_the_arrow_and_the_own_one_its_name(self) -> None:
        assert [line.split("│")[1].strip() for line in table(GAINS)[3:-1]] == ["", "→", ""]
        assert "0 (now)" in row(GAINS, "0 (now)")

    def test_cells(self) -> None:
        cells = [cell.strip() for cell in row(GAINS, "→").split("│")[2:-1]]
        assert cells[:4] == ["4", "38.5", "2 %", "0.2"]
        assert cells[-1] == "40 MB"

    @pytest.mark.parametrize("width", [*range(40, 70), 80])
    def test_a_narrow_one_has_fewer_columns_and_no_number_that_is_cut(self, width: int) -> None:
        lines = table(GAINS, width)
        told = "\n".join(lines)
        assert "…" not in told
        assert max(map(len, lines)) <= width
        cells = {cell.strip() for line in lines for cell in line.split("│")}
        assert cells >= {"4", "38.5", "10"}

    def test_a_narrow_one_drops_the_least_important_first(self) -> None:
        widths = range(30, 100)
        kept = [{name for name in COLUMNS if set(name.split()) <= heads(width)} for width in widths]
        assert all(narrow <= wide for narrow, wide in itertools.pairwise(kept))
        assert {"workers", "batches/s"} <= kept[0]
        assert len(kept[-1]) == len(COLUMNS)

    def test_one_window_has_no_spread(self) -> None:
        assert "one look" in row(answer(own(0, 10.0)), "0 (now)")

    def test_other_settings_are_told_apart(self) -> None:
        found = answer(
            own(4, 20.0),
            extras(
                {
                    Setting(4): (20.0, 21.0),
                    Setting(4, "stoker"): (60.0, 61.0),
                    Setting(4, "torch", 4): (30.0, 31.0),
                }
            ),
            own=4,
        )
        assert "→" in row(found, "4 (now)")
        assert "→" not in row(found, "4 (Stoker's)") + row(found, "4 (prefetch 4)")

    def test_a_star_is_explained(self) -> None:
        short = answer(own(2, 20.0, whole=True), own=2, epoch_batches=10)
        assert "20 *" in row(short, "2 (now)")
        assert footnote(short).startswith("* an epoch is too short")
        assert footnote(GAINS) == ""


class TestHeadings:
    def test_where_it_was_made_and_through_what(self) -> None:
        told = answer_heading(replace(GAINS, site=replace(SITE, library="accelerate")))
        assert told.splitlines() == [
            "train.py:2 (through accelerate)  loader = DataLoader(data, batch_size=4)",
            "torch.utils.data.DataLoader, batch size 4, 1,000 batches an epoch",
            "used by the program's own step",
        ]

    @pytest.mark.parametrize(("kind", "last"), [("program", "1 loader, "), ("target", "CPU")])
    def test_how_it_ended_is_told_of_programs(self, kind: Any, last: str) -> None:
        told = heading(replace(report(), kind=kind, answers=(GAINS,), ended="ended by SIGTERM"))
        assert last in told.splitlines()[-1]
        assert ("ended by SIGTERM" in told) == (kind == "program")


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
@given(REPORTS)
def test_any_report_can_be_told(given: Report) -> None:
    assert isinstance(heading(given), str)
    for each in given.answers:
        assert isinstance(answer_heading(each) + footnote(each), str)
        table(each)
        assert verdict(each, partial=bool(given.failures))
