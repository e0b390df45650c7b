"""What workers log and warn of reaches the main process's logging and warnings."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from typing import Any

import pytest
import torch

from stoker.errors import WorkerDied
from tests import starting
from tests.contract.methods import Tabled, every_process, loader

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere with the next answer")


def logging_sample(index: int) -> int:
    logging.getLogger("data").info("read %d", index)
    warnings.warn("careful", UserWarning, stacklevel=1)
    return index


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_records_and_warnings_arrive_with_the_workers_number(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `spawn` the worker is told which level is wanted."""
    caplog.set_level(logging.INFO, "data")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        made = loader(Tabled(8, logging_sample), method, 2)
        assert [int(batch) for batch in made] == list(range(8))
    told = [r for r in caplog.records if r.name == "data"]
    assert sorted(r.getMessage().partition(" (")[0] for r in told) == sorted(
        f"read {n}" for n in range(8)
    )
    for record in told:
        assert record.getMessage().endswith(
            f"(DataLoader worker {vars(record)['dataloader_worker']})"
        )
        assert record.process != os.getpid()
    careful = [w for w in shown if str(w.message).startswith("careful (DataLoader worker ")]
    assert len(careful) == 1
    assert careful[0].filename == __file__


def test_a_level_that_is_not_wanted_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(loader(Tabled(4, logging_sample), "fork", 1))
    assert not caplog.records


@linux_only
def test_the_last_words_of_a_worker_that_dies_arrive(caplog: pytest.LogCaptureFixture) -> None:
    def sample(index: int) -> int:
        if index == 2:
            logging.getLogger("data").error("about to open sample %d", index)
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    try:
        list(loader(Tabled(3, sample), "fork", 1))
    except WorkerDied:
        pass
    assert "about to open sample 2 (DataLoader worker 0)" in caplog.messages


@linux_only
def test_a_worker_that_logs_without_end_is_not_held_up(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads while it makes its first batch; all its batches arrive."""

    def sample(index: int) -> int:
        for number in range(3000):
            logging.getLogger("data").warning("%d %s", number, "x" * 200)
        return index

    made = loader(Tabled(2, sample), "fork", 1)
    iterator = iter(made)
    feed = iterator.feed
    while not feed._pool._members[0].connection.poll(10):
        pass
    assert [int(batch) for batch in iterator] == [0, 1]
    assert len(caplog.messages) <= 6001
    del made, iterator, feed


def test_a_handler_of_the_workers_own_keeps_its_records(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    def init(worker: int) -> None:
        logging.getLogger("data").addHandler(logging.FileHandler(tmp_path / f"{worker}.log"))

    def sample(index: int) -> int:
        logging.getLogger("data").warning("sample %d", index)
        return index

    list(loader(Tabled(2, sample), "fork", 1, worker_init_fn=init))
    assert (tmp_path / "0.log").read_text().splitlines() == ["sample 0", "sample 1"]
    assert not caplog.records


def test_an_error_filter_is_an_error_of_the_sample() -> None:
    with pytest.raises(UserWarning, match="careful"):
        list(loader(Tabled(2, logging_sample), "fork", 1))


def test_a_process_that_a_sample_starts_logs_for_itself(capfd: pytest.CaptureFixture[str]) -> None:
    def sample(index: int) -> int:
        pid = os.fork()
        if pid == 0:
            handler = logging.StreamHandler()
            logging.getLogger("inner").addHandler(handler)
            logging.getLogger("inner").warning("from a process of its own")
            os._exit(0)
        os.waitpid(pid, 0)
        return index

    assert [int(batch) for batch in loader(Tabled(2, sample), "fork", 1)] == [0, 1]
    assert "from a process of its own\n" in capfd.readouterr().err


@every_process
def test_a_loader_does_not_have_the_programs_own_warnings_shown_again(method: str) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("of the program", stacklevel=1)
            assert len(list(loader(torch.arange(2), method, 1))) == 2
    assert [str(each.message) for each in shown] == ["of the program"]


PROGRAM = """
import logging, sys, warnings
import torch, stoker

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        sys.stderr.write(f"printed {index}\\n")
        logging.getLogger("data").warning("logged %d", index)
        warnings.warn("warned")
        return index

if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
    list(stoker.DataLoader(Data(), num_workers=2, multiprocessing_context=sys.argv[1]))
"""


@pytest.mark.parametrize("method", ["fork"])
def test_a_program_sees_all_of_it_on_stderr(method: str, tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = starting.run(
        [sys.executable, str(program), method], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert sorted(line for line in lines if line.startswith("printed")) == [
        f"printed {n}" for n in range(4)
    ]
    logged = [line for line in lines if line.startswith("WARNING data logged")]
    assert len(logged) == 4
    assert all("(DataLoader worker " in line for line in logged)
    warned = [line for line in lines if "UserWarning: warned (DataLoader worker " in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"{program}:11:")
