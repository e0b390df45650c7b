"""Ways into objects, and what in a batch can't be built again."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from stoker.transport.fields import Step, fields_of, innermost, samples_at
from stoker.transport.layout import Packing, unpack
from stoker.transport.unbuilt import Unbuilt

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Meta:
    lock: Any
    name: str = "a"


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Keeping(list[Any]):
    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.thing = thing


class Constructed:
    """Says itself what it is made from."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __reduce__(self) -> Any:
        return Constructed, (self.handle,)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("batch", "path"),
    [
        (LOCK, "batch"),
        ({"meta": [0, 1, 2, Meta(LOCK)]}, "batch['meta'][3].lock"),
        ([1, (2, LOCK)], "batch[1][1]"),
        (Point(1, LOCK), "batch.y"),
        (Slotted({"a": LOCK}), "batch.inner['a']"),
        (Keeping(LOCK), "batch.thing"),
        (Constructed(LOCK), "batch.handle"),
        (OrderedDict(a=LOCK), "batch['a']"),
        (deque([1, LOCK]), "batch[1]"),
        (functools.partial(print, LOCK, end=1), "batch.args[0]"),
        (Meta(LOCK).__init__, "batch.__self__.lock"),  # type: ignore[misc]
        ({LOCK}, f"batch.{{{LOCK!r}}}"),
        ({LOCK: 1}, f"batch.keys({LOCK!r})"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_the_way_to_a_lock_is_told_as_python_writes_it(batch: Any, path: str) -> None:
    def fits(thing: object) -> bool:
        try:
            Packing(thing, None, 0)
        except TypeError:
            return True
        return False

    found = innermost(batch, "batch", fits)
    assert found.path == path
    assert found.thing is LOCK


def test_a_ring_of_objects_has_an_end() -> None:
    ring: list[Any] = [1]
    ring.append({"back": ring})
    assert innermost(ring, "ring", lambda _: True).path.startswith("ring")
    assert innermost(ring, "ring", lambda thing: isinstance(thing, (list, dict))).path == "ring"


def test_looking_has_an_end() -> None:
    asked = 0

    def fits(_: object) -> bool:
        nonlocal asked
        asked += 1
        return False

    assert innermost([0] * 10**6, "batch", fits).path == "batch"
    assert asked <= 20_000


def test_plain_values_have_nothing_inside() -> None:
    for plain in (1, "text", b"b", None, print, int, 2.5):
        assert list(fields_of(plain)) == []


@pytest.mark.parametrize(
    ("steps", "indices", "samples"),
    [
        ((Step("[3]", 3, 4), Step(".lock")), [7, 8, 9, 10], [10]),
        ((Step("['meta']"), Step("[1]", 1, 4)), [7, 8, 9, 10], [8]),
        ((Step("[1]", 1, 2), Step("[0]", 0, 4)), [7, 8, 9, 10], [7]),
        ((Step("[1]", 1, 2), Step("[0]", 0, 2)), [7, 8], [8, 7]),
        ((Step(".lock"),), [7, 8], []),
        ((), 5, [5]),
    ],
)
def test_a_place_in_a_sequence_as_long_as_the_batch_is_a_sample(
    steps: tuple[Step, ...], indices: Any, samples: list[int]
) -> None:
    assert samples_at(steps, indices) == samples


class Raising:
    """Fails in one way or another while it is built again."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __reduce__(self) -> Any:
        if self.way == "calling":
            return _fail, ("called",)
        if self.way == "no class":
            return _a_name_that_is_gone, ()
        if self.way == "stop":
            return _stop, ()
        return Raising, (self.way,), {"way": self.way}

    def __setstate__(self, state: Any) -> None:
        if self.way != "fine":
            raise ValueError("no state")


class _Gone:
    """Pickles as a global that nobody has."""

    def __call__(self) -> None: ...

    def __reduce__(self) -> str:
        return "_a_name_that_is_gone"


_a_name_that_is_gone = _Gone()


class New:
    def __new__(cls, *args: Any) -> Any:
        if not args:
            raise ValueError("needs an argument")
        return super().__new__(cls)


class Unhashable:
    def __init__(self) -> None:
        self.ready = True

    def __hash__(self) -> int:
        return hash(self.ready)  # Not there yet when pickle puts it into a set.

    def __eq__(self, other: object) -> bool:
        return self is other


class NoExtend(list[Any]):
    def extend(self, _: Any) -> None:
        raise ValueError("closed")


def _fail(text: str) -> None:
    raise ValueError(text)


def _stop() -> None:
    raise StopIteration


def crossed(batch: Any) -> Any:
    packing = Packing(batch, None, 0)
    memory = bytearray(max(1, packing.end))
    packing.write(memory, same_slot=False)
    return unpack(packing.envelope(None), memory)


@pytest.mark.parametrize("way", ["calling", "state", "stop"])
@pytest.mark.parametrize(
    ("around", "path"),
    [
        (lambda x: x, "batch"),
        (lambda x: {"meta": [0, Meta(x)]}, "batch['meta'][1].lock"),
        (lambda x: (torch.zeros(3), np.zeros(9), [x, x]), "batch[2][0]"),
        (lambda x: Point(Slotted(x), 1), "batch.x.inner"),
    ],
    ids=["itself", "dataclass", "beside tensors", "tuples"],
)
def test_what_fails_to_be_built_is_found(way: str, around: Any, path: str) -> None:
    with pytest.raises(Unbuilt) as caught:
        crossed(around(Raising(way)))
    assert caught.value.path == path
    assert caught.value.kind.rsplit(".", 1)[1] in ("Raising", "_fail", "_stop")
    assert isinstance(caught.value.__cause__, (ValueError, StopIteration))


@pytest.mark.parametrize(
    ("thing", "kind"), [(New("a"), "New"), (NoExtend([1, 2]), "NoExtend")], ids=["new", "extend"]
)
def test_every_step_of_building_may_fail(thing: Any, kind: str) -> None:
    with pytest.raises(Unbuilt) as caught:
        crossed({"a": [thing, 3]})
    assert caught.value.path == "batch['a'][0]"
    assert caught.value.kind.endswith(kind)


def test_a_set_that_can_not_be_filled_is_told() -> None:
    thing = Unhashable()
    thing.friends = {thing}  # type: ignore[attr-defined]
    with pytest.raises(Unbuilt) as caught:
        crossed([thing])
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_class_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = Packing([1, Raising("no class")], None, 0)
    envelope = packing.envelope(None)
    monkeypatch.delitem(globals(), "_a_name_that_is_gone")
    with pytest.raises(Unbuilt) as caught:
        unpack(envelope, bytearray(1))
    assert caught.value.path == "batch[1]"
    assert caught.value.kind.endswith("_a_name_that_is_gone")


def test_a_batch_that_can_be_built_is_the_same_as_before() -> None:
    batch = crossed({"a": [Raising("fine"), torch.arange(3)]})
    assert batch["a"][1].tolist() == [0, 1, 2]
