"""Run by `test_core` only, in a program that lacks what Windows lacks."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import windows_like
from torch.utils.data import Dataset

import stoker
from stoker.host import cpus, limits
from stoker.transport import shm
from stoker.workers import death, signals, waiting
from tests.blocked import lacking


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


def test_a_local_data_set_with_a_lambda_is_read_without_being_asked_how() -> None:
    """Nothing is said of how workers start; batches go through named memory; a death is mended."""

    class Local(Dataset[torch.Tensor]):
        def __init__(self, killed: Path | None = None) -> None:
            self.noisy = lambda index: torch.rand(100, 200) + index
            self.killed = killed

        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 9 and self.killed is not None and not self.killed.exists():
                self.killed.touch()
                os.kill(os.getpid(), 9)
            return self.noisy(index)

    expected = list(stoker.DataLoader(Local(), batch_size=4, num_workers=0, seed=3))
    folder = Path(os.environ["STOKER_BLOCKED_NAMES"])
    dying = Local(folder / "killed")
    made = stoker.DataLoader(dying, batch_size=4, num_workers=1, seed=3)
    assert all(map(torch.equal, made, expected))
    assert made.statistics().replaced == 1
