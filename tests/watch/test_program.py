from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stoker.errors import ProgramError
from stoker.watch.program import Program


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('was run')")
    package = tmp_path / "jobs"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was imported')")
    (package / "train.py").write_text("raise SystemExit('was imported')")
    runnable = tmp_path / "whole"
    runnable.mkdir()
    (runnable / "__main__.py").write_text("")


def refused(*words: str) -> str:
    with pytest.raises(ProgramError) as caught:
        Program.of(words)
    return str(caught.value)


def test_a_script_is_run_by_this_python() -> None:
    program = Program.of(["train.py", "--help", "a b"])
    assert program.argv == (sys.executable, "train.py", "--help", "a b")
    assert program.command == "train.py --help 'a b'"


def test_a_module_is_found_without_being_imported() -> None:
    assert Program.of(["-m", "jobs.train", "-x"]).argv[1:] == ("-m", "jobs.train", "-x")
    assert Program.of(["-m", "json.tool"]).argv[1:] == ("-m", "json.tool")
    assert Program.of(["-m", "whole"]).argv[1:] == ("-m", "whole")


def test_a_command_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "bin" / "launcher"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    assert Program.of(["launcher", "train.py"]).argv == (str(command), "train.py")


@pytest.mark.skipif(os.name != "posix", reason="how files are executed")
def test_a_file_that_can_be_executed_is(tmp_path: Path) -> None:
    script = tmp_path / "go"
    script.write_text("#!/bin/sh\n")
    assert Program.of(["./go"]).argv == (sys.executable, "./go")
    script.chmod(0o755)
    assert Program.of(["./go"]).argv == ("./go",)


def test_a_missing_file_is_told_with_the_nearest_name() -> None:
    told = refused("trian.py")
    assert "The file 'trian.py' does not exist." in told
    assert "did you mean 'train.py'?" in told
    assert "is a folder" in refused("jobs/")
    assert "did you mean 'jobs/__init__.py'?" in refused("./jobs")


def test_a_missing_module_is_told_with_the_nearest_name() -> None:
    assert "There is no module 'jobs.trian'." in refused("-m", "jobs.trian")
    assert "did you mean -m jobs.train?" in refused("-m", "jobs.trian")
    assert "There is no module 'jbos'." in refused("-m", "jbos.train")
    assert "did you mean -m jobs?" in refused("-m", "jbos.train")
    assert "no __main__" in refused("-m", "jobs")
    assert "name a module in it, as -m jobs.train" in refused("-m", "jobs")
    assert "There is no module 'jobs.train.deep'." in refused("-m", "jobs.train.deep")


def test_a_missing_command_is_told_with_what_it_may_be() -> None:
    assert "There is no command 'no-such-launcher'." in refused("no-such-launcher")
    assert "did you mean 'train.py'?" in refused("train")
    assert "'jobs' is a folder." in refused("jobs")


def test_what_is_no_program_is_refused() -> None:
    assert "No program was named." in refused()
    assert "-m needs the name of a module." in refused("-m")
    assert "'--worker' is no option and no program." in refused("--worker", "auto", "train.py")
