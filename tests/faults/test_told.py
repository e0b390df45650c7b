"""What an error says to do about it is what can be done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from stoker import DataLoader
from stoker.errors import WaitTimeout, WorkerDied
from tests import starting
from tests.datasets import Plain


class Hangs(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == 5 and torch.utils.data.get_worker_info() is not None:
            threading.Event().wait()
        return super().__getitem__(index)


class HangingStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        threading.Event().wait()


def late(data: Any, on_timeout: Any) -> str:
    loader = DataLoader(data, 2, num_workers=1, timeout=0.4, on_timeout=on_timeout)
    with pytest.raises(WaitTimeout) as caught:
        list(loader)
    return str(caught.value).partition("to change it: ")[2].splitlines()[0]


def test_what_goes_on_after_a_time_out_is_what_has_not_failed() -> None:
    assert late(Hangs(8), "raise").endswith("on_timeout='retry' or 'skip' goes on")
    assert late(Hangs(8), "retry").endswith("on_timeout='skip' goes on")


def test_an_iterable_data_set_is_not_told_to_skip() -> None:
    assert late(HangingStream(), "skip").endswith("on_timeout='retry' goes on")
    assert late(HangingStream(), "retry").endswith("fewer samples a batch")


def _ends(worker: int) -> None:
    os._exit(3)


@pytest.mark.parametrize("workers", [1, "auto"])
def test_a_worker_that_ends_while_it_starts_names_what_runs_then(workers: Any) -> None:
    loader = DataLoader(Plain(8), 2, num_workers=workers, worker_init_fn=_ends)
    with pytest.raises(WorkerDied, match="exit code 3") as caught:
        list(loader)
    assert "in worker_init_fn, the data set or a library" in str(caught.value)


def ended(folder: Path, source: str, patience_s: float = 60) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(source)
    words = [sys.executable, "program.py"]
    return starting.run(words, cwd=folder, capture_output=True, text=True, timeout=patience_s)


LIMITED = """
import resource, torch, stoker
from torch.utils.data import TensorDataset
data = TensorDataset(torch.zeros(64, {size}))
resource.setrlimit(resource.{limit}, ({number}, {number}))
for batch in stoker.DataLoader(data, 8, num_workers={workers}):
    pass
"""


def test_too_few_descriptors_for_a_worker_are_named(tmp_path: Path) -> None:
    source = LIMITED.format(size=4, limit="RLIMIT_NOFILE", number=24, workers=6)
    program = ended(tmp_path, source)
    assert program.returncode == 1
    assert "WorkerNotStarted: A worker can't be started: there are no descriptors left" in (
        program.stderr
    )
    assert "of 24 are open" in program.stderr
    assert "`ulimit -n` with a larger number" in program.stderr


def test_a_limit_for_files_is_named_where_it_stops_a_batch(tmp_path: Path) -> None:
    source = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + LIMITED.format(
        size=100_000, limit="RLIMIT_FSIZE", number=1_000_000, workers=1
    )
    program = ended(tmp_path, source)
    assert program.returncode == 1
    assert "this process's limit for the size of a file (`ulimit -f`)" in program.stderr


def _batches_in_a_copy(make: Any) -> int:
    """Exit status of a forked copy that makes batches; a hang ends by SIGALRM."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            make()
            os._exit(0)
        except BaseException:
            os._exit(1)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)


def test_a_forked_copy_makes_large_batches_itself() -> None:
    """Its parent's threads, which copy large tensors there, are not in the copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        data = [torch.zeros(200_000) for _ in range(16)]
        iterator = iter(DataLoader(data, 4, num_workers=0))
        next(iterator)
        torch.stack(data)
        assert _batches_in_a_copy(lambda: next(iterator)) == 0
        assert _batches_in_a_copy(lambda: list(DataLoader(data, 4, num_workers=0))) == 0
    finally:
        torch.set_num_threads(before)


def test_what_a_new_process_does_not_find_is_the_likely_cause(tmp_path: Path) -> None:
    program = ended(
        tmp_path,
        """
if __name__ == "__main__":
    import stoker

    class Local:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return index

    made = stoker.DataLoader(
        Local(), num_workers=1, max_restarts=0, multiprocessing_context="spawn"
    )
    list(made)
""",
    )
    assert program.returncode == 1
    assert "Can't get attribute 'Local'" in program.stderr
    assert "while: starting" in program.stderr
    assert 'it is below `if __name__ == "__main__":`' in program.stderr
    assert "to change it: worker_method='fresh'" in program.stderr
