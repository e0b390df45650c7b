"""The command on results that were made up."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cli import main
from stoker.host.facts import Fact
from stoker.report.record import report_json
from stoker.tuning.answer import Answer, Report
from tests.api.test_rooms import loaded_by
from tests.cli.command import run
from tests.unit.report.invented import CPUS, LOADER, invent
from tests.unit.tuning.foretelling import measured
from tests.unit.tuning.simulated import World

Stoker = Callable[..., int]
WORLD = World(cpus=2, service_s=0.2, cpu=0.7, away_s=0.05, noise=0.01)


@pytest.fixture
def stoker(monkeypatch: pytest.MonkeyPatch) -> Stoker:
    def call(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["stoker", "simulate", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return end.value.code

    return call


@pytest.fixture
def answer() -> Answer:
    return dataclasses.replace(measured(WORLD, [0, 1, 2, 4]), loader=LOADER)


def write(folder: Path, *answers: Answer) -> str:
    report = Report(
        "train.py",
        "program",
        answers,
        (),
        CPUS,
        Fact(8 << 30, "memory available"),
        invent().software,
        3.0,
    )
    path = folder / "result.json"
    path.write_text(report_json(report))
    return str(path)


def test_a_larger_machine_from_end_to_end(tmp_path: Path, answer: Answer) -> None:
    write(tmp_path, answer)
    code, out, err = run(
        tmp_path, "simulate", "result.json", "--cpus", "24", "--memory", "128GB",
        "--step-ms", "40", "--json", "there.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    record = json.loads((tmp_path / "there.json").read_text())
    assert record["machine"] == {
        "cpus": 24.0,
        "memory_bytes": 128 * 10**9,
        "step_s": 0.04,
        "cpu_speed": 1.0,
    }
    [loader] = record["loaders"]
    assert loader["fewest"] <= 5 <= loader["most"]
    assert f"Use num_workers={loader['num_workers']} there" in out
    assert all(each in out for each in loader["assumptions"])


def test_json_alone_on_standard_output(
    stoker: Stoker, tmp_path: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stoker(write(tmp_path, answer), "--cpus", "0.5", "--json", "-") == 0
    told = capsys.readouterr()
    record = json.loads(told.out)
    assert record["machine"]["memory_bytes"] == 8 << 30
    assert record["machine"]["step_s"] is None
    assert "train.py:31 on 0.5 CPUs" in told.err


def test_every_loader_in_turn_or_one(
    stoker: Stoker, tmp_path: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, answer, dataclasses.replace(answer, name="train.py:40"))
    assert stoker(path) == 0
    out = capsys.readouterr().out
    assert out.index("train.py:31 on") < out.index("train.py:40 on")
    assert stoker(path, "--loader", "train.py:40") == 0
    assert "train.py:31" not in capsys.readouterr().out
    assert stoker(path, "--loader", "train.py:4") == 1
    told = capsys.readouterr().err
    assert "no loader 'train.py:4'" in told
    assert "2 loaders: 'train.py:31', 'train.py:40'" in told


def test_what_was_not_measured_is_told_and_the_rest_is_foretold(
    stoker: Stoker, tmp_path: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    unmeasured = dataclasses.replace(answer, name="train.py:40", work=None)
    assert stoker(write(tmp_path, answer, unmeasured)) == 1
    told = capsys.readouterr()
    assert "train.py:31 on" in told.out
    assert "What a batch of train.py:40 costs was not measured" in told.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not a text"),
        (b'{"schema": 9}', "has schema 9"),
        (b"[]", "no schema number"),
        (None, "Can't read"),
    ],
)
def test_other_files_are_refused(
    stoker: Stoker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: bytes | None,
    said: str,
) -> None:
    path = tmp_path / "other.json"
    if text is not None:
        path.write_bytes(text)
    assert stoker(str(path)) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cpus", "0"], "'0' is not a number of CPUs"),
        (["--cpus", "-2"], "is not a number of CPUs"),
        (["--cpus", "nan"], "is not a number of CPUs"),
        (["--cpus", "1e9"], "is not a number of CPUs"),
        (["--cpus", "many"], "is not a number of CPUs"),
        (["--memory", "128"], "'128' is not a size"),
        (["--memory", "0GB"], "above 0"),
        (["--memory", "9999TB"], "up to 1 PiB"),
        (["--step-ms", "-1"], "--step-ms"),
        (["--step-ms", "nan"], "--step-ms"),
        (["--step-ms", "1e9"], "--step-ms"),
        (["--cpu-speed", "0.5"], "--cpu-speed"),
        (["--cpu-speed", "nan"], "--cpu-speed"),
    ],
)
def test_bad_options_are_2(
    stoker: Stoker, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert stoker("result.json", *arguments) == 2
    assert said in capsys.readouterr().err


def test_it_comes_up_without_torch() -> None:
    loaded = loaded_by("import stoker.cli.simulate, stoker.cli.foretelling")
    assert not loaded & {"torch", "numpy"}
