"""``stoker top`` beside a process that publishes what a loader would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker.cli import live
from tests.cli.command import PACKAGE, run, start

ABSENT = 2**31 - 2
PUBLISHER = """
import os, subprocess, sys, time
from pathlib import Path
from stoker.transport import board_memory
from stoker.transport.board import publish
from stoker.tuning.decision import Decision
from stoker.tuning.statistics import Statistics, WorkerState
from stoker.tuning.status import encode
if sys.argv[1] == "file":
    board_memory.kind_here = lambda: "file"
idle = [sys.executable, "-c", "import sys; sys.stdin.read()"]
worker = subprocess.Popen(idle, stdin=subprocess.PIPE)
stranger = os.getppid()
def tell(batches, seconds, name="Images, 60000 samples, batch 64", key=1):
    statistics = Statistics(
        automatic=True, num_workers=2, peak_workers=3, epochs=1, batches=batches, seconds=seconds,
        workers=(WorkerState(0, worker.pid, "working"), WorkerState(1, stranger, "idle")),
        decisions=(Decision(1, 2, "the consumer waits 40 %", (), 1.5, 10),),
    )
    publish(key, encode(statistics, name, time.time()))
tell(100, 10.0)
"""
END = """
print("up", flush=True)
sys.stdin.readline()
worker.communicate()
"""


@pytest.fixture(params=["memfd", "file"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "memfd" and sys.platform != "linux":
        pytest.skip("needs memfd")
    return str(request.param)


Publish = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def publisher(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publish]:
    """Starts processes that publish, with `more` done before they say so."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where boards in files are
    started: list[subprocess.Popen[str]] = []

    def begin(more: str = "", end: str = END) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER + textwrap.dedent(more) + end, kind],
            env={**os.environ, "PYTHONPATH": PACKAGE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        process.communicate()
    assert not list(tmp_path.glob("stoker-*/*"))


def record(folder: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = run(folder, "top", "--once", "--json", *arguments)
    assert (code, err) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


def test_a_running_loader_is_shown(publisher: Publish, tmp_path: Path) -> None:
    process = publisher()
    code, out, err = run(tmp_path, "top", str(process.pid))
    assert (code, err) == (0, "")
    assert re.search(rf"^{process.pid}  python\S* -c ", out, re.MULTILINE)
    assert "Images, 60000 samples, batch 64" in out
    assert "10 batches/s, the consumer waits" in out
    assert re.search(r"#0 working \d+ % CPU   #1 idle$", out, re.MULTILINE)
    assert "1 -> 2 workers after 1.5 s: the consumer waits 40 %" in out
    assert "\x1b" not in out


def test_all_loaders_of_all_processes(publisher: Publish, tmp_path: Path) -> None:
    one, two = publisher(), publisher("tell(5, 1.0, 'another', key=2)")
    told = {each["pid"]: each for each in record(tmp_path)["processes"]}
    assert [loader["name"] for loader in told[two.pid]["loaders"]] == [
        "Images, 60000 samples, batch 64",
        "another",
    ]
    assert len(told[one.pid]["loaders"]) == 1
    assert told[one.pid]["loaders"][0]["statistics"]["batches"] == 100


def test_what_is_no_message_is_passed_over(publisher: Publish, tmp_path: Path) -> None:
    process = publisher("publish(9, b'no json'); publish(8, bytes(100))")
    [found] = record(tmp_path, str(process.pid))["processes"]
    assert len(found["loaders"]) == 1


def test_a_process_that_does_not_exist(tmp_path: Path) -> None:
    for arguments in ([], ["--once"], ["--json"]):
        code, out, err = run(tmp_path, "top", str(ABSENT), *arguments)
        assert (code, out) == (1, "")
        assert err.startswith(f"Error: There is no process {ABSENT}.")


def test_a_process_without_a_loader(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "top", str(os.getpid()))
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: Process {os.getpid()} runs no Stoker loader now.")


def test_a_process_that_was_killed_is_gone(publisher: Publish, kind: str, tmp_path: Path) -> None:
    process = publisher()
    process.kill()
    process.wait()
    assert run(tmp_path, "top", str(process.pid))[0] == 1
    assert process.pid not in [each["pid"] for each in record(tmp_path)["processes"]]


@pytest.mark.parametrize("arguments", [["0"], ["-3"], ["x"], ["--interval", "0"], ["1", "2"]])
def test_bad_arguments_are_2(tmp_path: Path, arguments: list[str]) -> None:
    assert run(tmp_path, "top", *arguments)[0] == 2


def test_lines_of_json_until_ctrl_c(publisher: Publish, tmp_path: Path) -> None:
    loader = publisher()
    with start(tmp_path, "top", "--json", "--interval", "0.05", str(loader.pid)) as top:
        assert top.stdout is not None
        lines = [json.loads(top.stdout.readline()) for _ in range(3)]
        top.send_signal(signal.SIGINT)
        out, err = top.communicate(timeout=60)
    assert (top.returncode, err) == (0, "")
    assert all(json.loads(line) for line in out.splitlines())
    assert [line["processes"][0]["pid"] for line in lines] == [loader.pid] * 3
    assert lines[0]["at_s"] < lines[1]["at_s"] < lines[2]["at_s"]


def test_a_reader_that_leaves_ends_it(publisher: Publish, tmp_path: Path) -> None:
    loader = publisher()
    with start(tmp_path, "top", "--json", "--interval", "0.05", str(loader.pid)) as top:
        assert top.stdout is not None
        assert top.stderr is not None
        top.stdout.readline()
        top.stdout.close()
        assert top.wait(timeout=60) == 0
        assert top.stderr.read() == ""


def test_it_ends_with_the_process_it_looks_at(publisher: Publish, tmp_path: Path) -> None:
    loader = publisher()
    with start(tmp_path, "top", "--json", "--interval", "0.05", str(loader.pid)) as top:
        assert top.stdout is not None
        top.stdout.readline()
        loader.communicate("\n")
        _, err = top.communicate(timeout=60)
    assert (top.returncode, err) == (0, "")


def test_another_users_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert live._why_not(os.getpid()).what == f"Process {os.getpid()} belongs to another user."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a pseudo-terminal")
class TestTerminal:
    """Where there are no others: `read_boards` finds one process, or none."""

    def test_ctrl_c_ends_a_live_view_quietly(self, publisher: Publish, tmp_path: Path) -> None:
        loader = publisher()
        with Terminal(tmp_path, f"lambda pid: look({loader.pid})") as terminal:
            terminal.read_until(str(loader.pid))
            terminal.read_until("the consumer waits 40 %")
            loader.communicate("\n")
            terminal.read_until("No Stoker loader of this user is running.")
            terminal.process.send_signal(signal.SIGINT)
            assert terminal.process.wait(60) == 0
            assert terminal.read_rest().endswith("\x1b[?25h")  # the cursor is back
        assert "Interrupted" not in terminal.text

    def test_a_loader_that_comes_later_is_shown(self, publisher: Publish, tmp_path: Path) -> None:
        with Terminal(tmp_path, "lambda pid: look(int(Path('pid').read_text() or 0))") as terminal:
            terminal.read_until("No Stoker loader of this user is running.")
            loader = publisher()
            (tmp_path / "pid").write_text(str(loader.pid))
            terminal.read_until("the consumer waits 40 %")

    def test_a_signal_leaves_the_terminal_as_it_was(self, tmp_path: Path) -> None:
        with Terminal(tmp_path, "lambda pid: []") as terminal:
            terminal.read_until("No Stoker loader of this user is running.")
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.process.wait(60) == 128 + signal.SIGTERM
            assert terminal.read_rest().endswith("\x1b[?25h")


ALONE = """
import sys
from pathlib import Path
from stoker.cli import live, main
look = live.read_boards
live.read_boards = {instead}
sys.argv = ["stoker", "top", "--interval", "0.05"]
main()
"""


class Terminal:
    """``stoker top`` in a pseudo-terminal, with something instead of its `read_boards`."""

    def __init__(self, folder: Path, instead: str) -> None:
        (folder / "pid").touch()
        self._master, self._slave = os.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", ALONE.format(instead=instead)],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": PACKAGE,
                "COLUMNS": "120",
                "LINES": "60",
                "TERM": "xterm",
            },
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
        )
        os.close(self._slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if psutil.pid_exists(self.process.pid):
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def read_until(self, words: str) -> None:
        while words not in self.text:
            self.text += os.read(self._master, 65536).decode()

    def read_rest(self) -> str:
        """To the end; Linux tells it by an error."""
        try:
            while data := os.read(self._master, 65536):
                self.text += data.decode()
        except OSError:
            pass
        return self.text.rstrip()
