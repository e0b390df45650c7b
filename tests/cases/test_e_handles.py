"""Public cases of group E that are about handles which forked workers would share."""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import os
import socket
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py  # type: ignore[import-untyped]
import lmdb  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker.workers import forking, process
from stoker.workers.handles import look_for_handles
from tests.contract.methods import every_method, loader
from tests.datasets import Plain

FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux forks")


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_told", set())


class Opened(Dataset[Any]):
    """Opens its file when it is made, as people do; sample i is what `read` finds at i."""

    def __init__(self, file: Any, length: int, read: Callable[[Any, int], Any]) -> None:
        self.file, self.length, self.read = file, length, read

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.read(self.file, index)


def read_text(file: Any, index: int) -> int:
    file.seek(8 * index)
    return int(file.read(8))


def read_member(file: Any, index: int) -> int:
    return int(file.read(f"{index}"))


def read_rows(file: Any, index: int) -> torch.Tensor:
    return torch.from_numpy(file["rows"][index])


def sums(made: Any) -> list[float]:
    return [float(batch.sum()) for batch in made]


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_c042_an_hdf5_file_that_was_opened_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as made:
        made["rows"] = np.arange(1000, dtype=np.float32)[:, None].repeat(100, 1)
    with h5py.File(tmp_path / "rows.h5", "r") as file:
        dataset = Opened(file, 1000, read_rows)
        forked = list(loader(dataset, "fork", 4, batch_size=10))
        assert torch.equal(torch.cat(forked)[:, 0], torch.arange(1000.0))
        assert float(read_rows(file, 7)[0]) == 7
    assert not caplog.records


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_c044_a_zip_file_that_was_opened_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for index in range(500):
            made.writestr(f"{index}", f"{index:04000}")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        dataset = Opened(file, 500, read_member)
        iterator = iter(loader(dataset, "fork", 4, batch_size=10))
        both = [(batch.tolist(), read_member(file, 499 - index)) for index, batch in
                enumerate(iterator)]  # fmt: skip
    assert [index for batch, _ in both for index in batch] == list(range(500))
    assert [index for _, index in both] == list(range(499, 449, -1))
    assert not caplog.records


def place_when_it_may(file: Any, index: int) -> int:
    assert GATE.wait(60)
    at = file.tell()
    file.seek(index)
    return int(at)


GATE = FORK.Event()


@pytest.mark.parametrize("mended", [True, False], ids=["", "and this is what would be wrong"])
def test_c042_no_process_moves_the_position_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    if not mended:
        monkeypatch.setattr(process, "positions", lambda files: [])
    (tmp_path / "f").write_bytes(bytes(200))
    GATE.clear()
    with (tmp_path / "f").open("rb", buffering=0) as file:
        file.seek(100)
        iterator = iter(loader(Opened(file, 1, place_when_it_may), "fork", 1))
        file.seek(7)
        GATE.set()
        assert [int(batch) for batch in iterator] == [100 if mended else 7]
        assert file.tell() == (7 if mended else 0)


@every_method
def test_c047_what_each_process_opens_for_itself(tmp_path: Path, method: str) -> None:
    """By the data set and by its class; in the main process, opened before; closed at the end."""
    (tmp_path / "f").write_text("".join(f"{index:8}" for index in range(40)))
    dataset = PerWorker(tmp_path / "f", tmp_path / "closed")
    assert dataset[3] == (3, 3, os.getpid())
    batches = list(loader(dataset, method, batch_size=4))
    assert [int(index) for batch in batches for index in batch[0]] == list(range(40))
    assert [int(index) for batch in batches for index in batch[1]] == list(range(40))
    pids = {int(pid) for batch in batches for pid in batch[2]}
    closed = {int(path.name.partition(".")[2]) for path in tmp_path.glob("closed.*")}
    if method == "inline":
        assert pids == {os.getpid()}
        assert not closed
    else:
        assert os.getpid() not in pids
        assert closed == pids
    dataset.whole.close()
    dataset.files.close()
    PerWorker.by_class.close()


class Noting:
    """A file that notes who has closed it."""

    def __init__(self, path: Path, note: Path) -> None:
        self.file, self.note, self.pid = path.open("rb"), note, os.getpid()

    def close(self) -> None:
        self.file.close()
        self.note.with_name(f"{self.note.name}.{os.getpid()}").touch()


class PerWorker(Dataset[Any]):
    def __init__(self, path: Path, note: Path) -> None:
        self.path = path
        self.whole = stoker.per_worker(Noting, path, note)
        self.files = stoker.per_worker(open, path, "rb")

    @stoker.per_worker
    def by_class(self) -> Any:
        return self.path.open("rb")

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        noting = self.whole()
        assert noting.pid == os.getpid()
        return read_text(self.files(), index), read_text(self.by_class, index), noting.pid


@contextlib.contextmanager
def _connected() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    with one, other:
        yield one


def told(dataset: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is warned of a data set, twice over, before workers are forked."""
    job = SimpleNamespace(dataset=dataset, collate_fn=None, worker_init_fn=None)
    look_for_handles(job)
    look_for_handles(job)
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


class Wrapped(Plain):
    def __init__(self, thing: Any) -> None:
        super().__init__(4)
        self.parts = {"a": [0, thing]}


@pytest.mark.parametrize(
    ("opened", "name", "why", "change"),
    [
        (
            lambda d: (d / "f").open("wb"),
            "an open file, of '",
            "all processes have one",
            "(open, '",
        ),
        (
            lambda d: contextlib.closing(sqlite3.connect(d / "s")),
            "an open SQLite database",
            "SQLite forbids using across a fork",
            "sqlite3.connect, path",
        ),
        (
            lambda d: lmdb.open(str(d / "l")),
            "an open LMDB environment",
            "LMDB forbids",
            "lmdb.open",
        ),
        (
            lambda d: h5py.File(d / "a.h5", "w"),
            "an open HDF5 file",
            "HDF5 keeps",
            "h5py.File, path",
        ),
        (lambda _: _connected(), "a socket", "is missed by another", "stoker.per_worker(connect"),
    ],
    ids=["written", "sqlite", "lmdb", "hdf5", "socket"],
)
def test_c042_what_cannot_be_opened_again_is_told_once_with_the_way_to_it(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    opened: Callable[[Path], Any],
    name: str,
    why: str,
    change: str,
) -> None:
    with opened(tmp_path) as thing:
        [text] = told(Wrapped(thing), caplog)
    assert text.startswith(f"forked workers share dataset.parts['a'][1], {name}")
    assert why in text
    assert (
        "dataset.parts['a'][1], to be opened by each worker for itself: stoker.per_worker" in text
    )
    assert change in text


def test_c042_what_is_no_danger_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.Logger("own")
    logger.addHandler(logging.FileHandler(tmp_path / "log", "w"))
    np.save(tmp_path / "a.npy", np.arange(4))
    with (
        (tmp_path / "appended").open("a") as appended,
        (tmp_path / "appended").open() as read,
        contextlib.closing(sqlite3.connect(":memory:")) as database,
        socket.socket() as alone,
    ):
        handle = stoker.per_worker((tmp_path / "w").open, "w")
        harmless = [
            *(logger, appended, read, database, alone, handle, sys.stdout, sys.__stderr__),
            *(io.BytesIO(), np.load(tmp_path / "a.npy", mmap_mode="r"), open, lambda: read),
        ]
        with handle():
            assert told(Wrapped(harmless), caplog) == []
    logger.handlers[0].close()


def test_c042_a_file_that_was_removed_since_is_read_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "f").write_text("".join(f"{index:8}" for index in range(9)))
    with (tmp_path / "f").open("rb") as file:
        (tmp_path / "f").unlink()
        batches = list(loader(Opened(file, 9, read_text), "fork"))
    assert [int(batch) for batch in batches] == list(range(9))
    assert not caplog.records
