"""Public cases of group C that concern shared segments and deaths."""

from __future__ import annotations

import collections
import os
import signal
from contextlib import nullcontext

import pytest
import torch

from stoker.errors import WorkerDied
from tests.contract.methods import both_segments, loader, segments_here, use_segments
from tests.datasets import Plain


@both_segments
@pytest.mark.parametrize("persistent", [False, True])
def test_c027_an_epoch_leaves_no_segments(
    segments: str, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None has a name, or is mapped, after its last use."""
    use_segments(monkeypatch, segments)
    before = segments_here()
    made = loader(Plain(80, (100, 100)), "fork", batch_size=2, persistent_workers=persistent)
    for _ in range(3):
        for batch in made:
            del batch
        if not persistent:
            assert segments_here() == before
    del made
    assert segments_here() == before


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_c027_a_killed_worker_leaves_no_segments(
    max_restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it held: memory without a name goes with its last user."""
    use_segments(monkeypatch, "memfd")
    before = segments_here()
    made = loader(Plain(200, (100, 100)), "fork", batch_size=2, max_restarts=max_restarts)
    iterator = iter(made)
    for _ in range(5):
        next(iterator)
    for worker in list(iterator._workers):
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(5)
    with nullcontext() if max_restarts else pytest.raises(WorkerDied):
        collections.deque(iterator, maxlen=0)
    del iterator, made
    assert segments_here() == before


class _Exits(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 37:
            os._exit(1)
        return super().__getitem__(index)


def test_c021_c022_a_death_tells_how_and_where() -> None:
    """The error names exit code and the indices of the batch."""
    with pytest.raises(WorkerDied, match="exit code 1") as caught:
        list(loader(_Exits(100), "fork", batch_size=4))
    assert caught.value.indices == [36, 37, 38, 39]
