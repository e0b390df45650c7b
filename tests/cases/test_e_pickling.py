"""Public cases of groups E and F that are about pickling."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import multiprocessing
import pickle
import socket
import sqlite3
import struct
import sys
import tempfile
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py  # type: ignore[import-untyped]
import lmdb  # type: ignore[import-untyped]
import pytest

from stoker.errors import NotPicklable
from stoker.workers import by_value
from stoker.workers.unpicklable import cannot_be_started, pack_argument, pack_by_value
from tests.contract.methods import loader
from tests.datasets import Plain


class Storage:
    """As h5py's files: it says itself that it can't be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("h5py objects cannot be pickled")


class Stored(Plain):
    def __init__(self) -> None:
        super().__init__(4)
        self.options = {"a": 1}
        self.local_storage = Storage()


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
def test_c046_the_attribute_that_does_not_pickle_is_named_before_a_process_starts() -> None:
    """Also to those who catch what pickle raises, which is its cause."""
    with pytest.raises(TypeError, match="h5py objects cannot be pickled") as caught:
        iter(loader(Stored(), "spawn"))
    assert not multiprocessing.active_children()
    error = caught.value
    assert isinstance(error, NotPicklable)
    assert isinstance(error, pickle.PicklingError)
    assert "A worker can't be sent dataset: dataset.local_storage is a " in error.what
    assert "test_e_pickling.Storage" in error.what
    assert type(error.__cause__) is TypeError


class Holding(Plain):
    """Holds something where people do: in a list of an attribute's attribute."""

    def __init__(self, thing: Any) -> None:
        super().__init__(4)
        self.transform = SimpleNamespace(files=[0, 1, 2, thing])


class Slotted:
    __slots__ = ("held", "other")

    def __init__(self, held: Any) -> None:
        self.other, self.held = 1, held


class Stated:
    def __init__(self, held: Any) -> None:
        self.hidden = held

    def __getstate__(self) -> Any:
        return {"shown": self.hidden}

    def __setstate__(self, state: Any) -> None:
        self.hidden = state["shown"]


def ready(_: object) -> None:
    pass


def found(
    dataset: Any = None,
    collate_fn: Any = None,
    pack: Callable[[object], None] = pack_argument,
) -> NotPicklable:
    """What is told of a job, without starting anything."""
    job = SimpleNamespace(dataset=dataset, collate_fn=collate_fn, worker_init_fn=ready)
    error = cannot_be_started(job, TypeError("?"), pack)
    assert error is not None
    return error


@contextlib.contextmanager
def _pool() -> Iterator[Any]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool


def _numbers() -> Iterator[int]:
    yield 1


def _zip(folder: Path) -> Any:
    with zipfile.ZipFile(folder / "a.zip", "w") as made:
        made.writestr("a", "b")
    return zipfile.ZipFile(folder / "a.zip")


@contextlib.contextmanager
def _temporary(_: Path) -> Iterator[Any]:
    with tempfile.TemporaryFile() as file:
        yield file


@pytest.mark.parametrize(
    ("opened", "name", "advice"),
    [
        (lambda d: (d / "f").open("w+b"), "an open file, of '", "stoker.per_worker(open, '"),
        (_temporary, "an open file without a path", "has a path"),
        (
            lambda d: h5py.File(d / "a.h5", "w"),
            "an open HDF5 file (h5py), or part of one, of '/",
            "h5py.File, path",
        ),
        (_zip, "an open zip file, of '", "stoker.per_worker(zipfile.ZipFile, path)"),
        (lambda d: lmdb.open(str(d / "l")), "an open LMDB environment", "lmdb.open, path"),
        (
            lambda d: contextlib.closing(sqlite3.connect(d / "s")),
            "an open SQLite database",
            "stoker.per_worker(sqlite3.connect, path)",
        ),
        (lambda d: contextlib.closing(_numbers()), "a generator", "makes the generator in the"),
        (lambda _: threading.Lock(), "a lock", "left out by __getstate__"),
        (lambda _: _pool(), "a pool of threads", "made in the worker"),
        (lambda _: contextlib.nullcontext(threading), "a module", "to be imported by what uses it"),
        (lambda _: contextlib.nullcontext(lambda: 1), "a lambda", "to be a function of a module"),
        (
            lambda _: contextlib.nullcontext(multiprocessing.get_context("fork").Lock()),
            "a lock or queue of multiprocessing",
            'multiprocessing.get_context("spawn"), which every worker can be given',
        ),
    ],
    ids=[
        *("file", "temporary", "h5py", "zip", "lmdb", "sqlite", "generator"),
        *("lock", "pool", "module", "lambda", "multiprocessing"),
    ],
)
def test_c046_what_it_is_and_what_to_do(
    tmp_path: Path, opened: Callable[[Path], Any], name: str, advice: str
) -> None:
    context = opened(tmp_path)
    with context as entered:
        thing = context if isinstance(context, type(threading.Lock())) else entered
        error = found(Holding(thing))
    assert "dataset.transform.files[3] is a " in error.what
    assert error.likely.startswith(name)
    assert "of '/':" not in error.likely
    fresh = "worker_method='fresh', without multiprocessing_context=; or "
    assert error.change.startswith(fresh) == (name in ("a lambda", "a module"))
    change = error.change.removeprefix(fresh)
    assert change.startswith("dataset.transform.files[3], to be ")
    assert advice in change


@pytest.mark.parametrize(
    ("put", "path"),
    [
        (lambda lock: Slotted(lock), "dataset.transform.files[3].held"),
        (lambda lock: Stated(lock), "dataset.transform.files[3].shown"),
        (lambda lock: functools.partial(ready, lock), "dataset.transform.files[3].args[0]"),
        (lambda lock: {"a": ({1}, [lock])}, "dataset.transform.files[3]['a'][1][0]"),
        (lambda lock: functools.partial(ready, a={lock}), "files[3].keywords['a'].{<unlocked"),
    ],
    ids=["slots", "getstate", "partial", "containers", "set"],
)
def test_c046_wherever_it_is_held(put: Callable[[Any], Any], path: str) -> None:
    error = found(Holding(put(threading.Lock())))
    assert path in error.what
    assert error.likely.startswith("a lock")


def test_c049_a_collate_fn_that_is_a_lambda_is_named() -> None:
    error = found(Plain(1), lambda samples: samples)
    assert error.what.startswith("A worker can't be sent collate_fn: collate_fn is a function ")
    assert error.likely.startswith("a lambda: pickle finds functions by their names in a module")


def test_c049_what_another_pickler_takes_is_not_blamed() -> None:
    """Where functions are sent by value, what one of them closes over is."""
    cloudpickle = pytest.importorskip("cloudpickle")
    lock, number = threading.Lock(), 1

    def transform(sample: Any) -> Any:
        with lock:
            return sample, number

    class Local(Holding):
        pass

    job = SimpleNamespace(dataset=Local(transform), collate_fn=lambda s: s, worker_init_fn=None)
    error = cannot_be_started(job, TypeError("?"), cloudpickle.dumps)
    assert error is not None
    assert "dataset.transform.files[3].nonlocals['lock'] is a _thread.lock" in error.what
    job.dataset.transform.files[3] = lambda sample: sample
    assert cannot_be_started(job, TypeError("?"), cloudpickle.dumps) is None


LOCK = threading.Lock()


def _of_main() -> dict[str, Any]:
    """Classes as a program's main module has them, which go by value."""
    names: dict[str, Any] = {"__name__": "__main__", "LOCK": LOCK, "Plain": Plain}
    source = """
        class Locked(Plain):
            kept: int = 1
            def __init__(self):
                super().__init__(4)
            def other(self):
                return Locked, self.kept
            def __getitem__(self, index):
                return [LOCK for _ in range(index)]

        class Above(Locked):
            def __getitem__(self, index):
                return index

        class Property(Plain):
            @property
            def it(self):
                return LOCK
        """
    exec(textwrap.dedent(source), names)
    return names


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Locked", "dataset.__getitem__.globals['LOCK']"),
        ("Above", "dataset.Locked.__getitem__.globals['LOCK']"),
        ("Property", "dataset.it.globals['LOCK']"),
    ],
)
def test_c049_a_global_that_a_method_names_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, path: str
) -> None:
    """Though its class fails with it, and so does every other method that names the class."""
    names = _of_main()
    for name in ("Locked", "Above", "Property"):
        monkeypatch.setattr(sys.modules["__main__"], name, names[name], raising=False)
    dataset = names[kind].__new__(names[kind])
    error = found(dataset, pack=pack_by_value)
    assert f"{path} is a _thread.lock" in error.what
    assert "in a module that the program imports" in error.change
    assert "fresh" not in error.change


def test_c049_a_local_class_is_named_as_one() -> None:
    class Local(Plain):
        pass

    error = found(Local(4))
    assert "dataset.__class__ is a type " in error.what
    assert error.likely.startswith("a class defined inside a function")
    assert error.change.startswith("worker_method='fresh'")
    assert found(type("Made", (Plain,), {})(4)).likely.startswith("a class that its module does")


@pytest.mark.parametrize("pack", [pack_argument, pack_by_value])
def test_what_is_nested_too_deep_is_told(pack: Callable[[object], None]) -> None:
    nested: list[Any] = []
    for _ in range(20_000):
        nested = [nested]
    error = found(Holding(nested), pack=pack)
    assert "dataset.transform is a " in error.what
    assert error.likely.startswith("it is nested too deep")


def test_a_compiled_format_is_no_open_file() -> None:
    error = found(Holding(struct.Struct("<i")))
    assert error.likely == "a struct.Struct: it was compiled in this process"


def test_c054_advice_is_what_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "; or worker_method='fork'" in found(Holding(threading.Lock())).change
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert "fork" not in found(Holding(threading.Lock())).change


class OwnError(TypeError):
    pass


class Refusing(Plain):
    def __getstate__(self) -> Any:
        raise OwnError("not to be sent")


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
def test_c046_an_error_of_the_users_own_code_keeps_its_type() -> None:
    with pytest.raises(OwnError, match="not to be sent") as caught:
        iter(loader(Refusing(4), "spawn"))
    assert isinstance(caught.value.__cause__, NotPicklable)


def test_c046_sockets_cross_where_multiprocessing_sends_them() -> None:
    with socket.socket() as made:
        pack_argument(made)


def test_a_text_file_is_as_far_in_a_fresh_worker(tmp_path: Path) -> None:
    """Where characters are no bytes, too; the file itself is left where it was."""
    (tmp_path / "lines").write_text("éüß\nabc\nd\n", encoding="utf-8")
    with (tmp_path / "lines").open(encoding="utf-8") as file:
        file.readline()
        copy = by_value.loads(by_value.dumps(file))
        assert copy.read() == file.read() == "abc\nd\n"
