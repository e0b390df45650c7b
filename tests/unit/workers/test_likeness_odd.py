"""Odd objects: nothing that they do gets out, and none of their code runs."""

from __future__ import annotations

import collections
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from stoker.workers.likeness import likeness
from tests.unit.workers.test_likeness import (
    Data,
    Scale,
    Slotted,
    chained,
    nested,
)


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]


class WithProperties:
    """Has properties named like attributes of functions, which raise."""

    @property
    def func(self) -> Any:
        raise RuntimeError("func")

    @property
    def args(self) -> Any:
        raise LookupError("args")

    @property
    def __self__(self) -> Any:
        raise RuntimeError("self")


class NoDict:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("dict")


class NoClass:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("class")


class OddText(str):
    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("hash")


class OddList(list[Any]):
    def __len__(self) -> int:
        raise RuntimeError("len")


def dead_proxy() -> Any:
    return weakref.proxy(Scale(1))


HOSTILE: dict[str, Callable[[], Any]] = {
    "__getattr__ that raises": Hostile,
    "properties that raise": WithProperties,
    "a __dict__ that raises": NoDict,
    "a __class__ that raises": NoClass,
    "a text that cannot be hashed": lambda: OddText("a"),
    "a list without a length": lambda: OddList([1]),
    "a proxy of what is gone": dead_proxy,
    "a list deep in itself": lambda: nested(600),
    "a long chain of objects": lambda: chained(600),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_that_an_odd_object_does_gets_out(name: str, inside: bool) -> None:
    odd = HOSTILE[name]()
    data = Data(odd=odd) if inside else odd
    assert likeness(data) == likeness(data)


ODD: dict[str, Callable[[], Any]] = {
    "an empty cell": lambda: Data(transform=_with_empty_cell()),
    "a slot that is not filled": lambda: Slotted(1),
    "a sparse tensor": lambda: Data(table=torch.eye(3).to_sparse()),
    "a tensor of inference mode": lambda: Data(table=_inferred()),
    "a tensor without memory": lambda: Data(table=torch.empty(3, device="meta")),
    "an array of objects": lambda: Data(table=np.array([{}, None], dtype=object)),
    "an array of nothing": lambda: Data(table=np.zeros((0, 3))),
    "a record array": lambda: Data(table=np.zeros(3, dtype=[("a", int), ("b", float)])),
    "a masked array": lambda: Data(table=np.ma.masked_array([1, 2], [True, False])),
    "an array of one": lambda: Data(table=np.array(3)),
    "a strided array": lambda: Data(table=np.zeros((100, 100))[::3, ::2]),
    "a named tuple": lambda: Data(pair=collections.namedtuple("Pair", "a b")(1, 2)),
    "a deque": lambda: Data(last=collections.deque([1, 2])),
    "an exception": lambda: Data(error=ValueError("x", [1])),
    "nothing at all": lambda: None,
    "Ellipsis": lambda: ...,
}


def _inferred() -> torch.Tensor:
    with torch.inference_mode():
        return torch.zeros(3)


def _with_empty_cell() -> Callable[[], Any]:
    def inner() -> Any:
        return later

    if len("") == 1:
        later = 1
    return inner


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_looked_at(name: str) -> None:
    data = ODD[name]()
    likeness(data)


CALLED: list[str] = []


def noted(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        CALLED.append(name)
        return NotImplemented if name == "__eq__" else 1

    return method


METHODS = (
    "__getitem__",
    "__len__",
    "__iter__",
    "__eq__",
    "__hash__",
    "__bool__",
    "__getitems__",
    "__getattr__",
    "__call__",
    "__repr__",
    "__reduce__",
    "__getstate__",
    "items",
    "keys",
    "values",
)


def watched(*bases: type, without: tuple[str, ...] = ()) -> type:
    """A class that notes each of its methods that is called."""
    names = [name for name in METHODS if name not in without]
    return type("Watched", bases, {name: noted(name) for name in names})


def test_no_code_of_a_data_set_runs() -> None:
    CALLED.clear()
    likeness(Data(inner=watched(Dataset)()))
    assert CALLED == []


def test_no_method_of_a_data_set_runs() -> None:
    CALLED.clear()
    data = watched(Dataset, without=("__getattr__",))()
    assert likeness(data) == likeness(data)
    assert CALLED == []


@pytest.mark.parametrize("base", [list, dict, tuple, set])
def test_no_code_of_a_data_set_that_is_a_container_runs(base: type) -> None:
    data = watched(base, without=("__getattr__",))([(n, n) for n in range(100)])
    CALLED.clear()
    assert likeness(data) == likeness(data)
    assert CALLED == []


def test_no_comparison_of_a_value_runs() -> None:
    class Epoch(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            CALLED.append("__eq__")
            return True

    CALLED.clear()
    data = Data(epoch=Epoch(1))
    before = likeness(data)
    data.epoch = Epoch(2)
    assert likeness(data) != before
    assert CALLED == []


def test_nothing_is_kept_alive() -> None:
    data = Data(transform=Scale(1), table=[Scale(2)])
    gone = [weakref.ref(data), weakref.ref(data.transform), weakref.ref(data.table[0])]
    seen = likeness(data)
    del data
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    assert seen
