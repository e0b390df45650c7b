"""What comes out is what went in: structure, values, types, layout."""

from __future__ import annotations

import datetime
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.transport.layout import SMALL_BYTES
from stoker.transport.shm import Kind, kind_here
from stoker.transport.unbuilt import Unbuilt
from tests.unit.alike import assert_alike
from tests.unit.transport.crossing import Crossing, stacked

LARGE = SMALL_BYTES // 8 + 1  # elements of eight bytes that just make a large leaf
Pair = namedtuple("Pair", "first second")


@dataclass
class Sample:
    image: Any
    label: Any


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.fixture
def crossing() -> Iterator[Crossing]:
    with Crossing(kind_here()) as crossing:
        yield crossing


def filled(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = int(np.prod(shape, dtype=int))
    if dtype is torch.bool:
        return (torch.arange(count) % 3 == 0).reshape(shape)
    raw = torch.arange(count * dtype.itemsize, dtype=torch.int64).mul(37) % 100
    return raw.to(torch.uint8).view(dtype).reshape(shape)


SIZES = {"empty": 0, "small": 3, "large": LARGE}
LAYOUTS: dict[str, Any] = {
    "contiguous": lambda t: t.reshape(-1),
    "of no dimension": lambda t: t.reshape(-1)[:1].reshape(()) if t.numel() else t,
    "transposed": lambda t: torch.stack([t, t], 1).t(),
    "every other": lambda t: torch.stack([t, t], 1)[:, 0],
    "expanded": lambda t: t[:1].expand(len(t) + 1) if len(t) else t,
    "overlapping": lambda t: t.unfold(0, 2, 1) if len(t) > 1 else t,
    "reversed dimensions": lambda t: t.repeat(6).reshape(2, 3, -1).permute(2, 1, 0),
    "channels last": lambda t: (
        t.repeat(24).reshape(2, 3, 4, -1).contiguous(memory_format=torch.channels_last)
    ),
    "with an offset": lambda t: torch.cat([t, t])[len(t) :],
    "of one in places": lambda t: t.reshape(1, -1, 1).transpose(0, 1),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_every_type_of_tensor_crosses(crossing: Crossing, dtype: torch.dtype, size: str) -> None:
    tensor = filled(dtype, SIZES[size])
    assert_alike(crossing.send([tensor, 1]), [tensor, 1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8], ids=str)
def test_every_layout_of_tensor_crosses(
    crossing: Crossing, layout: str, size: str, dtype: torch.dtype
) -> None:
    tensor = LAYOUTS[layout](filled(dtype, SIZES[size]))
    got = crossing.send(tensor)
    assert_alike(got, tensor)
    assert got.is_contiguous() or not got.numel() or got.stride() == tensor.stride()


ARRAYS: dict[str, Any] = {
    "plain": lambda n: np.arange(n),
    "two dimensions": lambda n: np.arange(4 * n, dtype=np.float32).reshape(4, n),
    "Fortran order": lambda n: np.asfortranarray(np.arange(4 * n).reshape(4, n)),
    "every other": lambda n: np.arange(2 * n)[::2],
    "backwards": lambda n: np.arange(n)[::-1],
    "structured": lambda n: np.array(
        [(i, i / 3, b"ab") for i in range(n)], dtype=[("i", "i4"), ("x", "f8"), ("s", "S3")]
    ),
    "text": lambda n: np.array([f"text {i}" for i in range(n)], dtype="U12"),
    "bytes": lambda n: np.array([b"text"] * n, dtype="S8"),
    "objects": lambda n: np.array([{i: str(i)} for i in range(n)] or [None], dtype=object),
    "dates": lambda n: np.arange(n).astype("datetime64[D]"),
    "booleans": lambda n: np.arange(n) % 3 == 0,
    "big endian": lambda n: np.arange(n).astype(">i8"),
    "complex": lambda n: np.arange(n) * 1j,
    "no dimension": lambda n: np.array(n),
    "masked": lambda n: np.ma.masked_greater(np.arange(n), 2),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("size", SIZES)
def test_arrays_cross(crossing: Crossing, name: str, size: str) -> None:
    array = ARRAYS[name](SIZES[size])
    assert_alike(crossing.send({"x": array})["x"], array)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kept_limit", [0, 9])
def test_a_read_only_array_stays_so_and_another_can_be_written(size: str, kept_limit: int) -> None:
    frozen, free = np.arange(SIZES[size]), np.arange(SIZES[size])
    frozen.flags.writeable = False
    with Crossing(kind_here(), kept_limit) as crossing:
        one, other = crossing.send((frozen, free))
        assert_alike((one, other), (frozen, free))
        other[:] = 7
        assert_alike(one, frozen)
        del one, other


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:.*prototype stage")
@pytest.mark.parametrize("n", [4, 3 * SMALL_BYTES // 8])
def test_tensors_that_are_more_than_memory_cross(crossing: Crossing, n: int) -> None:
    values = torch.arange(float(n))
    sparse = torch.zeros(2, n)
    sparse[1] = values
    attributed = values.clone()
    attributed.note = "kept"  # type: ignore[attr-defined]
    batch = {
        "parameter": torch.nn.Parameter(values),
        "frozen parameter": torch.nn.Parameter(values, requires_grad=False),
        "leaf": values.clone().requires_grad_(),
        "coo": sparse.to_sparse().coalesce(),
        "csr": sparse.to_sparse_csr(),
        "no values": torch.zeros(2, n).to_sparse().coalesce(),
        "nested": torch.nested.nested_tensor([values, values[:2]]),
        "conjugate": (values + 1j).conj(),
        "negative": torch._neg_view(values),
        "attribute": attributed,
        "meta": torch.empty(n, device="meta"),
    }
    got = crossing.send(batch)
    meta = got.pop("meta")
    assert meta.device.type == "meta"
    assert meta.shape == batch.pop("meta").shape
    assert_alike(got, batch)
    assert got["leaf"].is_leaf
    assert got["attribute"].note == "kept"


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=2000),
    st.just(datetime.date(2024, 2, 29)),
    st.sampled_from([np.float32(1.5), np.int64(-3), slice(1, 2), range(3), 1 + 2j, torch.int8]),
)
tensors = st.builds(
    lambda layout, dtype, size: LAYOUTS[layout](filled(dtype, size)),
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from([torch.float32, torch.int64, torch.bool, torch.bfloat16]),
    st.sampled_from([0, 1, 5, 600, 2 * LARGE]),
)
arrays = st.builds(
    lambda name, size: ARRAYS[name](size),
    st.sampled_from(sorted(set(ARRAYS) - {"structured", "objects"})),
    st.sampled_from([0, 1, 5, 300, LARGE]),
)
batches = st.recursive(
    tensors | arrays | scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3),
        st.lists(st.tuples(st.text(max_size=2), inner), max_size=3).map(OrderedDict),
        st.dictionaries(st.text(max_size=2), inner, max_size=2).map(lambda d: defaultdict(list, d)),
        st.builds(Pair, inner, inner),
        st.builds(Sample, inner, inner),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("kept_limit", [0, 1, 100])
@settings(max_examples=30)
@given(sequence=st.lists(batches, min_size=1, max_size=4))
def test_nested_batches_cross(kept_limit: int, sequence: list[Any]) -> None:
    with Crossing(kind_here(), kept_limit) as crossing:
        got = []
        for batch in sequence:
            got.append(crossing.send(batch))
            assert_alike(got[-1], batch)
        assert_alike(got, sequence)
        del got


@settings(max_examples=30)
@given(shapes=st.lists(st.tuples(st.booleans(), st.integers(0, 4 * LARGE)), min_size=1, max_size=5))
def test_batches_made_in_the_slot_and_beside_it_cross(shapes: list[tuple[bool, int]]) -> None:
    expected = [np.arange(size) + n for n, (_, size) in enumerate(shapes)]
    with Crossing(kind_here()) as crossing:
        for _ in range(3):
            got = crossing.carry(
                lambda allocate: [
                    stacked(allocate, array) if inside else torch.from_numpy(array.copy())
                    for (inside, _), array in zip(shapes, expected, strict=True)
                ]
            )
            assert_alike(got, [torch.from_numpy(array) for array in expected])
            del got
        assert crossing.made <= 2


SLOT_VIEWS: dict[str, Any] = {
    "every other": lambda t: t[::2],
    "columns": lambda t: t.view(-1, 2)[:, 1],
    "transposed": lambda t: t.view(2, -1).t(),
    "expanded": lambda t: t[:2].unsqueeze(1).expand(2, LARGE),
    "overlapping": lambda t: t.unfold(0, 9, 1),
    "as bytes": lambda t: t.view(torch.uint8)[3:],
    "twice": lambda t: [t, t.view(2, -1), t[4:]],
    "array": lambda t: t.numpy()[1:],
}


@pytest.mark.parametrize("name", SLOT_VIEWS)
def test_views_of_what_was_made_in_the_slot_cross(crossing: Crossing, name: str) -> None:
    values = np.arange(4 * LARGE)
    expected = SLOT_VIEWS[name](torch.from_numpy(values.copy()))
    for _ in range(3):
        got = crossing.carry(lambda a: SLOT_VIEWS[name](stacked(a, values)))
        assert_alike(got, expected)
        del got


def test_large_leaves_begin_at_cache_lines(crossing: Crossing) -> None:
    odd = torch.zeros(SMALL_BYTES + 3, dtype=torch.uint8)
    got = crossing.send([odd, odd.numpy()[1:], odd[:-2].clone(), torch.zeros(3 * LARGE)])
    addresses = [torch.as_tensor(leaf).data_ptr() for leaf in got]
    assert [address % 64 for address in addresses] == [0] * 4


@pytest.mark.parametrize("size", [3, LARGE])
def test_the_same_tensor_twice_is_one_tensor(crossing: Crossing, size: int) -> None:
    tensor = torch.arange(float(size))
    one, again, other = crossing.send([tensor, {"x": tensor}, tensor.clone()])
    assert one is again["x"]
    assert other is not one
    other.zero_()
    assert torch.equal(one, tensor)


@pytest.mark.parametrize("size", [0, 3, LARGE])
def test_two_equal_tensors_are_two(crossing: Crossing, size: int) -> None:
    one, other = crossing.send([torch.zeros(size), torch.zeros(size)])
    assert one is not other


class ByTensor:
    """Pickles as fresh tensors that nothing else keeps alive."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.got: list[torch.Tensor] = []

    def __reduce__(self) -> Any:
        return ByTensor, self.sizes, None, (torch.full((n,), float(n)) for n in self.sizes)

    def append(self, tensor: torch.Tensor) -> None:
        self.got.append(tensor)

    def extend(self, tensors: list[torch.Tensor]) -> None:
        self.got.extend(tensors)


def test_tensors_that_live_only_while_they_are_packed_are_not_mixed_up(
    crossing: Crossing,
) -> None:
    sizes = [0, 3, 0, 5, LARGE, 0, 2, 3, LARGE + 1]
    got = crossing.send(ByTensor(*sizes)).got
    assert_alike(got, [torch.full((n,), float(n)) for n in sizes])


@pytest.mark.parametrize("kind", ["memfd", "named"])
def test_both_kinds_of_segment_carry_the_same(kind: Kind) -> None:
    batch = {name: LAYOUTS[name](filled(torch.float64, LARGE)) for name in LAYOUTS}
    arrays = {name: ARRAYS[name](LARGE) for name in ARRAYS}
    with Crossing(kind) as crossing:
        for _ in range(2):
            assert_alike(crossing.send([batch, arrays]), [batch, arrays])
        assert crossing.made == 1


def test_a_stream_that_is_large_itself_crosses(crossing: Crossing) -> None:
    batch = {"names": [f"a name of some length {i}" for i in range(9000)], "x": torch.arange(3)}
    for _ in range(3):
        assert_alike(crossing.send(batch), batch)
    assert crossing.last.slot is not None
    assert crossing.made == 1


def test_what_pickle_refuses_is_refused_and_the_slot_goes_on(crossing: Crossing) -> None:
    assert_alike(crossing.carry(lambda a: stacked(a, np.arange(LARGE))), torch.arange(LARGE))
    with pytest.raises((AttributeError, TypeError)):
        crossing.carry(lambda a: [stacked(a, np.arange(LARGE)), lambda: None])
    for _ in range(3):
        got = crossing.carry(lambda a: stacked(a, np.arange(LARGE)))
        assert_alike(got, torch.arange(LARGE))
        del got
    assert crossing.made == 1


class Unopenable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise LookupError("cannot be rebuilt")


def test_what_cannot_be_rebuilt_raises_and_gives_its_slot_back(crossing: Crossing) -> None:
    for _ in range(4):
        with pytest.raises(Unbuilt, match=r"batch\[1\], a .*_refuse"):
            crossing.carry(lambda a: [stacked(a, np.arange(LARGE)), Unopenable()])
    assert crossing.made == 1


def test_received_tensors_can_be_written_without_a_warning(crossing: Crossing) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small, large = crossing.send([torch.zeros(3), torch.zeros(LARGE)])
        small += 1
        large += 1
    assert small.sum() == 3
    assert large.sum() == LARGE
