"""Stacking into given memory gives what torch's collation gives."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import collate as torch_collate

from stoker.workers.collating import DefaultCollate, Stacking, draws_nothing, install
from tests.unit.alike import assert_alike

Pair = namedtuple("Pair", "first second")


class Tagged(torch.Tensor):
    """A tensor of a type of its own."""


class Memory:
    """Gives memory as a slot does, full of rubbish, and remembers what it gave."""

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.given: list[bytearray] = []

    def allocate(self, size_bytes: int) -> tuple[Any, int] | None:
        if self.empty:
            return None
        self.given.append(bytearray(b"\xa5" * (size_bytes + 64)))
        return self.given[-1], 64


def collate_in(memory: Memory, least_bytes: int = 1) -> DefaultCollate:
    return DefaultCollate(Stacking(memory.allocate, least_bytes))


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
]


def _leaf(kind: int) -> Any:
    dtype = DTYPES[kind % len(DTYPES)]
    shape = [(2, 3), (), (0,), (4,)][kind // len(DTYPES) % 4]
    return lambda i: (torch.arange(16).reshape(-1)[: _count(shape)].reshape(shape) + i).to(dtype)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


leaves = st.integers(0, 4 * len(DTYPES) - 1).map(_leaf) | st.sampled_from(
    [
        lambda i: i,
        lambda i: i / 3,
        lambda i: f"text {i}",
        lambda i: np.full((2, 2), i, dtype=np.int16),
        lambda i: np.float32(i),
        lambda i: torch.full((3, 2), float(i)).t(),
        lambda i: torch.tensor([float(i)]).expand(5),
        lambda i: torch.full((2,), i + 1j).conj(),
        lambda i: torch.nn.Parameter(torch.full((2,), float(i))),
        lambda i: torch.full((2,), float(i), requires_grad=True),
        lambda i: torch.full((2,), float(i), requires_grad=i == 1),
        lambda i: torch.tensor([i], dtype=torch.float32 if i % 2 else torch.float64),
        lambda i: torch.tensor([i], dtype=torch.float64 if i % 2 else torch.float32),
        lambda i: torch.tensor([i], dtype=torch.int64 if i % 2 else torch.float16),
        lambda i: torch.full((2,), float(i)).as_subclass(Tagged),
        lambda i: torch.full((2,), float(i)).as_subclass(Tagged if i == 1 else torch.Tensor),
    ]
)
samples = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda fs: lambda i: [f(i) for f in fs]),
        st.lists(inner, min_size=1, max_size=3).map(lambda fs: lambda i: tuple(f(i) for f in fs)),
        st.tuples(inner, inner).map(lambda fs: lambda i: Pair(*(f(i) for f in fs))),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda fs: lambda i: OrderedDict((k, f(i)) for k, f in fs.items())
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=120)
@given(sample=samples, size=st.integers(1, 4))
def test_batches_equal_those_of_torch(sample: Any, size: int) -> None:
    batch = [sample(i) for i in range(size)]
    expected = default_collate(batch)
    memory = Memory()
    for collate in (
        collate_in(memory),
        collate_in(memory, 1 << 20),
        collate_in(Memory(empty=True)),
    ):
        assert_alike(collate(batch), expected)


def test_large_stacks_lie_in_the_memory_given() -> None:
    memory = Memory()
    batch = [{"x": torch.full((8,), float(i)), "y": torch.full((2,), i)} for i in range(4)]
    made = collate_in(memory, least_bytes=8 * 4 * 4)(batch)
    assert len(memory.given) == 1
    before = made["x"].clone()
    memory.given[0][64:] = bytes(len(memory.given[0]) - 64)
    assert not torch.equal(made["x"], before)
    assert torch.equal(made["x"], torch.zeros(4, 8))
    assert made["y"][3, 0] == 3


@pytest.mark.parametrize("collation", [default_collate, collate_in(Memory())])
def test_unequal_sizes_are_refused_in_the_same_words(collation: Any) -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        collation([torch.zeros(3), torch.zeros(4)])


@pytest.mark.parametrize(
    "sample",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        object,
    ],
    ids=["coo", "csr", "nested", "unknown"],
)
@pytest.mark.filterwarnings("ignore:.*prototype stage", "ignore:Sparse CSR tensor support")
def test_what_torch_refuses_is_refused_in_the_same_words(sample: Any) -> None:
    batch = [sample(), sample()]
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        default_collate(batch)
    with pytest.raises(type(theirs.value)) as ours:
        collate_in(Memory())(batch)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantized_tensors_are_left_to_torch() -> None:
    # It takes a process of its own: stacking them into given memory ends the process.
    memory = Memory()
    stacking = Stacking(memory.allocate, 1)
    batch = [torch._empty_affine_quantized([8], scale=0.5, zero_point=0, dtype=torch.quint8)] * 2
    with mock.patch.object(torch, "frombuffer", side_effect=AssertionError("given memory")):
        assert stacking(batch).is_quantized


@pytest.fixture
def torch_map() -> Iterator[dict[Any, Any]]:
    with mock.patch.dict(torch_collate.default_collate_fn_map):
        yield torch_collate.default_collate_fn_map


def test_the_map_of_torch_is_left_alone(torch_map: dict[Any, Any]) -> None:
    before = dict(torch_map)
    collate_in(Memory())([torch.zeros(9)] * 2)
    assert torch_map == before


def _sum(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return sum(batch)


def test_a_tensor_entry_of_the_user_is_respected(torch_map: dict[Any, Any]) -> None:
    memory = Memory()
    collate = collate_in(memory)
    batch = [torch.ones(9), torch.ones(9)]
    assert collate(batch).shape == (2, 9)
    torch_map[torch.Tensor] = _sum
    assert_alike(collate(batch), torch.full((9,), 2.0))
    assert len(memory.given) == 1


def test_a_new_entry_of_the_user_is_respected_beside_ours(torch_map: dict[Any, Any]) -> None:
    memory = Memory()
    collate = collate_in(memory)
    batch = [(torch.ones(9), {1}), (torch.ones(9), {2})]
    with pytest.raises(TypeError):
        collate(batch)
    torch_map[set] = lambda sets, *, collate_fn_map=None: set.union(*sets)
    tensors, union = collate(batch)
    assert union == {1, 2}
    assert tensors.shape == (2, 9)
    assert len(memory.given) == 2


def test_installed_stacking_serves_every_default_collate(torch_map: dict[Any, Any]) -> None:
    memory = Memory()
    install(Stacking(memory.allocate, 1))
    default_collate([{"x": torch.ones(3)}])
    torch_collate.collate([torch.ones(3)], collate_fn_map=torch_map)
    assert len(memory.given) == 2


def test_installing_respects_the_entry_of_the_user(torch_map: dict[Any, Any]) -> None:
    torch_map[torch.Tensor] = _sum
    install(Stacking(Memory().allocate, 1))
    assert torch_map[torch.Tensor] is _sum


def test_only_collation_of_torch_unchanged_is_known_not_to_draw(
    torch_map: dict[Any, Any],
) -> None:
    known = [default_convert, default_collate, collate_in(Memory())]
    assert all(map(draws_nothing, known))
    assert not draws_nothing(lambda batch: default_collate(batch))
    install(Stacking(Memory().allocate, 1))
    assert all(map(draws_nothing, known))
    torch_map[int] = _sum
    assert [draws_nothing(collate) for collate in known] == [True, False, False]
