"""Public cases of group U: processes within processes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.contract.methods import loader
from tests.datasets import Plain

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


class _Helped(Plain):
    """Each worker keeps two processes of its own."""

    helpers: tuple[subprocess.Popen[bytes], ...] = ()

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.helpers:
            words = [sys.executable, "-S", "-c", "input()"]
            self.helpers = tuple(subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(2))
        return super().__getitem__(index)


def test_c166_processes_of_the_data_set_are_in_the_report() -> None:
    """They multiply with the workers; who wonders where memory is sees it."""
    made = loader(_Helped(64), "fork", batch_size=1)
    iterator = iter(made)
    for _ in range(20):
        next(iterator)
    told = made.statistics()
    [remark] = [each for each in told.remarks if "of their own" in each]
    assert remark.startswith("2 of 2 workers have started 4 processes of their own, with ")
    assert "MiB of memory in all" in remark
    assert remark in str(told)
    del iterator


def test_c166_workers_without_processes_are_no_news() -> None:
    made = loader(Plain(64), "fork", batch_size=1)
    iterator = iter(made)
    next(iterator)
    assert not [each for each in made.statistics().remarks if "own" in each]
    del iterator
