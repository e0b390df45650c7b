"""Rows of tensors that are taken at once are what torch makes of them one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset, default_collate

import stoker
from stoker.workers.tables import Rows
from tests.contract.alike import assert_same

ROWS = 17
TENSORS = {
    "floats": torch.rand(ROWS, 20),
    "labels": torch.arange(ROWS),
    "halves": torch.rand(ROWS, 2, 3).half(),
    "bools": torch.rand(ROWS, 4) > 0.5,
    "strided": torch.rand(20, ROWS).t(),
    "empty rows": torch.rand(ROWS, 0),
    "complex": torch.rand(ROWS, 2, dtype=torch.complex64),
}


def one_by_one(dataset: Any, indices: list[int]) -> Any:
    return default_collate([dataset[index] for index in indices])


@given(
    names=st.lists(st.sampled_from(sorted(TENSORS)), min_size=1, max_size=3),
    indices=st.lists(st.integers(-ROWS, ROWS - 1), min_size=1, max_size=9),
    subset=st.booleans(),
)
def test_rows_taken_at_once_are_those_taken_one_by_one(
    names: list[str], indices: list[int], subset: bool
) -> None:
    dataset: Any = TensorDataset(*(TENSORS[name] for name in names))
    if subset:
        dataset = Subset(dataset, list(reversed(range(ROWS))))
    assert Rows.fit(dataset)
    assert_same(Rows(dataset).batch(indices), one_by_one(dataset, indices))


class Doubled(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * row for row in super().__getitem__(index))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_class_of_the_users_is_asked_for_each_sample(num_workers: int) -> None:
    made = stoker.DataLoader(Doubled(torch.ones(8, 2)), 4, num_workers=num_workers)
    assert [batch[0].unique().tolist() for batch in made] == [[2.0], [2.0]]


def test_a_collate_function_of_the_users_gets_samples() -> None:
    made = stoker.DataLoader(TensorDataset(torch.arange(4)), 2, collate_fn=len, num_workers=0)
    assert list(made) == [2, 2]


@pytest.mark.parametrize(
    ("kind", "num_workers"),
    [(torch.utils.data.DataLoader, 0), (stoker.DataLoader, 0), (stoker.DataLoader, 2)],
)
def test_an_index_out_of_range_is_the_same_error(kind: Any, num_workers: int) -> None:
    dataset = TensorDataset(torch.rand(10, 3))
    with pytest.raises(IndexError, match="index 12 is out of bounds for dimension 0 with size 10"):
        list(kind(dataset, 2, sampler=[3, 12], num_workers=num_workers))


UNFIT = {
    "an index that is a float": ([torch.rand(4, 2)], [0.0, 1.0]),
    "an index that is a bool": ([torch.rand(4, 2)], [True, False]),
    "no index": ([torch.rand(4, 2)], []),
    "large rows": ([torch.rand(4, 100_000)], [0, 1]),
    "a tensor with a gradient": ([torch.rand(4, 2, requires_grad=True)], [0]),
    "a parameter": ([torch.nn.Parameter(torch.rand(4))], [0]),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_not_plain_is_left_to_torch(name: str) -> None:
    tensors, indices = UNFIT[name]
    assert Rows(TensorDataset(*tensors)).batch(indices) is None


def test_a_batch_is_memory_of_its_own() -> None:
    table = torch.zeros(4, 3)
    for batch in stoker.DataLoader(TensorDataset(table), 4, num_workers=0):
        batch[0].fill_(7)
    assert not table.any()
