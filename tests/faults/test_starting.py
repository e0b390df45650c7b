"""Workers that cannot be started leave nothing, and a whole run says nothing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.methods import (
    loader,
    many_workers,
)
from tests.datasets import Plain
from tests.faults.scripts import run
from tests.faults.test_endings import (
    FORK,
)


def test_a_dataset_that_cannot_be_sent_starts_nothing() -> None:
    class Local(Plain):
        pass

    before = set(multiprocessing.active_children())
    for method in ("spawn", "forkserver"):
        made = loader(Local(3), method)
        with (
            pytest.warns(UserWarning, match="Got pickle error when attempting to start a worker"),
            pytest.raises(Exception, match=r"pickle|local object"),
        ):
            iter(made)
    assert set(multiprocessing.active_children()) == before


def test_a_dataset_that_cannot_be_received_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="exited unexpectedly: exit code 1"):
        list(loader(Unreceivable(3), "forkserver", 1))


class Unreceivable(Plain):
    def __setstate__(self, state: Any) -> None:
        raise OSError("the file moved")


@many_workers
def test_a_process_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = FORK.Process._Popen

    def failing_start(process: Any) -> Any:
        if len(started) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(process)
        return start(process)

    monkeypatch.setattr(FORK.Process, "_Popen", staticmethod(failing_start))
    with pytest.raises(BlockingIOError):
        iter(loader(Plain(3), "fork", 3))
    assert len(started) == 2
    assert not multiprocessing.active_children()


def test_stderr_of_a_whole_run_is_empty(tmp_path: Path) -> None:
    """With Python's own development checks on."""
    source = """
    import gc, warnings
    warnings.simplefilter("error")
    for persistent in (False, True):
        loader = stoker.DataLoader(Numbers(12), num_workers=2, persistent_workers=persistent)
        for _ in range(2):
            list(loader)
            for batch in loader:
                break
        del loader
        gc.collect()
    """
    code, _, error = run(tmp_path, source)
    assert (code, error) == (0, "")
