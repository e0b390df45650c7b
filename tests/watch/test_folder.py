"""The folder of a run is removed, also when its command was killed; a live one never is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.watch import folder as folders
from stoker.watch.folder import OWNER, PREFIX, remove_left, run_folder
from stoker.watch.settings import VARIABLE

PACKAGE = str(Path(folders.__file__).parents[2])
OWNS = """
import sys, time
from stoker.watch.folder import run_folder
with run_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""
SLEEPS = "print(1, flush=True)\nimport time; time.sleep(600)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def started(source: str, place: Path, **environment: str) -> subprocess.Popen[str]:
    told = {**os.environ, "PYTHONPATH": PACKAGE, "TMPDIR": str(place), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", source], env=told, stdout=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def left(place: Path, **changed: object) -> Path:
    """The folder of a command that was killed."""
    with started(OWNS, place) as process:
        folder = Path(said(process))
        process.kill()
    owner = json.loads((folder / OWNER).read_text())
    (folder / OWNER).write_text(json.dumps(owner | changed))
    (folder / "sites-1.json").write_text("{}")
    return folder


def test_a_run_removes_its_own(place: Path) -> None:
    with run_folder() as folder:
        assert json.loads((Path(folder) / OWNER).read_text())["pid"] == os.getpid()
    assert list(place.iterdir()) == []


def test_what_a_killed_command_has_left_is_removed_by_the_next(place: Path) -> None:
    folder = left(place)
    assert folder.exists()
    with run_folder() as own:
        assert list(place.iterdir()) == [Path(own)]


def test_one_that_is_in_use_stays(place: Path) -> None:
    with started(OWNS, place) as process:
        try:
            folder = Path(said(process))
            with run_folder():
                assert folder.exists()
            remove_left(place)
            assert folder.exists()
        finally:
            process.send_signal(signal.SIGTERM)
    assert list(place.iterdir()) == []


def test_the_number_of_a_dead_command_may_be_anothers_now(place: Path) -> None:
    folder = left(place, pid=os.getpid())
    remove_left(place)
    assert not folder.exists()


def test_without_locks_the_process_itself_tells(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "fcntl", None)
    folder, own = left(place), left(place, **folders._who(os.getpid()))
    remove_left(place)
    assert not folder.exists()
    assert own.exists()


def test_a_program_that_outlives_its_command_keeps_the_folder(place: Path) -> None:
    folder = left(place)
    with started(SLEEPS, place, **{VARIABLE: json.dumps({"folder": str(folder)})}) as process:
        said(process)
        remove_left(place)
        assert folder.exists()
        process.kill()
    remove_left(place)
    assert not folder.exists()


def emptied(folder: Path) -> Any:
    return (folder / OWNER).write_text("")


def unclaimed(folder: Path) -> Any:
    return (folder / OWNER).unlink()


def elsewhere(folder: Path) -> Any:
    owner = json.loads((folder / OWNER).read_text())
    return (folder / OWNER).write_text(json.dumps(owner | {"node": "another"}))


def strange(folder: Path) -> Any:
    return (folder / OWNER).write_text("[1]")


@pytest.mark.parametrize("made", [emptied, unclaimed, elsewhere, strange])
def test_what_cannot_be_told_stays(place: Path, made: Callable[[Path], Any]) -> None:
    folder = left(place)
    made(folder)
    remove_left(place)
    assert folder.exists()


@pytest.mark.skipif(os.name != "posix", reason="links and owners")
def test_what_is_no_folder_of_this_users_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left(place)
    (place / f"{PREFIX}file").write_text("")
    moved = folder.rename(place / "mine")
    (place / f"{PREFIX}link").symlink_to(moved)
    remove_left(place)
    assert (moved / OWNER).exists()
    assert len(list(place.iterdir())) == 3
    moved.rename(folder)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    remove_left(place)
    assert folder.exists()
