"""Arrays and tensors that fresh workers are sent are what they were, and everybody's own."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import TransportError
from stoker.transport.parcel_leaves import LARGE_BYTES
from tests.unit.transport.posted import Posted, posted

DTYPES = ["u1", "i2", "f4", "f8", "c16", "M8[ns]", "S5", "?", [("a", "i4"), ("b", "f8", (2,))]]
LARGE = 1 << 17


def slices(length: int) -> st.SearchStrategy[slice]:
    ends = st.one_of(st.none(), st.integers(-length, length))
    return st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, 3, -1, -2]))


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array, whole or a part of one, of any layout, around the size that goes out of band."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = (draw(st.integers(1, 60)), draw(st.integers(1, 40)), draw(st.sampled_from([1, 64])))
    offset = draw(st.integers(0, 70))
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.arange(offset + size, dtype=np.uint32).astype(np.uint8)
    array = memory[offset:].view(dtype if dtype != "?" else "u1").reshape(shape)
    array = array[draw(slices(shape[0])), draw(slices(shape[1]))]
    if draw(st.booleans()):
        array = array.transpose(draw(st.permutations(range(3))))
    array.flags.writeable = draw(st.booleans())
    return array


def bits(array: Any) -> bytes:
    return bytes(array.tobytes())


@settings(max_examples=30)
@given(st.lists(arrays(), min_size=1, max_size=3))
def test_arrays_of_any_layout_arrive_as_they_were(found: list[Any]) -> None:
    for before, after in zip(found, posted({"nested": [(found,)]})["nested"][0][0], strict=True):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        if before.nbytes >= LARGE_BYTES:
            assert after.flags.writeable == before.flags.writeable
        assert bits(after) == bits(before)


@settings(max_examples=15)
@given(
    st.integers(0, 9),
    st.integers(1, 3),
    st.sampled_from([torch.bfloat16, torch.int8, torch.complex64]),
)
def test_views_of_a_tensor_stay_views(first: int, step: int, dtype: torch.dtype) -> None:
    whole = torch.arange(LARGE).to(dtype).view(-1, 64)
    part = whole[first:, ::step].t()
    whole_there, part_there = posted([whole, part])
    assert torch.equal(whole_there, whole)
    assert torch.equal(part_there, part)
    assert part_there.stride() == part.stride()
    part_there[3, 5] = 77
    assert whole_there[first + 5, 3 * step] == 77
    assert not torch.equal(whole_there, whole)


def test_small_tensors_are_their_own_and_can_grow() -> None:
    there = posted([torch.arange(4), torch.empty(0), torch.arange(4)[::2]])
    there[0].resize_(100)
    assert there[0][:4].tolist() == [0, 1, 2, 3]
    assert there[2].tolist() == [0, 2]
    assert there[1].shape == (0,)


def test_parameters_and_modules() -> None:
    module = torch.nn.Linear(300, 300)
    there = posted(module)
    assert isinstance(there.weight, torch.nn.Parameter)
    assert there.weight.requires_grad
    assert torch.equal(there.weight, module.weight)


def test_a_tensor_over_an_array_and_the_array() -> None:
    array = np.arange(LARGE, dtype=np.float32)
    tensor_there, array_there = posted([torch.from_numpy(array), array])
    tensor_there[7] = -1
    assert array_there[7] == -1
    assert array[7] == 7


def test_views_that_overlap_are_one_memory() -> None:
    array = np.arange(3 * LARGE)
    packed = Posted([array, array[100:-100], array[::-1], array[5::2]])
    assert packed.parcel is not None
    assert packed.parcel.size_bytes < array.nbytes + 10_000
    whole, middle, reverse, even = packed.open()
    middle[0] = -5
    assert whole[100] == reverse[-101] == -5
    assert even[0] == 5


def test_a_column_of_a_large_array_does_not_bring_the_array() -> None:
    column = np.arange(64 * LARGE, dtype=np.int32).reshape(-1, 64)[:, 3]
    packed = Posted(column)
    assert packed.parcel is not None
    assert packed.parcel.size_bytes < 2 * column.nbytes
    assert np.array_equal(packed.open(), column)


def test_what_is_broadcast_takes_what_it_has() -> None:
    array = np.broadcast_to(np.arange(8), (100_000, 8))
    packed = Posted(array)
    assert len(packed.stream) < 1000
    assert np.array_equal(packed.open(), array)


def test_tensors_that_torch_shares_are_left_to_it() -> None:
    tensor = torch.arange(LARGE).share_memory_()
    assert Posted(tensor).parcel is None


def test_dates_are_not_pickled_in_the_stream() -> None:
    dates = np.arange(LARGE).astype("M8[s]")
    packed = Posted(dates)
    assert len(packed.stream) < 1000
    assert np.array_equal(packed.open(), dates)


def test_objects_in_an_array_are_pickled() -> None:
    array = np.array([{"a": n} for n in range(20_000)], dtype=object)
    assert posted(array)[19_999] == {"a": 19_999}


def test_writes_are_seen_by_nobody_else() -> None:
    array = np.zeros(2 * LARGE)
    packed = Posted(array)
    first, second = packed.open(), packed.open()
    first[:] = 1
    array[5] = 2
    assert not second.any()
    assert not packed.open().any()
    assert array.sum() == 2
    assert first.all()
    first[:] = 3
    assert array.sum() == 2


def test_the_next_parcel_has_what_was_written() -> None:
    array = np.zeros(2 * LARGE)
    for n in range(1, 5):
        edge = [0, LARGE, -1, 1][n - 1]
        array[edge] = n
        assert np.array_equal(posted(array), array)


def test_nobody_can_change_what_was_sent() -> None:
    packed = Posted(np.zeros(LARGE))
    assert packed.parcel is not None
    file = packed.parcel._files[0]
    with pytest.raises(PermissionError):
        os.pwrite(file.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.truncate(file.descriptor, 0)


class Data:
    def __init__(self, path: Path, mode: Any) -> None:
        self.array = np.memmap(path, dtype="i4", mode=mode, offset=12, shape=(LARGE, 2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.arange(2 * LARGE + 3, dtype="i4").tofile(tmp_path / "data.bin")
    return tmp_path / "data.bin"


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_arrays_in_a_file_are_opened_there(path: Path, mode: str) -> None:
    data = Data(path, mode)
    packed = Posted([data.array, data.array[10:-10], np.asarray(data.array[5:])])
    assert packed.parcel is not None
    assert packed.parcel.size_bytes == 0
    whole, part, plain = packed.open()
    assert type(whole) is type(part) is np.memmap
    assert type(plain) is np.ndarray
    assert (whole.filename, whole.mode) == (data.array.filename, mode)
    assert np.array_equal(whole, data.array)
    assert np.array_equal(part, data.array[10:-10])
    assert np.array_equal(plain, data.array[5:])
    assert whole.flags.writeable == (mode != "r")
    if mode != "r":
        whole[3] = -1
        assert (data.array[3, 0] == -1) == (mode == "r+")


def test_a_copy_of_a_file_that_was_written_to_is_sent(path: Path) -> None:
    data = Data(path, "c")
    data.array[1000] = -1
    there = posted(data.array)
    assert there[1000].tolist() == [-1, -1]
    assert np.array_equal(there, data.array)


def test_a_file_that_is_gone_is_sent(path: Path) -> None:
    data = Data(path, "r")
    path.unlink()
    assert np.array_equal(posted(data.array), data.array)


def test_a_file_in_the_place_of_another_is_not_taken_for_it(path: Path) -> None:
    packed = Posted(Data(path, "r").array)
    path.rename(path.with_suffix(".old"))
    np.zeros(2 * LARGE + 3, dtype="i4").tofile(path)
    with pytest.raises(TransportError, match="another file is there now"):
        packed.open()


def test_a_parcel_without_buffers_is_none() -> None:
    assert Posted({"a": [1, "b"], "c": np.arange(5)}).parcel is None


def test_pickle_alone_can_read_a_stream_without_large_buffers() -> None:
    assert pickle.loads(Posted(np.arange(5)).stream).tolist() == [0, 1, 2, 3, 4]
