from __future__ import annotations

import json
import math
from typing import Any

import pytest
from rich.console import Console

from stoker.report.top import (
    NOBODY,
    LoaderView,
    ProcessView,
    printable,
    shortened,
    top_json,
    top_text,
)
from stoker.tuning.statistics import Statistics
from stoker.tuning.status import LoaderStatus, Pace
from tests.unit.tuning.invented_statistics import invent

NOW_S = 1000.0


def view(
    age_s: float = 0.2, pace: Pace | None = None, command: str = "python train.py", **changes: Any
) -> ProcessView:
    status = LoaderStatus("Images, 60000 samples, batch 64", NOW_S - age_s, invent(**changes))
    loader = LoaderView(status, pace or Pace(812.0, 0.031), {0: 98.4, 2: 0.0})
    return ProcessView(4710, command, (loader,))


def shown(*processes: ProcessView, width: int = 200) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(top_text(processes, NOW_S))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_everything_about_a_loader_is_there() -> None:
    assert shown(view()).splitlines() == [
        "4710  python train.py",
        "  loader      Images, 60000 samples, batch 64",
        "    told      200 ms ago",
        "    epoch     2, after 1,800 batches in all; 938 batches in each epoch",
        "    pace      812 batches/s, the consumer waits 3 %",
        "    workers   4, chosen by the loader (at most 6): 2 working, 1 idle, 1 starting",
        "              #0 working 98 % CPU   #1 working   #2 idle 0 % CPU   #3 starting",
        "    queue     4 batches in flight (at most 12)",
        "    memory    40 MiB of 2 GiB for batches in flight; 16.1 GiB handed out",
        "    decision  2 -> 4 workers after 12.0 s: the consumer waits 40 %",
    ]


def test_several_processes_and_loaders() -> None:
    two = ProcessView(4711, "", (*view().loaders, *view().loaders))
    text = shown(view(), two)
    assert text.count("  loader ") == 3
    assert "\n4711\n" in text


def test_nobody() -> None:
    assert shown() == NOBODY


@pytest.mark.parametrize(
    ("age_s", "told"),
    [
        (0.0, "just now"),
        (-5.0, "just now"),
        (3.0, "3.0 s ago"),
        (60.0, "60.0 s ago; the loop may be in a long step"),
    ],
)
def test_age(age_s: float, told: str) -> None:
    assert f"told      {told}\n" in shown(view(age_s))


def test_a_loader_that_has_only_begun() -> None:
    status = LoaderStatus("x", NOW_S, Statistics())
    text = shown(ProcessView(1, "x", (LoaderView(status, Pace(None, None)),)))
    assert "pace      no batch yet" in text
    assert "workers   0, as given (at most 0)\n" in text
    assert "memory    0 bytes for batches in flight" in text
    assert "decision" not in text


def test_nothing_from_outside_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b[2J\x9b31m\r\n\t[bold]x[/bold]\u202e"
    status = LoaderStatus(evil, NOW_S, invent(decisions=()))
    text = shown(ProcessView(1, evil, (LoaderView(status, Pace(1.0, 0.0)),)))
    assert text.replace("\n", "").isprintable()
    assert text.count("[bold]x[/bold]") == 2  # rich's markup is text, too


def test_a_narrow_terminal_loses_no_number() -> None:
    text = shown(view(), width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert "#3" in text


def test_long_commands_lose_their_middle() -> None:
    assert shortened("short") == "short"
    command = f"python train.py {'--option=value ' * 20}--last"
    assert len(shortened(command)) == 60
    assert shortened(command).startswith("python train.py")
    assert shortened(command).endswith("--last")
    assert shortened("a" * 61, 60) == "a" * 38 + "..." + "a" * 19


def test_printable() -> None:
    assert printable("é – 数\x00\n") == "é – 数??"


class TestJson:
    def test_a_line_with_everything(self) -> None:
        text = top_json([view()], NOW_S)
        assert text.count("\n") == 1
        told = json.loads(text)
        assert told["schema"] == 1
        assert told["at_s"] == NOW_S
        [process] = told["processes"]
        assert process["pid"] == 4710
        assert process["command"] == "python train.py"
        [loader] = process["loaders"]
        assert loader["name"] == "Images, 60000 samples, batch 64"
        assert loader["age_s"] == pytest.approx(0.2)
        assert loader["rate_per_s"] == 812.0
        assert loader["waiting"] == 0.031
        assert loader["statistics"]["batches"] == 1800
        used = [worker["cpu_percent"] for worker in loader["statistics"]["workers"]]
        assert used == [98.4, None, 0.0, None]

    def test_nobody(self) -> None:
        assert json.loads(top_json([], NOW_S)) == {"schema": 1, "at_s": NOW_S, "processes": []}

    def test_odd_numbers(self) -> None:
        told = json.loads(top_json([view(pace=Pace(math.inf, math.nan), seconds=math.inf)], NOW_S))
        [loader] = told["processes"][0]["loaders"]
        assert loader["rate_per_s"] is None
        assert loader["waiting"] is None
