"""Errors: the user's own reach the program, those of a trial are told, Stoker's own end nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from stoker.watch import asking, measuring, site, sources, tuned
from stoker.watch.conductor import Conductor
from tests.datasets import Failing, Plain
from tests.watch.test_epochs import SWITCHES, numbers
from tests.watch.watching import scripted, watched


class OnlyInMain(Plain):
    """A sample can be read in the main process only, as where that holds a connection."""

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            raise ConnectionError("the connection is the main process's")
        return super().__getitem__(index)


class KilledInWorkers(Plain):
    """A worker that reads sample 5 is killed, as by the kernel where memory is short."""

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None and index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class WaitsInWorkers(Plain):
    """A worker waits for ever."""

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None:
            signal.pause()
        return super().__getitem__(index)


class SentThenWaits(Plain):
    """A worker sends a few samples, and then waits for ever."""

    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None and index > 8:
            signal.pause()
        return super().__getitem__(index)


def test_a_data_set_that_fails_in_workers_only_does_not_end_the_program(tmp_path: Path) -> None:
    with scripted(*SWITCHES), watched(tmp_path) as watch:
        loader = DataLoader(OnlyInMain(24), batch_size=2)
        assert [sum(1 for _ in loader) for _ in range(5)] == [12] * 5
        (first, *_) = watch.told()
        assert "ConnectionError" in first
        assert "the connection is the main process's" in first
        assert watch.site.done


def test_a_worker_that_is_killed_in_a_trial_ends_that_trial_only(tmp_path: Path) -> None:
    with scripted(("own", 0, 2), ("search", 2, 20)), watched(tmp_path) as watch:
        loader = DataLoader(KilledInWorkers(16), batch_size=2)
        assert [sum(1 for _ in loader) for _ in range(3)] == [8] * 3
        assert "exited unexpectedly" in watch.told()[0]


def test_a_killed_worker_is_named_where_only_its_closed_socket_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel closes what a process had open before that process has ended."""
    try_get_data, early = _MultiProcessingDataLoaderIter._try_get_data, []

    def too_early(iterator: Any, timeout: float) -> Any:
        try:
            return try_get_data(iterator, timeout)
        except RuntimeError as error:
            early.append(error)
            raise EOFError from None

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_try_get_data", too_early)
    with scripted(("own", 0, 2), ("search", 2, 20)), watched(tmp_path) as watch:
        loader = DataLoader(KilledInWorkers(16), batch_size=2)
        assert [sum(1 for _ in loader) for _ in range(3)] == [8] * 3
        assert len(early) == 1
        assert "exited unexpectedly" in watch.told()[0]


def test_killed_workers_of_a_trial_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would make one of their own, to send tensors by, and only they would remove it."""
    monkeypatch.setitem(vars(multiprocessing.current_process())["_config"], "tempdir", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scripted(("own", 0, 2), ("search", 2, 20)), watched(tmp_path, timeout_s=0.3) as watch:
        loader = DataLoader(SentThenWaits(64), batch_size=2)
        assert [sum(1 for _ in loader) for _ in range(2)] == [32] * 2
        assert watch.told()
        ours = vars(multiprocessing.current_process())["_config"]["tempdir"]
        assert [str(each) for each in tmp_path.glob("pymp-*")] == [ours]


def test_a_trial_whose_workers_hang_ends_with_its_time(tmp_path: Path) -> None:
    with scripted(("own", 0, 2), ("search", 2, 20)), watched(tmp_path, timeout_s=0.3) as watch:
        loader = DataLoader(WaitsInWorkers(16), batch_size=2)
        assert [sum(1 for _ in loader) for _ in range(2)] == [8] * 2
        assert "timed out after 0.3 seconds" in watch.told()[0]


def test_the_death_of_a_trials_worker_is_not_raised_in_the_programs_own_step(
    tmp_path: Path,
) -> None:
    with scripted(("own", 0, 1), ("search", 2, 1000)), watched(tmp_path) as watch:
        loader, served = DataLoader(Plain(400), batch_size=2), 0
        for _ in loader:
            served += 1
            if served == 20:
                pids = watch.site._supply.source.pids
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                for each in watch.site._supply.source.iterator._workers:
                    each.join()  # SIGCHLD has come by now, in the program's own step
        assert served == 200
        assert "exited unexpectedly" in watch.told()[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_own_error_passes_as_it_is(tmp_path: Path, workers: int) -> None:
    with scripted(("own", workers, 1000)), watched(tmp_path):
        loader = DataLoader(Failing(16, 9), batch_size=2, num_workers=workers)
        served: list[Any] = []
        with pytest.raises(ValueError, match="sample 9 is broken") as caught:
            served.extend(loader)
        assert len(served) == 4
        told = "".join(traceback.format_exception(caught.value))
        assert "__getitem__" in told
        if not workers:
            assert caught.traceback[-1].path.name == "datasets.py"
        del caught


class Refuses:
    """A sampler that fails when it is iterated."""

    def __iter__(self) -> Any:
        raise LookupError("no order")

    def __len__(self) -> int:
        return 4


def test_what_fails_when_a_loader_is_iterated_fails_there(tmp_path: Path) -> None:
    script = scripted(("own", 0, 1000))
    with script, watched(tmp_path), pytest.raises(LookupError, match="no order"):
        iter(DataLoader(Plain(4), batch_size=None, sampler=Refuses()))


class SkippedSample(Plain):
    """Sample 3 fails; the program goes on with the next one."""

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise OSError("broken file")
        return super().__getitem__(index)


def test_a_program_that_goes_on_after_an_error_gets_the_batches_after_it(tmp_path: Path) -> None:
    with scripted(("own", 0, 1000)), watched(tmp_path):
        batches, came = iter(DataLoader(SkippedSample(6))), []
        while True:
            try:
                came.append(numbers(next(batches))[0])
            except OSError:
                came.append(-1.0)
            except StopIteration:
                break
        assert came == [0, 1, 2, -1, 4, 5]


class Lazy(Plain):
    """Opens its file at the first sample; a file of another process is of no use."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.opened: int | None = None

    def __getitem__(self, index: int) -> Any:
        if self.opened is None:
            self.opened = os.getpid()
        if not hasattr(self, "second"):
            self.second = os.getpid()
        if {self.opened, self.second} != {os.getpid()}:
            raise OSError("the file is another process's")
        return super().__getitem__(index)


def test_a_file_that_a_trial_without_workers_opens_is_not_handed_to_workers(
    tmp_path: Path,
) -> None:
    steps = [("own", 2, 2), ("search", 0, 2), ("confirm", 2, 2), ("confirm", 0, 2)]
    with scripted(*steps), watched(tmp_path) as watch:
        loader = DataLoader(torch.utils.data.Subset(Lazy(40), range(40)), 2, num_workers=2)
        assert [sum(1 for _ in loader) for _ in range(4)] == [20] * 4
        assert watch.site.done
        assert not watch.told()


class Unlucky(IterableDataset[int]):
    """Fails in every process."""

    def __iter__(self) -> Any:
        yield 0
        raise LookupError("nothing more")


def test_an_error_everywhere_reaches_the_program(tmp_path: Path) -> None:
    script = scripted(*SWITCHES)
    with script, watched(tmp_path), pytest.raises(LookupError, match="nothing more"):
        list(DataLoader(Unlucky()))


def broken(*given: Any, **more: Any) -> Any:
    raise RuntimeError("planted")


PLACES: list[tuple[Any, str]] = [
    (asking.Asking, "now"),
    (asking.Asking, "failed"),
    (measuring.Measuring, "note"),
    (measuring.Measuring, "window"),
    (measuring.Measuring, "observed"),
    (measuring.Measuring, "whole"),
    (measuring.Measuring, "opened"),
    (measuring.Measuring, "dropped"),
    (site.WatchedSite, "begin"),
    (site.WatchedSite, "_note_replay"),
    (site.WatchedSite, "_close_epoch"),
    (site.WatchedSite, "record"),
    (sources.Source, "close"),
    (Conductor, "made"),
    (Conductor, "iterate"),
    (Conductor, "check"),
    (Conductor, "spent"),
    (Conductor, "cuts"),
    (tuned.Sites, "site"),
]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("holder", "name"), PLACES, ids=lambda each: getattr(each, "__name__", each)
)
def test_an_error_of_stokers_own_leaves_the_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, workers: int
) -> None:
    loader_of: Callable[[], Any] = lambda: DataLoader(OnlyTwo(12), 2, num_workers=workers)  # noqa: E731
    steps = [("own", workers, 2), ("search", 1 - workers, 2), ("replay", workers, 2)]
    with scripted(*steps), watched(tmp_path, expects_failure=True) as watch:
        with monkeypatch.context() as planted:
            planted.setattr(holder, name, broken)
            loader = loader_of()
            epochs = [[numbers(batch) for batch in loader] for _ in range(6)]
        assert [len(epoch) for epoch in epochs] == [6] * 6
        assert epochs[-1] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
        if name != "failed" or watch.failed():
            assert "RuntimeError: planted" in watch.failed()
        del loader


class OnlyTwo(Plain):
    """A data set without surprises."""


def test_an_error_in_the_middle_of_an_epoch_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(("own", 0, 1000)), watched(tmp_path, expects_failure=True) as watch:
        came = []
        for number, batch in enumerate(DataLoader(Plain(10))):
            came.append(numbers(batch)[0])
            if number == 4:
                monkeypatch.setattr(measuring.Measuring, "note", broken)
        assert came == list(range(10))
        assert "planted" in watch.failed()
