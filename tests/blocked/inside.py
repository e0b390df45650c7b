"""Run by `test_core` only, in a program that lacks what Windows lacks."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import windows_like
from torch.utils.data import Dataset

import stoker
from stoker.errors import WaitTimeout
from stoker.feed.patience import Patience
from stoker.host import cpus, limits
from stoker.transport import shm
from stoker.workers import death, signals, waiting
from tests.blocked import lacking
from tests.contract.test_resizing import all_come_up


def test_stoker_finds_nothing_that_windows_lacks() -> None:
    """Else what passes here would show nothing."""
    seen: Any = vars(cpus)
    assert shm.kind_here() == "named"
    assert seen["os"].name == "nt"
    assert not [name for name in lacking.NAMES["os"] if hasattr(seen["os"], name)]
    assert not hasattr(vars(signals)["signal"], "SIGKILL")
    assert not vars(limits)["Path"]("/proc/self/stat").exists()
    assert not hasattr(os, "fork")
    assert vars(waiting)["sys"].platform == "win32"
    assert limits.limit_facts().descriptors.value is None
    with pytest.raises(ModuleNotFoundError, match="fcntl"):
        vars(cpus)["__builtins__"]["__import__"]("fcntl")


def test_a_name_goes_with_its_last_handle_and_a_signal_of_no_kind_ends_a_process() -> None:
    """The imitation does what Windows does."""
    memory = windows_like.SharedMemory(create=True, size=4096)
    again = windows_like.SharedMemory(memory.name)
    memory.unlink()
    memory.close()
    third = windows_like.SharedMemory(again.name)
    again.close()
    third.close()
    with pytest.raises(FileNotFoundError):
        windows_like.SharedMemory(memory.name)
    process = multiprocessing.get_context("spawn").Process(target=id, args=(1,))
    process.start()
    vars(death)["os"].kill(process.pid, 0)
    process.join()
    assert process.exitcode != 0


class Noisy(Dataset[torch.Tensor]):
    """Large enough for named memory; one index may kill, another may hang."""

    def __init__(self, killed: Path | None = None) -> None:
        self.noisy = lambda index: torch.rand(100, 200) + index
        self.killed = killed
        self.hangs_at = -1

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9 and self.killed is not None and not self.killed.exists():
            self.killed.touch()
            os.kill(os.getpid(), 9)
        if index == self.hangs_at:
            time.sleep(600)
        made: torch.Tensor = self.noisy(index)
        return made


def alone() -> list[torch.Tensor]:
    return list(stoker.DataLoader(Noisy(), batch_size=4, num_workers=0, seed=3))


def test_a_local_data_set_with_a_lambda_is_read_without_being_asked_how() -> None:
    """A death is mended, too."""

    class Local(Noisy):
        pass

    dying = Local(Path(os.environ["STOKER_BLOCKED_NAMES"], "killed"))
    made = stoker.DataLoader(dying, batch_size=4, num_workers=1, seed=3)
    assert all(map(torch.equal, made, alone()))
    assert made.statistics().replaced == 1


def test_a_number_that_is_chosen_may_change(capfd: pytest.CaptureFixture[str]) -> None:
    """The second worker has the job, though the first has closed its file."""
    made = stoker.DataLoader(Noisy(), batch_size=4, seed=3)
    iterator: Any = iter(made)
    batches = [next(iterator)]
    iterator.feed.resize(1, batches[0])
    all_come_up(iterator)
    batches.append(next(iterator))
    iterator.feed.resize(2, batches[1])
    all_come_up(iterator)
    batches += iterator
    assert all(map(torch.equal, batches, alone()))
    assert made.statistics().peak_workers == 2
    assert made.statistics().replaced == 0
    assert "Error" not in capfd.readouterr().err


def test_a_worker_that_hangs_is_shown_and_ended() -> None:
    """Its stack is written by a thread of its own: there is no signal to ask by."""
    dataset = Noisy()
    dataset.hangs_at = 13
    made = stoker.DataLoader(dataset, batch_size=1, num_workers=1, seed=3, prefetch_factor=1)
    iterator: Any = iter(made)
    for _ in range(12):
        next(iterator)
    iterator._feed._vigil._patience = Patience(1.0)
    with pytest.raises(WaitTimeout, match=r"line \d+ in __getitem__") as caught:
        list(iterator)
    assert caught.value.batch == 13
    del iterator, caught
    assert not multiprocessing.active_children()
