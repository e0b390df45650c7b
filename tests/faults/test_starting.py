"""Workers that cannot be started leave nothing, and a whole run says nothing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import NotBuilt
from tests.contract.automatic import needs_still, reasons, still  # noqa: F401
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


def way(method: str) -> dict[str, Any]:
    """The argument for a start method."""
    return {"worker_method" if method == "fresh" else "multiprocessing_context": method}


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fresh"])
def test_a_dataset_that_cannot_be_built_again_is_an_error_at_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """With what was raised there, not printed by the worker; and nothing is tried again."""
    with pytest.raises(NotBuilt, match="exited unexpectedly: it could not build what") as caught:
        list(stoker.DataLoader(Unreceivable(3), num_workers=1, **way(method)))
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert "it was sent: OSError: the file moved" in error.what
    assert "in __setstate__" in str(error)
    assert type(error.__cause__) is OSError
    assert "restart" not in caplog.text
    assert capfd.readouterr().err == ""


@needs_still
def test_a_chosen_number_of_workers_is_none_where_they_cannot_build_it() -> None:
    made = stoker.DataLoader(Unreceivable(20), multiprocessing_context="spawn")
    iterator = iter(made)
    first = next(iterator)
    iterator.feed.resize(1, first)  # type: ignore[attr-defined]
    [process] = iterator._workers  # type: ignore[attr-defined]
    process.join(60)
    assert [int(batch[0, 0]) for batch in (first, *iterator)] == list(range(20))
    assert reasons(made) == ["a worker could not build what it was sent: OSError: the file moved"]


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
