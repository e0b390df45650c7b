"""Whatever a batch is made of arrives as it was, by slot or by pipe."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.contract.alike import assert_same
from tests.contract.methods import (
    Tabled,
    both_segments,
    fixed_batches,
    loader,
    use_segments,
)

LARGE = 12_000  # numbers; the 48 KB of a float32 tensor go into a slot


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Record:
    image: Any
    name: str
    weights: list[float]


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any
    label: int


class Owner:
    """An object with tensors among its attributes."""

    def __init__(self, index: int, size: int) -> None:
        self.x = torch.full((size,), float(index))
        self.edges = {"index": torch.arange(size), "size": size}
        self.name = f"graph {index}"


class Colour(enum.Enum):
    RED = 1


class Mapping(dict):  # type: ignore[type-arg]
    """A dict subclass has to stay one."""


def _floats(index: int, size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) + index


def _structure(index: int, size: int) -> Any:
    return {
        "tuple": (_floats(index, size), (index, "text", None)),
        "list": [np.arange(size, dtype=np.int32) + index, [1.5, True, 2 + 3j]],
        "named": Pair(_floats(index, size), index),
        "record": Record(_floats(index, size), "name", [0.5, index]),
        "frozen": Frozen(_floats(index, size), index),
        "owner": Owner(index, size),
        "ordered": collections.OrderedDict(b=_floats(index, size), a=1),
        "subclass": Mapping(x=_floats(index, size)),
        "scalars": (np.float32(1.5), np.int64(index), torch.tensor(index), Colour.RED),
        "bytes": (b"raw", bytearray(b"raw"), "sämple", ""),
        "date": datetime.date(2024, 2, 29),
        "set": [index, frozenset({1, 2})],
        "empty": (torch.empty(0, 3), np.empty((0,)), [], (), {}),
    }


def _dtypes(index: int, size: int) -> Any:
    kinds = (
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.bool,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    )
    base = torch.arange(size) % 120
    return {
        "torch": [base.to(kind) for kind in kinds],
        "numpy": [
            np.arange(size).astype(kind)
            for kind in (
                "?",
                "u1",
                "i2",
                "u4",
                "i8",
                "f2",
                "f4",
                "f8",
                "c8",
                ">i4",
                "M8[s]",
                "U3",
                "S2",
            )
        ],
        "float8": base.to(torch.float8_e4m3fn),
    }


def _layouts(index: int, size: int) -> Any:
    square = _floats(index, 4 * size).reshape(4, size)
    dense = torch.zeros(4, size)
    dense[1, index % size] = index + 1.0
    return {
        "transposed": square.t(),
        "steps": square[:, ::3],
        "row": square[2],
        "expanded": torch.tensor([index]).expand(size),
        "last": torch.ones(2, 3, 4, size // 4).to(memory_format=torch.channels_last),
        "sparse": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "wants grad": torch.ones(size, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(size)),
        "conjugate": torch.full((size,), 1 + 2j).conj(),
        "negated": torch.full((size,), 1 + 2j).conj().imag,
        "fortran": np.asfortranarray(np.arange(4 * size).reshape(4, size)),
        "reversed": np.arange(size)[::-1],
        "read-only": np.frombuffer(bytes(8 * size), dtype=np.int64),
        "objects": np.array([None, "a", 1], dtype=object),
        "structured": np.zeros(size, dtype=[("a", "i4"), ("b", "f8")]),
    }


def small_structure(index: int) -> Any:
    return _structure(index, 5)


def large_structure(index: int) -> Any:
    return _structure(index, LARGE)


def small_dtypes(index: int) -> Any:
    return _dtypes(index, 8)


def large_dtypes(index: int) -> Any:
    return _dtypes(index, LARGE)


def small_layouts(index: int) -> Any:
    return _layouts(index, 8)


def large_layouts(index: int) -> Any:
    return _layouts(index, LARGE)


SAMPLES = [
    small_structure,
    large_structure,
    small_dtypes,
    large_dtypes,
    small_layouts,
    large_layouts,
]


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant).*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*not writable.*:UserWarning")
@both_segments
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda f: f.__name__)
def test_structures_arrive_as_they_were(
    sample: Any, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Tabled(5, sample)
    expected = [sample(index) for index in range(5)]
    options = {"batch_size": None, "collate_fn": _as_it_is}
    assert_same(fixed_batches(dataset, "fork", **options), expected)
    assert_same(fixed_batches(dataset, "inline", **options), expected)


def _as_it_is(sample: Any) -> Any:
    return sample


def test_structures_arrive_from_fresh_processes() -> None:
    dataset = Tabled(3, large_structure)
    options = {"batch_size": None, "collate_fn": _as_it_is}
    expected = [large_structure(index) for index in range(3)]
    assert_same(fixed_batches(dataset, "forkserver", **options), expected)


def _collatable(index: int) -> Any:
    size = LARGE
    return {
        "image": _floats(index, size),
        "array": np.arange(size) + index,
        "pair": Pair(_floats(index, 3), index),
        "numbers": (index, index / 3, True),
        "text": f"sample {index}",
        "nested": [[_floats(index, size)], {"deep": torch.tensor(index)}],
    }


@both_segments
@pytest.mark.parametrize("batch_size", [1, 3])
def test_collated_structures_are_torchs(
    batch_size: int, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Tabled(7, _collatable)
    expected = list(torch.utils.data.DataLoader(dataset, batch_size=batch_size))
    assert_same(fixed_batches(dataset, "fork", batch_size=batch_size), expected)
    assert_same(fixed_batches(dataset, "inline", batch_size=batch_size), expected)


def _text(index: int) -> str:
    return chr(ord("a") + index) * (3_000_000 + index)


def test_text_of_megabytes_arrives() -> None:
    dataset = Tabled(6, _text)
    expected = [(_text(i), _text(i + 1)) for i in (0, 2, 4)]
    assert fixed_batches(dataset, "fork", batch_size=2, collate_fn=tuple) == expected


def _many(index: int) -> list[torch.Tensor]:
    return [torch.full((8,), float(index + i)) for i in range(2000)]


def _many_arrays(index: int) -> list[np.ndarray[Any, Any]]:
    return [np.full(200, index + i) for i in range(3000)]


@pytest.mark.parametrize("sample", [_many, _many_arrays])
def test_thousands_of_leaves_arrive(sample: Any) -> None:
    options = {"batch_size": None, "collate_fn": _as_it_is, "num_workers": 1}
    made = fixed_batches(Tabled(4, sample), "fork", **options)
    assert_same(made, [sample(index) for index in range(4)])


def _growing(index: int) -> torch.Tensor:
    return torch.full((10 ** (index % 5 + 1),), float(index))


@both_segments
def test_a_batch_that_outgrows_its_slot_arrives(
    segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Tabled(24, _growing)
    made = fixed_batches(dataset, "fork", batch_size=None)
    assert_same(made, [_growing(index) for index in range(24)])


def _ragged_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([x.sum() for x in samples]).repeat(10 ** len(samples))


@both_segments
def test_batches_of_any_size_in_any_order_arrive(
    segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    sizes = [5, 1, 2, 5, 3, 1, 5, 4, 1, 2]
    batches = [[n] * n for n in sizes]
    made = fixed_batches(
        Tabled(9, _growing), "fork", batch_sampler=batches, collate_fn=_ragged_collate
    )
    assert_same(made, [_ragged_collate([_growing(i) for i in batch]) for batch in batches])


def test_the_same_tensor_twice_is_one_tensor_on_the_other_side() -> None:
    def sample(index: int) -> Any:
        shared = _floats(index, LARGE)
        return shared, [shared]

    options = {"batch_size": None, "collate_fn": _as_it_is}
    [(first, [second])] = loader(Tabled(1, sample), "fork", **options)
    assert first is second


def test_a_view_and_its_base_both_arrive() -> None:
    def sample(index: int) -> Any:
        base = _floats(index, LARGE)
        return base, base[: LARGE // 2], base[5:], base.view(2, -1)

    made = fixed_batches(Tabled(3, sample), "fork", batch_size=None, collate_fn=_as_it_is)
    assert_same(made, [sample(i) for i in range(3)])


def _batch_with_views(samples: list[torch.Tensor]) -> Any:
    whole = torch.utils.data.default_collate(samples)
    return whole, whole[0], whole[:, 7:], whole.t(), whole[::2], whole.numpy()


@both_segments
def test_views_of_what_was_collated_into_a_slot_arrive(
    segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Tabled(30, _image)
    made = fixed_batches(dataset, "fork", batch_size=3, collate_fn=_batch_with_views)
    expected = [_batch_with_views([_image(i) for i in range(k, k + 3)]) for k in range(0, 30, 3)]
    assert_same(made, expected)


def _image(index: int) -> torch.Tensor:
    return _floats(index, LARGE)


class Pickled:
    """Counts on its own ``__reduce__``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Pickled, (self.value,)


def _pickled(index: int) -> Any:
    return Pickled(_floats(index, LARGE))


def test_types_with_a_pickle_of_their_own_arrive() -> None:
    made = fixed_batches(Tabled(3, _pickled), "fork", batch_size=None)
    assert_same([x.value for x in made], [_image(i) for i in range(3)])


def test_tensors_of_a_batch_can_be_written_to_and_differentiated() -> None:
    [batch] = loader(Tabled(1, _image), "fork", batch_size=None)
    batch += 1
    batch.requires_grad_().sum().backward()
    assert_same(batch.detach(), _image(1))
