"""The program's own pages become those of a parcel, and it can't tell."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.transport import exchange, one_copy
from tests.unit.transport.posted import Posted, is_moved

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux moves pages")
MEGABYTE = 2**20


def array_of(megabytes: int) -> Any:
    """An array that is a block of its own: above what malloc may take from its heap."""
    return np.arange(megabytes * MEGABYTE // 8, dtype=np.int64)


@pytest.fixture
def guarded() -> None:
    with exchange.Exchange() as moving:
        if not moving.possible:
            pytest.skip("no userfaultfd here")


@pytest.mark.usefixtures("guarded")
def test_pages_are_moved_and_read_as_before() -> None:
    array = array_of(40)
    before, address = array.copy(), array.ctypes.data
    Posted(array)
    assert is_moved(array)
    assert array.ctypes.data == address
    assert np.array_equal(array, before)
    array += 1
    assert np.array_equal(array, before + 1)


@pytest.mark.usefixtures("guarded")
def test_a_tensor_is_moved() -> None:
    tensor = torch.arange(40 * MEGABYTE // 8)
    Posted({"a": tensor[7:]})
    assert is_moved(tensor.numpy())
    assert torch.equal(tensor, torch.arange(40 * MEGABYTE // 8))


@pytest.mark.usefixtures("guarded")
def test_what_was_not_written_to_is_not_sent_again() -> None:
    array, other = array_of(40), array_of(36)
    first = Posted([array, other])
    second = Posted([array, other])
    assert first.parcel is not None
    assert second.parcel is not None
    assert second.parcel._files == first.parcel._files
    other[-1] = 5
    third = Posted([array, other])
    assert third.parcel is not None
    assert third.parcel._files[1:] == first.parcel._files
    assert np.array_equal(third.open()[1], other)
    assert np.array_equal(third.open()[0], array)
    assert first.open()[1][-1] != 5


@pytest.mark.usefixtures("guarded")
def test_memory_goes_with_the_array_and_the_parcel() -> None:
    array = array_of(40)
    packed = Posted(array)
    file = packed.parcel._files[0].descriptor if packed.parcel else -1
    os.fstat(file)
    del packed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    again = Posted(array)  # to another file, as the first is not known any more
    assert np.array_equal(again.open(), array)


class Owner:
    def __init__(self) -> None:
        self.array = array_of(40)


def descriptor_of(packed: Posted) -> int:
    assert packed.parcel is not None
    (file,) = packed.parcel._files
    return file.descriptor


@pytest.mark.usefixtures("guarded")
def test_what_is_kept_for_its_owner_goes_with_it() -> None:
    owner = Owner()
    packed = Posted(owner.array)
    assert packed.parcel is not None
    packed.parcel.keep_with(owner)
    first = os.fstat(descriptor_of(packed))
    packed.parcel.close()
    again = Posted(owner.array)
    descriptor = descriptor_of(again)
    assert os.fstat(descriptor).st_ino == first.st_ino
    del packed, again
    os.fstat(descriptor)
    del owner
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_second_copy_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_ONE_COPY", "0")
    owner = Owner()
    packed = Posted(owner.array)
    assert packed.parcel is not None
    packed.parcel.keep_with(owner)
    descriptor = descriptor_of(packed)
    packed.parcel.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("megabytes", [34, 80])
def test_an_array_that_was_moved_can_be_resized(megabytes: int) -> None:
    array = array_of(40)
    Posted(array)
    before = array.copy()
    array.resize(megabytes * MEGABYTE // 8, refcheck=False)
    same = min(len(array), len(before))
    assert np.array_equal(array[:same], before[:same])
    assert not array[same:].any()
    array[:] = 3
    assert np.array_equal(Posted(array).open(), array)


@pytest.mark.usefixtures("guarded")
def test_a_forked_copy_has_it_and_writes_for_itself() -> None:
    array = array_of(40)
    Posted(array)
    pid = os.fork()
    if pid == 0:
        fine = bool(array[-1] == len(array) - 1)
        array[:] = 0
        os._exit(0 if fine and not Posted(array).open().any() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert array[-1] == len(array) - 1


def test_not_when_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_ONE_COPY", "0")
    array = array_of(40)
    assert np.array_equal(Posted(array).open(), array)
    assert not is_moved(array)


def over_python() -> Any:
    return np.frombuffer(bytearray(40 * MEGABYTE), dtype=np.int64)


def over_mapping() -> Any:
    return np.frombuffer(mmap.mmap(-1, 40 * MEGABYTE), dtype=np.int64)


def private_mapping() -> Any:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, 40 * MEGABYTE, flags=flags), dtype=np.int64)


@pytest.mark.parametrize("make", [over_python, over_mapping, private_mapping])
def test_memory_that_is_not_mallocs_stays(make: Callable[[], Any]) -> None:
    array = make()
    array[5] = 5
    there = Posted(array).open()
    assert not is_moved(array)
    assert np.array_equal(there, array)


def test_an_array_of_zeros_that_nobody_has_touched() -> None:
    array = np.zeros(40 * MEGABYTE // 8)
    there = Posted(array).open()
    array[1000] = 1
    assert array.sum() == 1
    assert not there.any()


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("held", [True, False], ids=["with the GIL", "without"])
def test_no_write_of_another_thread_is_lost(held: bool) -> None:
    array = np.zeros(40 * MEGABYTE // 8)
    rounds, going = [0], threading.Event()
    going.set()

    def write() -> None:
        while going.is_set():
            if held:
                for at in range(0, len(array), 512):
                    array[at] += 1
            else:
                np.add(array, 1, out=array)
            rounds[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with one_copy_of(array) as move:
            moves = 0
            while rounds[0] < 5 or moves < 5:
                move()
                moves += 1
    finally:
        going.clear()
        thread.join()
    assert is_moved(array)
    assert np.array_equal(array[::512], np.full(len(array[::512]), rounds[0]))
    if not held:
        assert (array == rounds[0]).all()


class one_copy_of:
    """Moves an array's pages again and again, each time to another file."""

    def __init__(self, array: Any) -> None:
        start = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start, self._size = start, (array.nbytes // mmap.PAGESIZE - 1) * mmap.PAGESIZE
        self._exchange = exchange.Exchange()

    def __enter__(self) -> Callable[[], None]:
        self._exchange.__enter__()
        return self._move

    def __exit__(self, *_: object) -> None:
        self._exchange.__exit__()

    def _move(self) -> None:
        descriptor = os.memfd_create(one_copy.LABEL)
        try:
            os.truncate(descriptor, self._size)
            done = self._exchange.exchange(self._start, self._size, descriptor, 0)
        finally:
            os.close(descriptor)
        assert done == self._size


@pytest.mark.usefixtures("guarded")
def test_pages_stay_when_they_can_not_be_written() -> None:
    import fcntl

    array = array_of(40)
    start = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    descriptor = os.memfd_create("full", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, 4 * MEGABYTE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with exchange.Exchange() as moving:
        assert moving.exchange(start, 4 * MEGABYTE, descriptor, 0) == 0
        array[1:] -= 1  # nothing is protected any more
    os.close(descriptor)
    assert not is_moved(array)
    assert array[-1] == len(array) - 2


def test_without_a_guard_nothing_moves_beside_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange._Guard, "made", lambda: None)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        array = array_of(40)
        assert np.array_equal(Posted(array).open(), array)
        assert not is_moved(array)
    finally:
        ended.set()
        thread.join()


def test_without_a_guard_pages_move_when_nobody_could_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if exchange._calls() is None:
        pytest.skip("not on this machine")
    monkeypatch.setattr(exchange._Guard, "made", lambda: None)
    monkeypatch.setattr(exchange, "_is_alone", lambda: True)
    array = array_of(40)
    Posted(array)
    assert is_moved(array)
    assert np.array_equal(array, array_of(40))


@pytest.mark.parametrize(
    ("told", "sleeps"),
    [
        ("202 0x7f0 0x189 0x0 0x0 0x0 0xffffffff 0x7ff 0x7f1", True),
        ("202 0x7f0 0x189 0x0 0x7f8 0x0 0xffffffff 0x7ff 0x7f1", False),  # until some time
        ("0 0x3 0x7f0 0x2000 0x0 0x0 0x0 0x7ff 0x7f1", False),  # reads a file
        ("running", False),
    ],
)
def test_another_thread_is_at_rest_only_until_somebody_wakes_it(
    tmp_path: Path, told: str, sleeps: bool
) -> None:
    """As ``/proc/PID/task/TID/syscall`` has it, see proc(5)."""
    (tmp_path / "syscall").write_text(f"{told}\n")
    assert exchange._sleeps(tmp_path, 202) == sleeps
