"""Public cases of group E that are about files which forked workers open for themselves."""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from torch.utils.data import Dataset

from stoker.workers import descriptors, process
from stoker.workers.descriptors import files_here, open_again, positions
from stoker.workers.handles import look_for_handles
from tests.contract.methods import loader

if sys.platform != "linux":
    pytest.skip("as Linux forks", allow_module_level=True)

import fcntl

FORK = multiprocessing.get_context("fork")
GATE = FORK.Event()
OURS, THEIRS = 100, 7
GLOBAL: Any = None


@functools.lru_cache
def cached(path: Path) -> Any:
    return path.open("rb", buffering=0)


class OfClass:
    file: ClassVar[Any] = None


class Moving(Dataset[Any]):
    """Tells where its file is, and moves it, once the main process has moved its own."""

    def __init__(self, place: Callable[[], int], length: int = 1) -> None:
        self.place, self.length = place, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        assert GATE.wait(60)
        descriptor = self.place()
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, 55, os.SEEK_SET)
        return at


@contextmanager
def _global(path: Path) -> Iterator[Callable[[], int]]:
    global GLOBAL
    with path.open("rb", buffering=0) as GLOBAL:
        yield lambda: int(GLOBAL.fileno())


@contextmanager
def _of_class(path: Path) -> Iterator[Callable[[], int]]:
    with path.open("rb", buffering=0) as OfClass.file:
        yield lambda: int(OfClass.file.fileno())


@contextmanager
def _cached(path: Path) -> Iterator[Callable[[], int]]:
    with cached(path):
        yield lambda: int(cached(path).fileno())


@contextmanager
def _last_of_many(path: Path) -> Iterator[Callable[[], int]]:
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for _ in range(40)]
        yield lambda: files[-1].fileno()


@contextmanager
def _number(path: Path, flags: int = os.O_RDONLY) -> Iterator[Callable[[], int]]:
    number = os.open(path, flags)
    try:
        yield lambda: number
    finally:
        os.close(number)


@contextmanager
def _read_and_written(path: Path) -> Iterator[Callable[[], int]]:
    with path.open("r+b", buffering=0) as file:
        yield file.fileno


@contextmanager
def _temporary(_: Path) -> Iterator[Callable[[], int]]:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(200))
        file.flush()
        yield file.fileno


@pytest.mark.parametrize(
    "opened",
    [_global, _of_class, _cached, _last_of_many, _number, _read_and_written, _temporary],
    ids=lambda opened: opened.__name__[1:],
)
def test_c042_each_worker_reads_for_itself_whoever_holds_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, opened: Any
) -> None:
    (tmp_path / "f").write_bytes(bytes(200))
    GATE.clear()
    with opened(tmp_path / "f") as place:
        os.lseek(place(), OURS, os.SEEK_SET)
        iterator = iter(loader(Moving(place, 2), "fork", 2))
        os.lseek(place(), THEIRS, os.SEEK_SET)
        GATE.set()
        assert [int(batch) for batch in iterator] == [OURS, OURS]
        assert os.lseek(place(), 0, os.SEEK_CUR) == THEIRS
    assert not caplog.records


def test_c042_and_this_is_what_would_be_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "files_here", list)
    (tmp_path / "f").write_bytes(bytes(200))
    GATE.clear()
    with _global(tmp_path / "f") as place:
        os.lseek(place(), OURS, os.SEEK_SET)
        iterator = iter(loader(Moving(place), "fork", 1))
        os.lseek(place(), THEIRS, os.SEEK_SET)
        GATE.set()
        assert [int(batch) for batch in iterator] == [THEIRS]
        assert os.lseek(place(), 0, os.SEEK_CUR) == 55


class Rows(Dataset[Any]):
    """Row i of a file that a global variable has; dies once on its way."""

    def __init__(self, died: Path) -> None:
        self.died = died

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        if index == 20 and not self.died.exists():
            self.died.touch()
            os._exit(3)
        GLOBAL.seek(8 * index)
        return int(GLOBAL.read(8))


def test_c042_a_worker_in_place_of_a_dead_one_reads_for_itself_too(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{index:8}" for index in range(60)))
    with _global(tmp_path / "f"):
        read = []
        for batch in loader(Rows(tmp_path / "died"), "fork", batch_size=4, max_restarts=1):
            read += batch.tolist()
            GLOBAL.seek(8 * (read[-1] % 7))  # As the program may.
    assert (tmp_path / "died").exists()
    assert read == list(range(60))


# What a worker does to its descriptors is done here to this process's own. A copy of one, made
# before, stands for the main process: it has the position that the worker leaves.


@contextmanager
def copied(descriptor: int) -> Iterator[int]:
    other = os.dup(descriptor)
    try:
        yield other
    finally:
        os.close(other)


def apart(one: int, other: int) -> bool:
    """Whether they have a position each; both are at 7 and 9 afterwards if so."""
    os.lseek(one, 7, os.SEEK_SET)
    os.lseek(other, 9, os.SEEK_SET)
    return os.lseek(one, 0, os.SEEK_CUR) == 7


def opened_again(descriptor: int, at: int = 0) -> None:
    """Has this process do with one descriptor as a worker does with all."""
    found = [file._replace(copy_of=None) for file in files_here() if file.descriptor == descriptor]
    os.lseek(descriptor, at, os.SEEK_SET)
    open_again(positions(found))


@pytest.mark.parametrize("inheritable", [True, False])
def test_c042_flags_and_position_stay_and_a_removed_file_is_read(
    tmp_path: Path, inheritable: bool
) -> None:
    (tmp_path / "f").write_bytes(bytes(range(200)))
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK
    with _number(tmp_path / "f", flags) as place, copied(place()) as ours:
        (tmp_path / "f").unlink()
        os.set_inheritable(place(), inheritable)
        before = fcntl.fcntl(place(), fcntl.F_GETFL)
        opened_again(place(), at=OURS)
        assert os.read(place(), 1) == bytes([OURS])
        assert apart(place(), ours)
        assert fcntl.fcntl(place(), fcntl.F_GETFL) == before
        assert os.get_inheritable(place()) == inheritable
        os.write(place(), b"end")
        assert os.fstat(ours).st_size == 203


def test_c042_what_is_written_goes_to_the_same_file(tmp_path: Path) -> None:
    """With what the file object of the main process had not written yet, at its place."""
    (tmp_path / "f").write_bytes(b"." * 20)
    with (tmp_path / "f").open("r+b") as file, copied(file.fileno()) as ours:
        file.seek(10)
        file.write(b"mine")
        opened_again(file.fileno(), at=os.lseek(ours, 0, os.SEEK_CUR))
        os.lseek(ours, 2, os.SEEK_SET)
        file.flush()
    assert (tmp_path / "f").read_bytes() == b"." * 10 + b"mine" + b"." * 6


def test_c042_files_only_written_to_stay_shared_as_do_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of several processes would lie over each other; these are as they were opened."""
    reading, writing = os.pipe()
    with (
        (tmp_path / "log").open("w") as log,
        (tmp_path / "out").open("w+") as out,
        os.fdopen(reading),
        os.fdopen(writing, "w"),
    ):
        told = os.fstat(out.fileno())
        monkeypatch.setattr(
            descriptors.File,
            "is_at",
            lambda file, number: number == 1 and file.inode == told.st_ino,
        )
        found = {file.descriptor for file in files_here()}
        assert not found & {0, 1, 2, log.fileno(), out.fileno(), reading, writing}


def test_c042_another_file_at_the_number_is_left_alone(tmp_path: Path) -> None:
    for name in "fg":
        (tmp_path / name).write_bytes(bytes(200))
    with _number(tmp_path / "f") as place, _number(tmp_path / "g") as other:
        found = positions(file for file in files_here() if file.descriptor == place())
        os.dup2(other(), place())
        open_again(found)
        assert not apart(place(), other())


def test_c042_a_file_closed_meanwhile_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(200))
    with _number(tmp_path / "f") as place:
        found = [file for file in files_here() if file.descriptor == place()]
        then = positions(found)
    assert then
    assert positions(found) == []
    open_again(then)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found[0].descriptor)


@pytest.mark.parametrize(
    ("number", "raises"), [(errno.EACCES, False), (errno.EMFILE, True)], ids=["refused", "no room"]
)
def test_c042_a_file_that_cannot_be_opened_is_left_and_no_room_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raises: bool
) -> None:
    """Then the worker ends, since it would read wrong data."""

    def refused(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    (tmp_path / "f").write_bytes(bytes(200))
    with _number(tmp_path / "f") as place, copied(place()) as ours:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            with pytest.raises(OSError, match="Too many") if raises else nullcontext():
                opened_again(place())
        assert not apart(place(), ours)


def test_c042_a_file_that_cannot_be_opened_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "_name", lambda _: None)  # As on FreeBSD.
    (tmp_path / "f").write_bytes(bytes(200))
    with (tmp_path / "f").open("rb") as file:
        look_for_handles(SimpleNamespace(dataset=[file], collate_fn=None, worker_init_fn=None))
    [record] = caplog.records
    assert "it can't be opened again, and all processes have one position" in record.getMessage()


def test_c042_by_the_path_where_the_system_has_no_other_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS; another file that lies there by now is not taken for it."""
    monkeypatch.setattr(descriptors, "_name", lambda _: str(tmp_path / "f"))
    (tmp_path / "f").write_bytes(bytes(200))
    with _number(tmp_path / "f") as place, copied(place()) as ours:
        (tmp_path / "f").rename(tmp_path / "g")
        (tmp_path / "f").write_bytes(bytes(200))
        opened_again(place())
        assert not apart(place(), ours)
        (tmp_path / "g").rename(tmp_path / "f")
        opened_again(place())
        assert apart(place(), ours)


def test_c042_copies_of_a_descriptor_go_on_together(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(200))
    with _number(tmp_path / "f") as place, copied(place()) as copy, copied(place()) as ours:
        found = [file for file in files_here() if file.descriptor in (place(), copy)]
        if found[1].copy_of is None:
            pytest.skip("Linux tells since 6.10")
        open_again(positions(found))
        assert not apart(place(), copy)
        assert apart(copy, ours)


def test_c042_locks_of_the_main_process_stay_its_own(tmp_path: Path) -> None:
    """Neither does the look give one back, nor can a worker."""
    (tmp_path / "f").write_bytes(bytes(200))
    with (tmp_path / "f").open("r+b") as file, copied(file.fileno()) as ours:
        fcntl.lockf(file, fcntl.LOCK_EX)
        look_for_handles(SimpleNamespace(dataset=[file], collate_fn=None, worker_init_fn=None))
        files_here()
        other = FORK.Process(target=_exits_2_where_locked, args=(tmp_path / "f",))
        other.start()
        other.join()
        assert other.exitcode == 2
        other.close()
        fcntl.flock(ours, fcntl.LOCK_EX)
        opened_again(file.fileno())
        fcntl.flock(file, fcntl.LOCK_UN)
        with (tmp_path / "f").open("rb") as third, pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _exits_2_where_locked(path: Path) -> None:
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os._exit(2)
