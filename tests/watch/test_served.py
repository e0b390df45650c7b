from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stoker.report.run import MOST_LINES, run_json, summary
from stoker.tuning.answer import Site
from stoker.watch.parts import failures_in, served_in
from stoker.watch.served import Outcome, Served, decode, encode, merged

LINE = Served(
    site=Site("/home/me/train.py", 31, "main", "loader = DataLoader("),
    asked=(4,),
    epochs=2,
    batches=100,
    seconds=10.0,
    lost_s=1.0,
    workers=(2, 2),
    automatic=True,
    reason="a batch takes 40 ms to make and the step 20 ms: 2 workers keep it fed",
)


def outcome(*served: Served, failures: tuple[str, ...] = ()) -> Outcome:
    return Outcome("train.py", 0, 12.0, served, failures)


def other(line: int, **changes: object) -> Served:
    return replace(LINE, site=replace(LINE.site, line=line), **changes)  # type: ignore[arg-type]


def test_what_is_written_can_be_read() -> None:
    lines = [LINE, other(40, fallback="why not", asked=(0, 2))]
    assert decode(encode(lines)) == lines
    for text in ("{", "[1]", '[{"site": 1}]', "null"):
        with pytest.raises(ValueError, match=r".*"):
            decode(text)


def test_the_same_line_in_two_processes_is_one() -> None:
    rank = replace(LINE, batches=300, seconds=20.0, workers=(3, 3), asked=(2,), lost_s=5.0)
    (line,) = merged([LINE, rank])
    assert (line.processes, line.batches, line.workers, line.asked) == (2, 400, (2, 3), (2, 4))
    assert line.rate_per_s == pytest.approx(400 / 30)
    assert line.waiting == pytest.approx(6 / 30)


def test_one_that_was_never_asked_says_nothing_about_the_others() -> None:
    idle = replace(LINE, epochs=0, batches=0, seconds=0.0, lost_s=0.0, workers=(0, 0))
    (line,) = merged([idle, LINE])
    assert (line.workers, line.processes) == ((2, 2), 1)
    assert "was never asked for a batch" in summary(outcome(idle))[1]


def test_the_costliest_line_comes_first() -> None:
    assert [line.site.line for line in merged([LINE, other(7, lost_s=9.0)])] == [7, 31]


def test_people_read_the_number_the_rate_the_waiting_and_why() -> None:
    head, line = summary(outcome(LINE))
    assert head == "stoker run: 1 loader"
    assert line == (
        "  train.py:31: 2 workers (the program says 4), 10 batches/s, waited 10 % of the "
        "whole time, starting and choosing included. Chosen last, because "
        "a batch takes 40 ms to make and the step 20 ms: 2 workers keep it fed"
    )
    kept = replace(LINE, automatic=False, reason="", processes=2, workers=(1, 2))
    assert "in 2 processes: 1 to 2 workers as the program says" in summary(outcome(kept))[1]


def test_without_a_loader_that_is_said() -> None:
    assert summary(outcome()) == ["stoker run: the program made no DataLoader"]
    failed = summary(outcome(failures=("PyTorch 2.1 is older than 2.8",)))
    assert "PyTorch's own loader was used: PyTorch 2.1 is older than 2.8" in failed[1]


@pytest.mark.parametrize("failures", [0, 1, 30])
@pytest.mark.parametrize("lines", [0, 8, 9, 10, 200])
def test_it_is_ten_lines_at_most(lines: int, failures: int) -> None:
    served = [other(number, reason="so " * 500) for number in range(1, lines + 1)]
    told = summary(outcome(*served, failures=tuple(map(str, range(failures)))))
    assert len(told) <= MOST_LINES
    assert all("\n" not in line and len(line) <= 300 for line in told)
    if lines > 9:
        assert "more; --json FILE tells all" in told[-1]


def test_machines_read_all_of_it() -> None:
    told = json.loads(run_json(outcome(*[other(n) for n in range(1, 31)], failures=("why",))))
    assert told["schema"] == 1
    assert len(told["loaders"]) == 30
    assert told["failures"] == ["why"]
    assert told["loaders"][0]["fewest_workers"] == 2
    assert told["loaders"][0]["engine"] == "stoker"


def test_the_folder_is_read_whatever_is_in_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "part-1.json").write_text(encode([LINE]))
    (tmp_path / "part-2.json").write_text(encode([LINE])[:40])
    (tmp_path / "part-3.new").write_text("")
    for pid in (4, 5):
        (tmp_path / f"failed-{pid}.txt").write_text("ImportError: no\n\nTraceback")
    assert served_in(str(tmp_path)) == (LINE,)
    assert failures_in(str(tmp_path)) == ("ImportError: no",)


def test_starting_workers_is_told_where_it_takes_much_of_several_epochs() -> None:
    started = replace(LINE, lost_s=8.0, start_s=8.2, coming_up_s=8.0, starts=2)
    told = "4.1 s of 5.1 s an epoch went into starting workers"
    assert f"{told} (persistent_workers=True would save that)" in summary(outcome(started))[1]
    anew = summary(outcome(replace(started, made=2)))[1]
    assert "one loader for all epochs, with persistent_workers=True" in anew
    kept = summary(outcome(replace(started, starts=1)))[1]
    assert told in kept
    assert "persistent" not in kept
    small = replace(LINE, lost_s=8.0, start_s=1.0, coming_up_s=0.9, starts=2)
    assert "starting workers" not in summary(outcome(small))[1]
