"""The same data set gives the same digest wherever it is met; another one does not."""

from __future__ import annotations

import collections
import enum
import functools
import logging
import os
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import stoker
from stoker.tuning.fingerprint import fingerprint
from tests.datasets import Plain, Stream


class Held(Dataset[Any]):
    """A data set with whatever settings."""

    def __init__(self, length: int = 10, **settings: Any) -> None:
        self._length = length
        vars(self).update(settings)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return index


class Other(Held):
    pass


class Reads(Held):
    def __getitem__(self, index: int) -> int:
        return index + 1


def loader(dataset: Any, batch_size: Any = 4, **options: Any) -> Any:
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, **options)


def of(dataset: Any, **options: Any) -> str:
    return fingerprint(loader(dataset, **options))


def collate_one(samples: Any) -> Any:
    return samples[0]


def collate_two(samples: Any) -> Any:
    return samples[1]


def scaled(by: int) -> Any:
    return lambda samples: [sample * by for sample in samples]


DIFFERENT: dict[str, tuple[str, str]] = {
    "class": (of(Held()), of(Other())),
    "what it does": (of(Other()), of(Reads())),
    "length": (of(Held(10)), of(Held(11))),
    "batch size": (of(Held()), of(Held(), batch_size=8)),
    "no batches": (of(Held()), of(Held(), batch_size=None)),
    "collate": (of(Held(), collate_fn=collate_one), of(Held(), collate_fn=collate_two)),
    "closure": (of(Held(), collate_fn=scaled(2)), of(Held(), collate_fn=scaled(3))),
    "number": (of(Held(size=224)), of(Held(size=225))),
    "float": (of(Held(p=0.5)), of(Held(p=0.25))),
    "flag": (of(Held(train=True)), of(Held(train=False))),
    "path": (of(Held(root=Path("/a"))), of(Held(root=Path("/b")))),
    "none": (of(Held(transform=None)), of(Held(transform=len))),
    "entries": (of(Held(files=list(range(100)))), of(Held(files=list(range(101))))),
    "shape": (of(Held(x=torch.zeros(3, 4))), of(Held(x=torch.zeros(4, 3)))),
    "dtype": (of(Held(x=np.zeros(3, "f4"))), of(Held(x=np.zeros(3, "f8")))),
    "inside": (
        of(Held(transform=SimpleNamespace(steps=[SimpleNamespace(size=(3, 4))]))),
        of(Held(transform=SimpleNamespace(steps=[SimpleNamespace(size=(3, 5))]))),
    ),
    "modules": (
        of(Held(transform=torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.1)))),
        of(Held(transform=torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.2)))),
    ),
    "partial": (
        of(Held(transform=functools.partial(max, key=1))),
        of(Held(transform=functools.partial(max, key=2))),
    ),
    "wrapped": (of(Subset(Held(size=1), range(5))), of(Subset(Held(size=2), range(5)))),
    "joined": (of(ConcatDataset([Held(), Held()])), of(ConcatDataset([Held(), Other()]))),
    "tensors": (of(TensorDataset(torch.zeros(9, 2))), of(TensorDataset(torch.zeros(9, 3)))),
    "iterable": (of(Stream(3)), of(Plain(3))),
    "name": (of(Held(a=1, b=2)), of(Held(a=2, b=1))),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_other_work_is_told_apart_by(what: str) -> None:
    one, other = DIFFERENT[what]
    assert one != other


def test_what_changes_from_run_to_run_is_not_part_of_it() -> None:
    def made(seed: int) -> Any:
        draw = random.Random(seed)
        files = [f"{draw.random()}" for _ in range(50)]
        return Held(
            files=files,
            table={name: draw.random() for name in files},
            mean=torch.rand(3),
            noise=np.random.default_rng(seed),
            rng=draw,
            generator=torch.Generator().manual_seed(seed),
            seed=seed,
            epoch=seed,
            lock=threading.Lock(),
            log=logging.getLogger(__name__),
            _cache={seed: seed},
            words={str(seed)},
            unknown=object(),
        )

    one, other = made(1), made(2)
    assert of(one) == of(other)
    one.itself = one
    other.itself = other
    assert of(one) == of(other)
    shuffled = [Subset(Held(), order) for order in ([1, 2, 3], [3, 1, 2])]
    assert len({of(each) for each in shuffled}) == 1


def test_what_only_sets_the_speed_is_not_part_of_it() -> None:
    plain = of(Plain(9))
    assert plain == of(Plain(9), num_workers=1, prefetch_factor=4, persistent_workers=True)
    assert plain == fingerprint(stoker.DataLoader(Plain(9), batch_size=4))
    assert plain == fingerprint(stoker.DataLoader(Plain(9), batch_size=4, num_workers=2, seed=3))


def test_ranks_of_a_node_have_an_answer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = of(Held())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert of(Held()) != alone


class Raising(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Hostile:
    """Raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __iter__ = __bool__ = __getitem__ = __repr__


class Slots:
    __slots__ = ("empty", "size")

    def __init__(self) -> None:
        self.size = 3


class Colour(enum.Enum):
    RED = 1


class BadText(str):
    def __str__(self) -> str:
        raise RuntimeError


deep: Any = []
for _ in range(5000):
    deep = [deep]

ODD: list[Any] = [  # made where they are used: pytest itself would ask them for something
    lambda: None,
    lambda: 3,
    lambda: Hostile(),
    lambda: Hostile,
    lambda: Raising("Odd", (), {})(),
    lambda: Slots(),
    lambda: Held(inside=Hostile(), **{"": Hostile()}),
    lambda: Held(**{"a\ud800": "\ud800"}),
    lambda: Held(text=BadText("x"), colour=Colour.RED),
    lambda: Held(deep=deep, many=[[]] * 10**6, wide={n: Hostile() for n in range(10_000)}),
    lambda: Held(tensor=torch.zeros(3, device="meta"), sparse=torch.eye(3).to_sparse()),
    lambda: Held(named=collections.namedtuple("Named", "a b")(1, 2), big=10**5000),
    lambda: Held(module=os, kind=type, built_in=len, view=memoryview(b"x"), gen=(x for x in ())),
]


@pytest.mark.parametrize("make", ODD)
def test_nothing_is_too_odd(make: Any) -> None:
    """Data sets and loaders alike: there is a digest, twice the same, and no exception."""
    odd = make()
    strange = SimpleNamespace(dataset=odd, batch_size=odd, collate_fn=odd, batch_sampler=odd)
    for each in (odd, strange):
        assert fingerprint(each) == fingerprint(each)
        assert len(fingerprint(each)) == 24


def test_no_sample_is_read_and_no_property_runs() -> None:
    class Touchy(Dataset[Any]):
        settings: Any = property(lambda self: pytest.fail("a property ran"))

        def __init__(self) -> None:
            self.size = 3

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            pytest.fail(f"asked for {name}")

        def __getitem__(self, index: int) -> Any:
            pytest.fail("a sample was read")

    held = SimpleNamespace(dataset=Touchy(), batch_size=4, collate_fn=None)
    assert fingerprint(held)


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.builds(torch.Size, st.lists(st.integers(0, 3), max_size=2))
)
SETTINGS = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner), max_leaves=4),
    max_size=3,
)


@given(SETTINGS, SETTINGS)
def test_settings_give_the_same_digest_if_and_only_if_they_are_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = repr(sorted(one.items())) == repr(sorted(other.items()))
    assert (of(Held(**one)) == of(Held(**other))) == same
    assert of(Held(**dict(reversed(one.items())))) == of(Held(**one))
