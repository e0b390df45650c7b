"""What a worker without torch puts together is what torch would have."""

from __future__ import annotations

import struct
from collections import namedtuple
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.utils.data import default_collate, default_convert

from stoker.transport import layout
from stoker.transport.columns import Column
from stoker.transport.layout import Packing, unpack
from stoker.workers import lean
from stoker.workers.lean import Lean, may_be_lean

Pair = namedtuple("Pair", "first second")
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
INTS = st.integers(-(2**63), 2**63 - 1)
KINDS = (INTS, FLOATS, st.booleans(), st.text(max_size=3), st.binary(max_size=3))
ODD = (st.none(), st.integers(2**63, 2**65), st.complex_numbers(), st.just(Pair(1, 2.0)))


def nested(leaves: Any) -> Any:
    """Strategies of samples: each draws one kind of structure for all samples of a batch."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: st.tuples(*parts)),
            st.lists(inner, max_size=3).map(lambda parts: st.tuples(*parts).map(list)),
            st.dictionaries(st.sampled_from(["a", "b", 3]), inner, max_size=3).map(
                st.fixed_dictionaries
            ),
        ),
        max_leaves=6,
    )


ALIKE = nested(st.sampled_from(KINDS)).flatmap(lambda kind: st.lists(kind, min_size=1, max_size=4))
MIXED = st.lists(
    nested(st.sampled_from((*KINDS, *ODD))).flatmap(lambda kind: kind), min_size=1, max_size=3
)


def seen(thing: Any) -> Any:
    """All there is to see of a batch, comparable."""
    if isinstance(thing, torch.Tensor):
        return (thing.dtype, tuple(thing.shape), thing.numpy().tobytes(), thing.stride())
    if isinstance(thing, dict):
        return dict, [(key, seen(value)) for key, value in thing.items()]
    if isinstance(thing, (list, tuple)):
        return type(thing), [seen(each) for each in thing]
    if isinstance(thing, float):
        return struct.pack("d", thing)
    return type(thing), repr(thing)


def outcome(make: Any, batch: Any) -> Any:
    try:
        return seen(make(batch))
    except Exception as error:
        return type(error), str(error)


def crossed(name: str) -> Any:
    """The function as a worker without torch has it, and its batch as it arrives."""

    def make(batch: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lean, "is_here", lambda _: False)
            made = Lean(name)(batch)
            if "Column" in repr(type(made)) or not isinstance(made, torch.Tensor):
                patch.setattr(layout, "is_here", lambda _: _has_tensors(made))
            packing = Packing(made, None, 0)
        memory = bytearray(packing.end)
        if packing.placed:
            packing.write(memory, same_slot=False)
        return unpack(packing.envelope(bytes(memory)), memory, copy=True)

    return make


def _has_tensors(made: Any) -> bool:
    inside = made.values() if isinstance(made, dict) else made
    if isinstance(made, (dict, list, tuple)):
        return any(map(_has_tensors, inside))
    return isinstance(made, torch.Tensor)


@settings(max_examples=150, deadline=None)
@given(ALIKE | MIXED)
def test_a_batch_is_what_default_collate_makes(batch: list[Any]) -> None:
    assert outcome(crossed("default_collate"), batch) == outcome(default_collate, batch)


@settings(max_examples=80, deadline=None)
@given(MIXED)
def test_a_sample_is_what_default_convert_makes(batch: list[Any]) -> None:
    for sample in batch:
        assert outcome(crossed("default_convert"), sample) == outcome(default_convert, sample)


def test_plain_samples_need_no_torch() -> None:
    batch = [{"x": (i, 0.5), "y": [True, "a"]} for i in range(3)]
    made = lean._collate(batch)
    assert type(made["x"][0]) is type(made["x"][1]) is type(made["y"][0]) is Column
    assert made["y"][1] == ("a", "a", "a")


def test_a_column_is_a_tensor_also_for_a_pickler_that_does_not_know_it() -> None:
    packing = Packing([Column([1, 2], int)], None, 0)
    [tensor] = unpack(packing.envelope(b""), b"", copy=True)
    assert seen(tensor) == seen(torch.tensor([1, 2]))


def test_a_column_counts_as_the_tensor_would(monkeypatch: pytest.MonkeyPatch) -> None:
    by_torch = Packing(torch.arange(100), None, 0).size_bytes
    monkeypatch.setattr(layout, "is_here", lambda _: False)
    assert Packing(Column(range(100), int), None, 0).size_bytes == by_torch == 800


@pytest.mark.parametrize(
    ("samples", "lean"),
    [
        ([1, 2], True),
        ([0.5, 1.5], True),
        ([(1, "a"), (2, "b")], True),
        ([{"x": True}, {"x": False}], True),
        ([torch.zeros(2), torch.zeros(2)], False),
        ([{"x": (1, np.float32(2))}, {"x": (1, np.float32(2))}], False),
    ],
)
def test_a_batch_tells_whether_torch_was_needed(samples: Any, lean: bool) -> None:
    assert may_be_lean(default_collate(samples)) is lean
