"""What a copy of this process could not use: workers that are none, or a warning that names it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.multiprocessing

import stoker
from stoker.errors import ForkUnsafe, NotPicklable
from stoker.workers import forking
from stoker.workers.reach import Reach
from stoker.workers.settings import Settings
from tests.datasets import Plain

pytestmark = pytest.mark.skipif(
    multiprocessing.get_all_start_methods()[0] != "fork", reason="fork is not the default"
)

LIBRARY = "threads_running = False\n"
OWN = """
import polars
import torch
FLAG, NAMES = "as in the file", ["one"]

class Table(torch.utils.data.Dataset):
    root = "as in the file"
    def __init__(self, more=None):
        self.more = more
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return f"{FLAG} {NAMES} {self.root} {polars.__name__}"

class Other(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return index
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program's module, which uses a library whose threads are running."""
    (tmp_path / "polars.py").write_text(LIBRARY)
    (tmp_path / "own_tables.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forking, "_threads_called", lambda *beginnings: "polars-" in beginnings)
    monkeypatch.setattr(forking, "_told", set())
    import own_tables  # type: ignore[import-not-found]

    yield own_tables
    for name in ("own_tables", "polars"):
        sys.modules.pop(name, None)


@pytest.fixture
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_NOT_SET_AT_IMPORT", True)


def job(dataset: Any) -> Any:
    return SimpleNamespace(dataset=dataset, collate_fn=None, worker_init_fn=None)


def test_workers_start_fresh_where_a_copy_would_hang(
    own: Any, unchosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    """And find there what the program has set, without its main module being run again."""
    own.FLAG, own.NAMES, own.Table.root = "set", ["two"], "moved"
    caplog.set_level(logging.INFO, "stoker")
    made = stoker.DataLoader(own.Table(), num_workers=1, batch_size=None)
    iterator = iter(made)
    worker = iterator._workers[0]
    assert list(iterator) == ["set ['two'] moved polars"] * 2
    assert worker.pid is not None
    assert "new processes and not as copies: they use polars" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_warning_names_it_where_workers_are_forked_all_the_same(
    own: Any, unchosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    made = stoker.DataLoader(
        own.Table(), num_workers=1, batch_size=None, multiprocessing_context="fork"
    )
    for _ in range(2):
        assert len(list(made)) == 2
    [warning] = [r for r in caplog.records if r.name == "stoker"]
    text = warning.getMessage()
    assert warning.levelno == logging.WARNING
    assert "may hang where they use polars, whose threads are running" in text
    assert "the start method was chosen" in text
    assert 'worker_method="fresh"' in text


def test_a_library_that_workers_do_not_use_is_no_matter(
    own: Any, unchosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    assert forking.dangers()
    assert len(list(stoker.DataLoader(Plain(3), num_workers=1))) == 3
    assert not caplog.records


def test_workers_that_can_not_start_fresh_are_forked_and_one_warning_says_why(
    own: Any, unchosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stoker")
    made = stoker.DataLoader(own.Table(more=[threading.Lock()]), num_workers=1, batch_size=None)
    for _ in range(2):
        assert list(made) == ["as in the file ['one'] as in the file polars"] * 2
    [warning] = [r for r in caplog.records if r.name == "stoker"]
    text = warning.getMessage()
    assert warning.levelno == logging.WARNING
    assert "may hang where they use polars, whose threads are running; they can't start" in text
    assert "dataset.more[0] is a _thread.lock" in text
    assert "multiprocessing_context" not in text


class Refused(Exception):
    """Of the program's own."""


class Refusing:
    def __reduce__(self) -> Any:
        raise Refused("never")


def test_whatever_pickling_raises_workers_are_forked(
    own: Any, unchosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    made = stoker.DataLoader(own.Table(more=Refusing()), num_workers=1, batch_size=None)
    assert len(list(made)) == 2
    assert "dataset.more is a Refusing (Refused: never)" in caplog.text.replace(__name__ + ".", "")


def test_workers_that_were_asked_to_start_fresh_are_not_forked(own: Any, unchosen: None) -> None:
    dataset = own.Table(more=threading.Lock())
    with pytest.raises(NotPicklable, match=r"dataset\.more is a _thread\.lock"):
        list(stoker.DataLoader(dataset, num_workers=1, batch_size=None, worker_method="fresh"))


def test_an_automatic_number_is_none_where_workers_can_not_start_fresh(
    own: Any, unchosen: None
) -> None:
    iterator = iter(stoker.DataLoader(own.Table(more=threading.Lock()), batch_size=None))
    iterator.feed.resize(2, next(iterator))
    assert iterator.feed.workers == 0
    assert len(list(iterator)) == 1


def test_an_automatic_number_is_none_where_a_copy_would_hang(own: Any) -> None:
    dataset, fork = own.Table(), multiprocessing.get_context("fork")
    with pytest.raises(ForkUnsafe, match="polars"):
        forking.safe_context(fork, job(dataset), needed=False)
    iterator = iter(stoker.DataLoader(dataset, batch_size=None, multiprocessing_context="fork"))
    iterator.feed.resize(2, next(iterator))
    assert iterator.feed.workers == 0
    assert len(list(iterator)) == 1


def test_settings_are_what_copies_safely() -> None:
    module: Any = sys.modules[__name__]
    held = Settings({__name__})._of[__name__, ""]
    assert held["OWN"] == OWN
    assert not {"forking", "Settings", "Plain", "job"} & held.keys()
    assert module.OWN is OWN


# Which libraries, and in what state


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_told", set())


def planted(monkeypatch: pytest.MonkeyPatch, name: str, **held: Any) -> None:
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(**held))  # type: ignore[arg-type]


def told() -> str:
    return " ".join(danger.what for danger in forking.dangers())


def test_jax_is_one_when_it_has_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "jax")
    planted(monkeypatch, "jax._src.xla_bridge", _backends={})
    assert "JAX" not in told()
    planted(monkeypatch, "jax._src.xla_bridge", _backends={"cpu": 1})
    assert "JAX" in told()


def test_fsspec_is_one_when_it_has_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "fsspec.asyn", iothread=[None])
    assert "fsspec" not in told()
    planted(monkeypatch, "fsspec.asyn", iothread=[threading.main_thread()])
    assert "fsspec" in told()


def test_grpc_is_one_unless_it_prepares_for_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "grpc")
    monkeypatch.setattr(forking, "_threads_called", lambda *beginnings: True)
    assert "gRPC" in told()
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "1")
    assert "gRPC" not in told()


def test_an_accelerator_is_one_when_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_initialized():
        assert "accelerator" not in told()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert "accelerator" in told()


def test_c169_workers_start_fresh_where_they_use_an_initialised_accelerator(
    monkeypatch: pytest.MonkeyPatch, unchosen: None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    uses = forking.safe_context(torch.multiprocessing, job(OnAccelerator(1)), needed=True)
    assert uses.get_start_method() == "fresh"
    assert uses.what == "the accelerator, which this process has initialised"
    not_uses = forking.safe_context(torch.multiprocessing, job(Plain(1)), needed=True)
    assert not_uses is torch.multiprocessing


@pytest.mark.parametrize("danger", forking._LIBRARIES, ids=lambda danger: str(danger[0]))
def test_what_a_danger_concerns_is_something_that_can_be_reached(danger: Any) -> None:
    for package in danger[3]:
        assert package == "an accelerator" or package.isidentifier()


class OnAccelerator(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).to("cuda:0")


class ByMethod(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).cuda()


def moving(samples: Any) -> Any:
    return torch.stack(samples).to(torch.device("cuda"))


@pytest.mark.parametrize("things", [[OnAccelerator(1)], [ByMethod(1)], [Plain(1), moving]])
def test_code_that_says_cuda_reaches_an_accelerator(things: Any) -> None:
    assert "an accelerator" in Reach.of(*things).packages
    assert "an accelerator" not in Reach.of(Plain(1)).packages


def test_a_device_that_is_held_reaches_an_accelerator() -> None:
    dataset = Plain(1)
    dataset.model = [{"device": torch.device("cuda")}]  # type: ignore[attr-defined]
    assert "an accelerator" in Reach.of(dataset).packages


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_thread_of_a_library_is_known_by_its_name() -> None:
    """As the system has it, which Python's threads take from their program."""
    name = Path("/proc/self/comm").read_text().strip()
    assert forking._threads_called(name[:4])
    assert not forking._threads_called("no such thread")


# Threads of the program


def test_threads_of_the_program_are_named_once(
    untold: None, caplog: pytest.LogCaptureFixture
) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="reads the scale")
    thread.start()
    try:
        for _ in range(2):
            list(stoker.DataLoader(Plain(2), num_workers=1, multiprocessing_context="fork"))
    finally:
        end.set()
        thread.join()
    [warning] = caplog.records
    assert "workers are forked while other threads run ('reads the scale')" in warning.getMessage()


def test_threads_that_show_progress_are_not_named(
    untold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Monitor(threading.Thread):
        def run(self) -> None:
            end.wait()

    end = threading.Event()
    Monitor.__module__ = "tqdm._monitor"
    thread = Monitor()
    thread.start()
    try:
        assert forking.foreign_threads() == []
    finally:
        end.set()
        thread.join()


def test_c036_python_does_not_warn_of_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 3.12 and later do in any process with threads, and numpy alone has some."""
    fork = os.fork

    def warning() -> int:
        warnings.warn(
            "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the "
            "child.",
            DeprecationWarning,
            stacklevel=2,
        )
        return fork()

    monkeypatch.setattr(os, "fork", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(stoker.DataLoader([0], num_workers=2))) == 1


def test_c024_c031_a_pool_that_was_used_hangs_no_worker() -> None:
    """The parent has used OpenMP's threads, as torch does on large tensors."""
    torch.ones(1_000_000).sum()
    began = time.monotonic()
    made = stoker.DataLoader(_Summing(4), num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [float(batch) for batch in made] == [1_000_000.0] * 4
    assert time.monotonic() - began < 60


class _Summing(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(1_000_000).clone().sum()
