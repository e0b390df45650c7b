"""A program without a main guard whose workers are started afresh: an error, at once."""

from __future__ import annotations

import multiprocessing
import sys
import types
from pathlib import Path

import pytest

from stoker import DataLoader
from stoker.errors import WorkerNotStarted
from tests import starting

PROGRAM = """
import torch.multiprocessing
from stoker import DataLoader
print("once", flush=True)
torch.multiprocessing.set_start_method({method!r})
for batch in DataLoader(list(range(8)), num_workers=2):
    pass
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_would_run_the_program_again_are_refused(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(method=method))
    words = [sys.executable, "program.py"]
    ended = starting.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stdout == "once\n"
    assert f"ProgramUnguarded: no worker was started by {method}" in ended.stderr
    assert 'put what the program does below `if __name__ == "__main__":`' in ended.stderr


def test_a_guarded_program_is_served_by_them(tmp_path: Path) -> None:
    source = PROGRAM.format(method="spawn").replace("\nfor", "\nif __name__ == '__main__':\n  for")
    (tmp_path / "program.py").write_text(source.replace("'spawn'", "'spawn', force=True"))
    words = [sys.executable, "program.py"]
    ended = starting.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "once\n" * 3


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_program_that_no_process_could_import_is_told_before_one_starts(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As Python has a program on standard input: its file is called ``<stdin>``."""
    main = types.ModuleType("__main__")
    main.__file__ = "<stdin>"
    monkeypatch.setitem(sys.modules, "__main__", main)
    made = DataLoader(list(range(8)), num_workers=2, multiprocessing_context=method)
    with pytest.raises(WorkerNotStarted, match=r"no file .*<stdin>") as caught:
        iter(made)
    assert not multiprocessing.active_children()
    assert caught.value.change.startswith("worker_method='fresh', without multiprocessing_context=")
