"""The real command, on small loaders, with faults planted in them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import PACKAGE, run, start, write_target


def test_a_sweep_from_end_to_end(tmp_path: Path) -> None:
    write_target(
        tmp_path,
        """
print("printed by the user's code")
class Waits(Items):
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(2)
loader = DataLoader(Waits(), batch_size=4, num_workers=3)
""",
    )
    code, out, err = run(
        tmp_path, "tune", "target.py:loader", "--workers", "0,2", "--repeats", "1",
        "--batches", "10", "--json", "result.json",
    )  # fmt: skip
    assert code == 0, err
    assert "printed by" not in out + err
    assert "Error" not in err
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["schema"] == 1
    assert record["target"] == "target.py:loader"
    assert [trial["num_workers"] for trial in record["trials"]] == [0, 2]
    assert all(trial["batches_per_s"] > 0 for trial in record["trials"])
    assert all(trial["first_batch_s"] > 0 for trial in record["trials"])
    assert all(trial["method"] == "steady" for trial in record["trials"])
    assert record["loader"]["num_workers"] == 3
    assert record["loader"]["epoch_batches"] == 20
    chosen = record["recommended"]["num_workers"]
    assert record["reason"] in out
    assert f"num_workers={chosen}" in out
    assert "CPU" in out
    assert "batches/s by num_workers" in out
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_function_that_returns_our_loader_and_json_alone_on_standard_output(
    tmp_path: Path,
) -> None:
    write_target(
        tmp_path,
        """
import stoker
def make():
    return stoker.DataLoader(Items(length=3), batch_size=1)
""",
    )
    code, out, err = run(
        tmp_path, "tune", "target:make", "--workers", "1", "--repeats", "1",
        "--seconds", "0.1", "--json", "-",
    )  # fmt: skip
    assert code == 0, err
    record = json.loads(out)
    assert record["loader"]["kind"] == "stoker.loader.DataLoader"
    assert record["trials"][0]["method"] == "epochs"
    assert "num_workers=1" in err


def test_a_data_set_that_raises_in_a_worker(tmp_path: Path) -> None:
    write_target(
        tmp_path,
        """
def fault():
    raise ValueError("sample 20 is bad")
loader = DataLoader(Items(fault), batch_size=1, num_workers=1)
""",
    )
    code, out, err = run(
        tmp_path, "tune", "target.py:loader", "--workers", "1", "--json", "result.json"
    )
    assert code == 1
    assert "ValueError: sample 20 is bad" in err
    assert "target.py" in err
    assert "after 20 batches" in err
    assert "trial_process.py" not in err
    assert "none is recommended" in out
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["recommended"] is None
    assert record["trials"][0]["complete"] is False
    assert record["errors"][0]["kind"] == "raised"
    assert record["errors"][0]["batches"] == 20


def test_a_worker_that_is_killed_leaves_the_counts_that_worked(tmp_path: Path) -> None:
    write_target(
        tmp_path,
        """
def fault():
    if get_worker_info() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
loader = DataLoader(Items(fault), batch_size=1)
""",
    )
    code, out, err = run(
        tmp_path, "tune", "target.py:loader", "--workers", "0,2", "--repeats", "1",
        "--batches", "20", "--json", "result.json",
    )  # fmt: skip
    assert code == 1
    assert "worker" in err
    assert "2 workers" in err
    assert "Traceback" not in err
    assert "partial" in out
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["recommended"]["num_workers"] == 0
    assert record["recommended"]["partial"] is True
    assert record["errors"][0]["num_workers"] == 2


HANGS = """
def fault():
    if get_worker_info() is not None:
        with open("reached", "w") as pipe:
            pipe.write("here")
            pipe.flush()
            while True:
                time.sleep(3600)
loader = DataLoader(Items(fault, at=5), batch_size=1)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    ("signum", "counts", "code"),
    [
        (signal.SIGINT, "0,1", 130),
        (signal.SIGTERM, "1", 143),
        (signal.SIGKILL, "1", -9),
    ],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
def test_a_signal_ends_everything_and_keeps_what_was_measured(
    tmp_path: Path, signum: int, counts: str, code: int
) -> None:
    """The worker holds the pipe open as long as it lives: its end is the worker's death."""
    os.mkfifo(tmp_path / "reached")
    write_target(tmp_path, HANGS)
    with start(
        tmp_path,
        "tune",
        "target.py:loader",
        "--workers",
        counts,
        "--batches",
        "10",
        "--json",
        "result.json",
    ) as process:
        with open(tmp_path / "reached") as pipe:
            assert pipe.read(4) == "here"
            process.send_signal(signum)
            assert pipe.read() == ""
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    if signum == signal.SIGKILL:
        return
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["errors"][-1]["kind"] == "interrupted"
    assert "Interrupted by" in err
    assert "Traceback" not in err
    whole = [trial["num_workers"] for trial in record["trials"] if trial["complete"]]
    assert whole == ([0] if counts == "0,1" else [])
    if whole:
        assert record["recommended"]["num_workers"] == 0
        assert "Use num_workers=0" in out


def test_a_file_that_is_missing_is_told_and_written(tmp_path: Path) -> None:
    write_target(tmp_path, "")
    code, out, err = run(
        tmp_path, "tune", "tarte.py:loader", "--workers", "0", "--json", "result.json"
    )
    assert code == 1
    assert out == ""
    assert "'tarte.py' does not exist" in err
    assert "did you mean 'target.py'?" in err
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["recommended"] is None
    assert record["trials"] == []
    assert record["errors"][0]["kind"] == "target"


def test_help_is_light() -> None:
    code = """
import sys
from stoker.cli import main
sys.argv = ["stoker", "tune", "--help"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
heavy = {"torch", "numpy", "rich", "plotext", "loky", "multiprocessing"} & set(sys.modules)
assert not heavy, heavy
"""
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "TARGET is path/file.py:NAME" in done.stdout
