"""What the command line refuses, and what it finds out before anything is measured."""

import dataclasses
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cli import main, sweep
from stoker.cli.deliver import Outputs, show, write_files
from stoker.cli.output import check_writable, write_whole
from stoker.errors import StokerError
from stoker.host.facts import Fact
from stoker.report.record import report_json
from stoker.tuning.of_sweep import report_of_sweep
from tests.cli.command import start, write_target
from tests.unit.report.invented import LOADER, invent
from tests.unit.tuning.foretelling import measured
from tests.unit.tuning.simulated import World

Stoker = Callable[..., int]


@pytest.fixture
def stoker(monkeypatch: pytest.MonkeyPatch) -> Stoker:
    """Runs the command in this process; a trial would be a failure."""

    def refuse(*_: object) -> None:
        raise AssertionError("something was measured")

    def call(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["stoker", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return end.value.code

    monkeypatch.setattr(sweep, "_measure", refuse)
    return call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0,x"], "'x' is not a number of workers"),
        (["--workers", "-1"], "'-1' is not a number of workers"),
        (["--workers", ""], "'' is not a number of workers"),
        (["--workers", "0,,2"], "'' is not a number of workers"),
        (["--workers", "100000"], "more than 1024"),
        (["--workers", "1", "--exhaustive"], "exclude each other"),
        (["--batches", "0"], "--batches"),
        (["--seconds", "0"], "above 0"),
        (["--seconds", "nan"], "above 0"),
        (["--timeout", "inf"], "above 0"),
        (["--repeats", "-3"], "--repeats"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_options_are_2(
    stoker: Stoker, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert stoker("tune", "x.py:loader", *arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.py:loader", "--workers", "0", "--budget", "9"], "--budget is not for --workers"),
        (["x.py:loader", "--exhaustive", "--steps", "9"], "--steps is not for --workers"),
        (["x.py:loader", "--repeats", "2", "--trace", "t.json"], "--trace is not for a sweep"),
        (["x.py:loader", "--steps", "9"], "--steps is for a program: --budget says how long"),
        (["--batch-size", "4", "train.py"], "--batch-size is for a target that is a data set"),
        (["--step-ms", "4", "train.py"], "--step-ms is for a target"),
        (["--repeats", "2", "train.py"], "--repeats is for a target"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(
    stoker: Stoker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stoker("tune", *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_step_without_a_name_is_told_of_the_step(
    stoker: Stoker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stoker("tune", "x.py:loader", "--step", "step.py") == 1
    told = capsys.readouterr().err
    assert "'step.py' does not name a step" in told
    assert "give --step path/file.py:NAME" in told


@pytest.mark.parametrize("option", ["json", "html", "trace"])
def test_any_result_may_go_to_standard_output_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = Outputs(**{option: "-"})
    outputs.check()
    report = report_of_sweep(invent(), Fact(8 << 30, "memory available"))
    assert write_files(report, outputs)
    assert show(report, outputs)
    told = capsys.readouterr()
    assert told.out[:1] in "{<"
    assert told.out.rstrip()[-1:] in "}>"
    assert "Use num_workers=2" in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"json": "-", "html": "-"}, "--json and --html both name standard output"),
        ({"html": "a", "trace": "./a"}, "--html and --trace both name "),
    ],
)
def test_two_results_in_one_place_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paths: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StokerError, match=said):
        Outputs(**paths).check()
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_commands_cuts_no_line(
    stoker: Stoker, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        assert stoker("--help") == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_no_target_and_no_such_command_are_2(stoker: Stoker) -> None:
    assert stoker("tune") == 2
    assert stoker("tuna") == 2


@pytest.mark.parametrize("name", ["missing/result.json", "."])
def test_a_result_that_could_not_be_written_is_told_before_measuring(
    stoker: Stoker, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    assert stoker("tune", "x.py:loader", "--json", str(tmp_path / name)) == 1
    assert "Can't write" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
class TestFullDisk:
    def test_json(
        self, stoker: Stoker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sweep, "_measure", lambda request: (invent(), 0))
        assert stoker("tune", "x.py:loader", "--exhaustive", "--json", "/dev/full") == 1
        told = capsys.readouterr()
        assert "Can't write '/dev/full': No space left on device" in told.err
        assert "Use num_workers=2" in told.out

    def test_standard_output(
        self,
        stoker: Stoker,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
    ) -> None:
        monkeypatch.setattr(sweep, "_measure", lambda request: (invent(), 0))
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr("sys.stdout", full)
            code = stoker(
                "tune", "x.py:loader", "--exhaustive", "--json", str(tmp_path / "result.json")
            )
        assert code == 1
        assert "No space left" in capsys.readouterr().err
        assert (tmp_path / "result.json").read_text().startswith("{")


def test_standard_output_without_unicode_gets_the_table_and_no_chart(
    stoker: Stoker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sweep, "_measure", lambda request: (invent(), 0))
    path = tmp_path / "out.txt"
    with open(path, "w", encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert stoker("tune", "x.py:loader", "--exhaustive") == 0
    told = path.read_text(encoding="ascii")
    assert "Use num_workers=2" in told
    assert "812" in told
    assert "by num_workers" not in told


class TestWritingWhole:
    def test_a_failure_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "result.json"
        path.write_text("old")

        def full(_handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StokerError, match="No space left"):
            write_whole(str(path), "new")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_an_old_file_is_replaced_and_keeps_its_permissions(self, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        path.write_text("old")
        path.chmod(0o640)
        write_whole(str(path), "new")
        assert path.read_text() == "new"
        assert path.stat().st_mode & 0o777 == 0o640

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to("real")
        write_whole(str(tmp_path / "link"), "new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_text() == "new"

    def test_checking_leaves_nothing(self, tmp_path: Path) -> None:
        check_writable(str(tmp_path / "result.json"))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize("words", [("--help",), ("simulate", "result.json")])
def test_a_reader_that_has_gone_is_told_of_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    report = report_of_sweep(invent(), Fact(8 << 30, "memory available"))
    answer = dataclasses.replace(measured(World(cpus=2, service_s=0.2), [0, 1, 2]), loader=LOADER)
    (tmp_path / "result.json").write_text(
        report_json(dataclasses.replace(report, answers=(answer,)))
    )
    assert read_by_nobody(tmp_path, *words) == (1, "")


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_a_tuned_programs_workers_end_though_nobody_reads_the_answer(tmp_path: Path) -> None:
    body = """
import atexit
if __name__ == "__main__":
    loader = DataLoader(Items(length=4000), batch_size=4, num_workers=1)
    atexit.register(lambda: open("ended", "w").close())
    while True:
        for batch in loader:
            time.sleep(0.001)
"""
    write_target(tmp_path, body)
    code, err = read_by_nobody(
        tmp_path, "tune", "--no-cache", "--budget", "2", "--json", "a.json", "target.py"
    )
    assert code == 1
    assert [line for line in err.splitlines() if not line.startswith("stoker: watching")] == []
    assert (tmp_path / "ended").exists()
    assert (tmp_path / "a.json").exists()


def read_by_nobody(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output nobody reads."""
    with start(folder, *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        return process.wait(60), err


@pytest.mark.parametrize("command", ["tune", "run"])
def test_the_help_says_where_options_go(
    stoker: Stoker, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert stoker(command, "--help") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Options of stoker come BEFORE" in told
    assert "all that comes after it is the program's own." in told
