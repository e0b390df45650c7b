"""What is seen of a change in a data set, and what nothing may come of."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from stoker.workers.likeness import likeness


class Data(Dataset[Any]):
    """A data set with the attributes it is given."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index

    def scaled(self, value: float) -> float:
        return value


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, value: float) -> float:
        return value * self.by


class Slotted:
    __slots__ = ("by", "never")

    def __init__(self, by: float) -> None:
        self.by = by


class ListLike(list[Any]):
    """A data set that is a list, with attributes."""


def closing_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def change_closure(data: Any) -> None:
    data.transform.__closure__[0].cell_contents = 2


def listed(epoch: int) -> ListLike:
    made = ListLike([1, 2])
    made.epoch = epoch  # type: ignore[attr-defined]
    return made


def twice(name: str, *values: Any) -> Callable[[Any], None]:
    """Sets an attribute several times: the last value may come to lie where the first was."""

    def change(data: Any) -> None:
        for value in values:
            setattr(data, name, type(value)(value))

    return change


Case = tuple[Callable[[], Any], Callable[[Any], Any]]
CHANGES: dict[str, Case] = {
    "an int": (lambda: Data(epoch=1), lambda d: setattr(d, "epoch", 2)),
    "a float": (lambda: Data(rate=0.5), lambda d: setattr(d, "rate", 0.25)),
    "a bool": (lambda: Data(train=1), lambda d: setattr(d, "train", True)),
    "a text": (lambda: Data(split="train"), lambda d: setattr(d, "split", "test")),
    "bytes": (lambda: Data(key=b"a"), lambda d: setattr(d, "key", b"b")),
    "to None": (lambda: Data(transform=Scale(1)), lambda d: setattr(d, "transform", None)),
    "from None": (lambda: Data(transform=None), lambda d: setattr(d, "transform", Scale(1))),
    "a new attribute": (lambda: Data(), lambda d: setattr(d, "epoch", 0)),
    "one attribute less": (lambda: Data(epoch=0), lambda d: delattr(d, "epoch")),
    "a nested attribute": (
        lambda: Data(a=Data(b=Data(c=1))),
        lambda d: setattr(d.a.b, "c", 2),
    ),
    "an equal transform in its place": (
        lambda: Data(transform=Scale(1)),
        lambda d: setattr(d, "transform", Scale(1)),
    ),
    "a transform's attribute": (
        lambda: Data(transform=Scale(1)),
        lambda d: setattr(d.transform, "by", 2),
    ),
    "in a list of transforms": (
        lambda: Data(transforms=[Scale(1), Scale(1), Scale(1)]),
        lambda d: setattr(d.transforms[1], "by", 2),
    ),
    "in a dict": (lambda: Data(table={"a": 1}), lambda d: d.table.update(a=2)),
    "the second of two dicts": (
        lambda: Data(one={"a": 1}, two={"a": 1}),
        lambda d: d.two.update(a=2),
    ),
    "in a list of dicts": (
        lambda: Data(table=[{"a": 1, "b": 1} for _ in range(6)]),
        lambda d: d.table[4].update(b=2),
    ),
    "the third of three objects": (
        lambda: Data(a=Data(x=1, y=2), b=Data(x=1, y=2), c=Data(x=1, y=2)),
        lambda d: setattr(d.c, "y", 3),
    ),
    "a longer list": (lambda: Data(files=["a"] * 500), lambda d: d.files.append("a")),
    "a list's end": (
        lambda: Data(files=["a"] * 500),
        lambda d: d.files.__setitem__(-1, "b"),
    ),
    "a larger set": (lambda: Data(seen={1, 2}), lambda d: d.seen.add(3)),
    "a tensor in place": (lambda: Data(table=torch.zeros(5)), lambda d: d.table.add_(1)),
    "another tensor": (
        lambda: Data(table=torch.zeros(5)),
        lambda d: setattr(d, "table", torch.zeros(5)),
    ),
    "a small array": (lambda: Data(table=np.zeros(9)), lambda d: d.table.__setitem__(4, 1)),
    "a large array": (lambda: Data(table=np.zeros(10**6)), lambda d: d.table.fill(1)),
    "a numpy number": (
        lambda: Data(epoch=np.float64(1)),
        lambda d: setattr(d, "epoch", np.float64(2)),
    ),
    "a closure": (lambda: Data(transform=closing_over(1)), change_closure),
    "what a closure holds": (
        lambda: Data(transform=closing_over(Scale(1))),
        lambda d: setattr(d.transform(), "by", 2),
    ),
    "a partial's argument": (
        lambda: Data(transform=functools.partial(pow, Scale(2))),
        lambda d: setattr(d.transform.args[0], "by", 3),
    ),
    "a partial's keyword": (
        lambda: Data(transform=functools.partial(pow, exp=2)),
        lambda d: d.transform.keywords.update(exp=3),
    ),
    "a method's owner": (
        lambda: Data(transform=Data(epoch=1).scaled),
        lambda d: setattr(d.transform.__self__, "epoch", 2),
    ),
    "inside a Subset": (
        lambda: Subset(Data(epoch=1), [0, 1]),
        lambda d: setattr(d.dataset, "epoch", 2),
    ),
    "a Subset's indices": (lambda: Subset(Data(), [0, 1]), lambda d: d.indices.append(2)),
    "inside a ConcatDataset": (
        lambda: ConcatDataset([Data(epoch=1), Data(epoch=1), Data(epoch=1)]),
        lambda d: setattr(d.datasets[2], "epoch", 2),
    ),
    "a list of data sets": (
        lambda: [Data(epoch=1), Data(epoch=1)],
        lambda d: setattr(d[1], "epoch", 2),
    ),
}
UNSEEN: dict[str, Case] = {
    "one of forty attributes": (
        lambda: Data(**{f"a{number}": number for number in range(40)}),
        lambda d: setattr(d, "a3", -1),
    ),
    "a slot": (lambda: Data(transform=Slotted(1)), lambda d: setattr(d.transform, "by", 2)),
    "an attribute of a list": (lambda: listed(1), lambda d: setattr(d, "epoch", 2)),
    "a large dict's entry": (
        lambda: Data(table=dict.fromkeys(range(100), 0)),
        lambda d: d.table.update({0: 1}),
    ),
}


def unchanged_beside_other_work(data: Any, work: Callable[[], Any]) -> bool:
    before = likeness(data)
    kept = work()
    after = likeness(data)
    del kept
    return bool(before == after)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    data = make()
    before = likeness(data)
    change(data)
    assert likeness(data) != before


@pytest.mark.parametrize("name", UNSEEN)
def test_a_change_is_seen_here_too(name: str) -> None:
    make, change = UNSEEN[name]
    data = make()
    before = likeness(data)
    change(data)
    after = likeness(data)
    # What differs is to be the change, not the numbers of objects that came and went.
    assert _plain_values(before) != _plain_values(after)


def _plain_values(seen: Any) -> list[Any]:
    """All but the numbers of objects, which are large."""
    if isinstance(seen, tuple):
        return [value for each in seen for value in _plain_values(each)]
    return [] if isinstance(seen, int) and seen > 1 << 30 else [seen]


def other_work() -> Any:
    """Takes and frees memory of many sizes, and keeps some."""
    pickle.dumps([Data(table={n: [n]}) for n in range(50)])
    kept = [((n, n), {n: n}, [n], Scale(n)) for n in range(400)]
    gc.collect()
    return kept


UNCHANGED: dict[str, Callable[[], Any]] = {
    **{f"before {name}": make for name, (make, _) in CHANGES.items()},
    "a function": lambda: Data(transform=other_work),
    "a class": lambda: Data(kind=Scale),
    "a module": lambda: Data(library=np, other=collections),
    "nan": lambda: Data(rate=float("nan")),
    "an enum": lambda: Data(mode=Mode.TRAIN),
    "a lock": lambda: Data(lock=threading.Lock()),
    "a generator": lambda: Data(numbers=(n for n in range(3))),
    "a builtin": lambda: Data(transform=len, other=[].append),
    "a weak reference": lambda: Data(other=weakref.ref(Mode)),
    "a torch generator": lambda: Data(generator=torch.Generator()),
    "a network": lambda: Data(net=torch.nn.Linear(2, 2)),
}


class Mode(enum.Enum):
    TRAIN = 1


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_did_not_change_is_alike(name: str) -> None:
    assert unchanged_beside_other_work(UNCHANGED[name](), other_work)


def recursive() -> Any:
    one, other = Data(), Data()
    one.other, other.other = other, one
    one.loop = [one]
    one.loop.append(one.loop)
    one.table = {"self": one}
    return one


def test_what_holds_itself_ends() -> None:
    data = recursive()
    assert unchanged_beside_other_work(data, other_work)
    before = likeness(data)
    data.other.epoch = 1
    assert likeness(data) != before


def nodes(seen: Any) -> int:
    return 1 + sum(map(nodes, seen)) if isinstance(seen, tuple) else 1


@pytest.mark.parametrize(
    "huge",
    [
        lambda: list(range(10**6)),
        lambda: {number: number for number in range(10**5)},
        lambda: [[[number] * 40 for number in range(40)] for _ in range(40)],
        lambda: [Data(x=Data(y=Data())) for _ in range(5000)],
        lambda: [functools.reduce(lambda held, _: [held] * 33, range(6), [])] * 33,
    ],
)
def test_little_of_what_is_huge_is_looked_at(huge: Callable[[], Any]) -> None:
    assert nodes(likeness(Data(held=huge()))) < 200_000


def nested(depth: int) -> Any:
    held: Any = None
    for _ in range(depth):
        held = [held]
    return held


def chained(depth: int) -> Any:
    held: Any = None
    for _ in range(depth):
        held = Data(next=held)
    return held


def test_a_mapped_file_is_not_read(tmp_path: Path) -> None:
    """It may have shrunk: to read beyond its end is a bus error, and ends the program."""
    path = tmp_path / "rows.bin"
    np.zeros(1 << 16, np.float32).tofile(path)
    rows = np.memmap(path, np.float32, "r")
    views = Data(rows=rows, part=rows[100:200], plain=np.asarray(rows).reshape(256, 256))
    before = likeness(views)
    os.truncate(path, 0)
    assert likeness(views) == before
    views.part = rows[200:300]
    assert likeness(views) != before
