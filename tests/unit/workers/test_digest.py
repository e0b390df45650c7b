"""The running checksum: the same for the same batches, another for others."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.workers.digest import RunningDigest
from tests import starting


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclass
class Record:
    image: Any
    name: str = "one"


def image(value: float = 0.5) -> torch.Tensor:
    return torch.full((3, 50, 50), value)


def digest(*batches: Any) -> int:
    running = RunningDigest()
    for batch in batches:
        running.add(batch)
    return running.value


DIFFERENT: list[Any] = [
    None,
    0,
    1,
    1.0,
    True,
    "0",
    b"0",
    [],
    (),
    {},
    [0],
    (0,),
    [0, 1],
    [1, 0],
    {"a": 0},
    {"a": 1},
    {"b": 0},
    "a" * 600 + "b",
    "a" * 600 + "c",
    "a" * 601 + "c",
    image(),
    image(0.25),
    image().double(),
    image().reshape(3, 25, 100),
    image().numpy(),
    image().transpose(1, 2),
    torch.zeros(0),
    torch.zeros(0, 3),
    torch.tensor(1),
    torch.arange(40),
    torch.arange(40).flip(0),
    np.arange(40),
    np.arange(40)[::2],
    np.array(["a", None], dtype=object),
    np.float32(1),
    Pair(image(), 1),
    Pair(image(), 2),
    [image(), 1],
    Record(image()),
    Record(image(), "two"),
    {"x": [image(), {"y": (1, 2)}]},
    {"x": [image(), {"y": (1, 3)}]},
]


def test_what_differs_has_another_checksum() -> None:
    seen = [digest(batch) for batch in DIFFERENT]
    assert len(set(seen)) == len(seen)


def test_the_same_again_has_the_same() -> None:
    for batch in DIFFERENT:
        assert digest(batch) == digest(batch)
    assert digest(image()) == digest(image().clone())
    assert digest(Record(image())) == digest(Record(image().clone()))


def test_order_and_number_of_batches_count() -> None:
    one, two = image(0.1), image(0.2)
    seen = {digest(), digest(one), digest(one, two), digest(two, one), digest(one, two, two)}
    assert len(seen) == 5


def test_an_error_counts_as_one() -> None:
    ones = [RunningDigest() for _ in range(3)]
    ones[0].add_error(ValueError("a"))
    ones[1].add_error(KeyError("a"))
    assert len({running.value for running in ones}) == 3


@given(at=st.integers(0, 11), size=st.sampled_from([12, 100, 12_000]))
def test_the_ends_and_places_between_are_looked_at(at: int, size: int) -> None:
    """Of a large tensor only pieces are seen: its start and its end among them."""
    first = torch.zeros(size)
    second = first.clone()
    second[at] = 1
    third = first.clone()
    third[-1 - at] = 1
    assert len({digest(first), digest(second), digest(third)}) == 3


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not for you")


@pytest.mark.parametrize(
    "batch",
    [
        Odd(),
        object(),
        lambda: None,
        torch.zeros(3, 3).to_sparse(),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, 2, dtype=torch.complex64).t().conj(),
        torch.empty(3, device="meta"),
        np.zeros(3, dtype=[("a", "i4"), ("b", "f4")]),
        "\ud800",
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_odd_objects_are_no_error(batch: Any) -> None:
    assert digest(batch) == digest(batch)


@pytest.mark.filterwarnings("ignore")
def test_odd_tensors_are_no_error() -> None:
    quantized = torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8)
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert digest(quantized, nested) == digest(quantized, nested)


def test_what_contains_itself_ends() -> None:
    batch: list[Any] = [1]
    batch.append(batch)
    assert digest(batch) == digest(batch)


def test_another_process_comes_to_the_same() -> None:
    """Hashes of texts differ from one interpreter to the next; these must not."""
    batch = {"name": ["one", "two"], "data": b"three", "number": 4, "image": "torch.ones(99)"}
    source = (
        "import torch\n"
        "from stoker.workers.digest import RunningDigest\n"
        f"batch = {batch!r}\n"
        "batch['image'] = torch.ones(99)\n"
        "print(RunningDigest().add(batch))\n"
    )
    told = starting.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=100
    )
    batch["image"] = torch.ones(99)
    assert int(told.stdout) == digest(batch)
