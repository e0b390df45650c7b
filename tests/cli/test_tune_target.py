"""``stoker tune`` on a target and on a program: the whole command, with faults planted.

Samples sleep: how fast they come does not depend on the CPUs that a test happens to get.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.cli import main
from tests.cli.command import run, start, write_target
from tests.measured import measures

pytestmark = measures

SLEEPING = """
class Sleeping(Items):
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)
data = Sleeping(length=4000)
"""
STEP = """
def step(batch):
    assert len(batch) == 4
    time.sleep(0.02)
"""
BRIEF = ("--no-cache", "--seconds", "3")


def read(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return told


class TestTarget:
    def test_a_data_set_with_a_step_and_every_kind_of_result(self, tmp_path: Path) -> None:
        write_target(tmp_path, SLEEPING + STEP)
        code, out, err = run(
            tmp_path, "tune", "target.py:data", "--batch-size", "4", "--step", "target.py:step",
            "--seconds", "5", "--no-cache", "--json", "a.json", "--html", "a.html",
            "--trace", "a.trace",
        )  # fmt: skip
        assert code == 0, err
        assert "watching" not in err
        [told] = read(tmp_path / "a.json")["loaders"]
        assert told["consumer"] == "the step target.py:step"
        assert told["loader"]["batch_size"] == 4
        assert 0.015 < told["step_s"] < 0.2
        assert told["rates"][0]["own"]
        assert told["advice"]["reason"] in out
        assert f"Limit ({told['limit']['kind']}): " in out
        page = (tmp_path / "a.html").read_text("utf-8")
        assert page.lower().startswith("<!doctype html")
        assert "target.py:data" in page
        events = json.loads((tmp_path / "a.trace").read_text("utf-8"))["traceEvents"]
        assert sum(event["ph"] == "X" for event in events) > 20

    @pytest.mark.parametrize("kept", [True, False])
    def test_a_certain_answer_is_kept_if_wanted(
        self, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A step of 100 ms beside batches that are there at once: none is enough."""
        monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "kept"))
        write_target(tmp_path, "data = Items(length=4000)\n")
        more = () if kept else ("--no-cache",)
        code, _, err = run(
            tmp_path, "tune", "target.py:data", "--batch-size", "4", "--step-ms", "100",
            "--seconds", "20", "--json", "a.json", *more,
        )  # fmt: skip
        assert code == 0, err
        [told] = read(tmp_path / "a.json")["loaders"]
        assert told["consumer"] == "a step of 100 ms"
        assert told["advice"]["num_workers"] == 0
        files = sorted((tmp_path / "kept").glob("*.json"))
        found = [entry["num_workers"] for path in files for entry in read(path)["answers"]]
        assert found == ([0] if kept and told["advice"]["certain"] else [])

    @pytest.mark.parametrize(
        ("body", "kind", "said"),
        [
            (
                "def fault():\n    raise ValueError('sample 20 is bad')\n"
                "loader = DataLoader(Items(fault), batch_size=1, num_workers=1)\n",
                "raised",
                "sample 20 is bad",
            ),
            (
                "def fault():\n    os._exit(3)\n"
                "loader = DataLoader(Items(fault, at=0), batch_size=1, num_workers=1)\n",
                "died",
                "A worker died",
            ),
            (
                "def fault():\n    os._exit(3)\n"
                "loader = DataLoader(Items(fault, at=0), batch_size=1)\n",
                "died",
                "ended by itself with exit code 3",
            ),
            ("loader = DataLoader(Items(length=0))\n", "empty", "no batch at all"),
            ("loder = 1\n", "target", "There is no 'loader'"),
        ],
    )
    def test_what_keeps_it_from_being_measured(
        self, body: str, kind: str, said: str, tmp_path: Path
    ) -> None:
        write_target(tmp_path, body)
        code, out, err = run(tmp_path, "tune", "target.py:loader", *BRIEF, "--json", "a.json")
        assert code == 1
        assert "Error: " in err
        assert said in err
        assert "Use num_workers" not in out
        record = read(tmp_path / "a.json")
        assert [each["kind"] for each in record["errors"]] == [kind]
        assert record["recommended"] is None

    def test_a_worker_that_dies_in_a_trial_costs_the_trial(self, tmp_path: Path) -> None:
        body = """
class Dies(Items):
    def __getitem__(self, index):
        if get_worker_info() is not None:
            os._exit(3)
        time.sleep(0.01)
        return torch.zeros(2)
loader = DataLoader(Dies(length=4000), batch_size=4)
"""
        write_target(tmp_path, body)
        code, out, err = run(tmp_path, "tune", "target.py:loader", *BRIEF)
        assert code == 1, err  # what was measured is told all the same
        assert "exited unexpectedly" in out
        assert "keep num_workers=0" in out.lower()

    def test_a_hang_is_told(self, tmp_path: Path) -> None:
        body = """
def fault():
    time.sleep(3600)
loader = DataLoader(Items(fault, at=8), batch_size=4)
"""
        write_target(tmp_path, body)
        code, _, err = run(tmp_path, "tune", "target.py:loader", "--no-cache", "--timeout", "1")
        assert code == 1
        assert "No batch came within 1.0 s." in err
        assert "--timeout" in err


PROGRAM = (
    SLEEPING
    + """
import sys
print("given", sys.argv[1:], flush=True)
if __name__ == "__main__":
    loader = DataLoader(data, batch_size=4)
    for epoch in range(100):
        for batch in loader:
            time.sleep(0.01)
"""
)


class TestProgram:
    def test_its_options_are_its_own_and_it_is_told_that_it_ends(self, tmp_path: Path) -> None:
        write_target(tmp_path, PROGRAM)
        code, out, err = run(
            tmp_path, "tune", *BRIEF, "--json", "a.json", "target.py", "--seconds", "9", "-x"
        )
        assert code == 0, err
        assert "given ['--seconds', '9', '-x']" in out
        assert err.splitlines()[0] == (
            "stoker: watching target.py --seconds 9 -x; it is stopped when its loaders have an "
            "answer (at most 3 s)"
        )
        record = read(tmp_path / "a.json")
        assert record["ended"].startswith("stopped after ")
        assert record["exit_code"] is None
        [told] = record["loaders"]
        assert told["site"]["code"] == "loader = DataLoader(data, batch_size=4)"
        assert told["now_per_s"] > 5

    @pytest.mark.parametrize(("loads", "code"), [(True, 3), (False, 3), (False, 0), (True, 0)])
    def test_it_ends_by_itself(self, loads: bool, code: int, tmp_path: Path) -> None:
        body = "list(DataLoader(Items(), batch_size=4))\n" if loads else ""
        write_target(tmp_path, f"{body}import sys; sys.exit({code})\n")
        told, out, err = run(tmp_path, "tune", *BRIEF, "target.py")
        assert told == (code or 1), "it was too short for an answer"
        if loads:
            assert f"ended by itself with exit code {code}" in out
            assert "none is recommended" in out
            assert "20 batches in 1 epoch were handed out" in out
            assert "Error" not in err
            return
        assert "Error: 'target.py' iterated no DataLoader of PyTorch." in err
        for part in ("watching it for ", "likely", "run it with `python`"):
            assert part in err

    @pytest.mark.parametrize(
        ("words", "code", "named"),
        [
            (["--json", "a.json", "--x", "--html=b"], 2, "--json and --html"),
            (["--budget", "3"], 1, ""),
            (["--x", "json"], 2, ""),
        ],
    )
    def test_options_that_went_to_the_program_are_named(
        self, words: list[str], code: int, named: str, tmp_path: Path
    ) -> None:
        write_target(tmp_path, f"import sys; sys.exit({code})\n")
        told, _, err = run(tmp_path, "tune", *BRIEF, "target.py", *words)
        assert told == code
        assert "iterated no DataLoader of PyTorch." in err
        assert ("options of stoker come before the program" in err) == bool(named)
        assert named in err

    @pytest.mark.skipif(os.name != "posix", reason="signals")
    def test_it_ends_by_a_signal(self, tmp_path: Path) -> None:
        write_target(
            tmp_path,
            "list(DataLoader(Items(), batch_size=4))\nos.kill(os.getpid(), signal.SIGTERM)\n",
        )
        code, out, _ = run(tmp_path, "tune", *BRIEF, "target.py")
        assert code == -signal.SIGTERM
        assert "" == out or "ended by SIGTERM" in out


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", ["target.py:loader", "target.py"])
def test_interrupted_it_tells_what_was_measured(
    what: str, number: signal.Signals, tmp_path: Path
) -> None:
    """What is measured is written down every second; workers are running by then."""
    body = (
        SLEEPING
        + """
class Noted(Sleeping):
    count = 0
    def __getitem__(self, index):
        if get_worker_info() is None:
            Noted.count += 1
        elif not os.path.exists("trial"):
            open("trial", "w").close()
        return super().__getitem__(index)
loader = DataLoader(Noted(length=4000), batch_size=4)
if __name__ == "__main__":
    while True:
        for batch in loader:
            pass
"""
    )
    write_target(tmp_path, body)
    with start(tmp_path, "tune", "--no-cache", "--json", "a.json", what) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "trial").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)  # a write comes every second; alone there would be no need for more
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    is_target = ":" in what
    if "Exception ignored in" in err and "KeyboardInterrupt" in err:
        pytest.skip("Python lost the interrupt in a callback of os.fork, as without Stoker")
    assert process.returncode == (128 + number if is_target else -number), err
    record = read(tmp_path / "a.json")
    [told] = record["loaders"]
    assert told["now_per_s"] > 5
    assert told["advice"] is not None
    assert not told["advice"]["certain"]
    assert told["advice"]["reason"] in out
    if is_target:
        assert [each["kind"] for each in record["errors"]] == ["interrupted"]
        assert f"Interrupted by {number.name}." in err
        assert "This is partial" in out
    else:
        assert record["exit_code"] == -number
        assert "It is not certain" in out


WRONG = [
    (["x.py:loader", "more"], 2, "A target takes no arguments: more"),
    (["x.py:loader", "--step", "x.py:f", "--step-ms", "3"], 2, "exclude each other"),
    (["x.py:loader", "--step", "f"], 1, "path/file.py:NAME"),
    (["x.py:loader", "--batch-size", "0"], 2, "--batch-size"),
    (["--step", "x.py:f", "train.py"], 2, "--step is for a target: a program has its own step."),
    (["--step-ms", "3", "train.py"], 2, "--step-ms is for a target"),
    (["--repeats", "3", "train.py"], 2, "--repeats is for a target."),
    (["train.py"], 1, "'train.py' does not exist"),
    (["-m", "no_such_module_here"], 1, "There is no module 'no_such_module_here'"),
    (["x.py:loader", "--html", "no/such/a.html"], 1, "Can't write"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG)
def test_a_wrong_command_line_is_refused_at_once(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["stoker", "tune", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr()
    assert said in told.err
    assert (end.value.code, told.out) == (code, "")
    assert "Traceback" not in told.err
