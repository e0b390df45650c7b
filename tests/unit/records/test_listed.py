"""Packed lists: whatever pickles comes back as it was, and the pack acts like the list."""

from __future__ import annotations

import copy
import datetime
import decimal
import gc
import pickle
import random
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import ArgumentTypeError, NotPicklable, PackIsFixed
from stoker.records.blocks import Numbers, Pickles, Texts
from stoker.records.listed import PackedList
from stoker.records.writing import blocks_of
from tests.unit.records.kinds import Chameleon, Colour, Level, Outer, Pair, Row, Stubborn, Text
from tests.unit.records.test_same import same

SURROGATES = st.text(st.characters(), max_size=6)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | SURROGATES
    | st.binary(max_size=6)
    | st.complex_numbers()
    | st.datetimes()
    | st.sampled_from([Colour.RED, Level.LOW, Text("a"), Text(), 2**63, -(2**63) - 1, ...])
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Outer.Inner, inner)
        | st.builds(Row, st.text(max_size=3), st.lists(st.floats(), max_size=2))
    ),
    max_leaves=6,
)
LISTS = st.one_of(
    st.lists(NESTED, max_size=12),
    st.lists(SURROGATES, max_size=12),
    st.lists(st.binary(max_size=9), max_size=12),
    st.lists(st.integers(), max_size=12),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12),
    st.lists(st.integers(-128, 300), max_size=12),
    st.lists(st.floats(), max_size=12),
    st.lists(st.booleans(), max_size=12),
    # Runs of kinds, so that there are blocks of several.
    st.tuples(
        st.lists(st.text(max_size=3), max_size=70),
        st.lists(st.integers(), max_size=70),
        st.lists(st.floats(), max_size=3),
    ).map(lambda three: [*three[0], *three[1], *three[2]]),
)


def in_small_blocks(records: list[Any]) -> PackedList[Any]:
    return PackedList(blocks_of(records, str, block_bytes=40, run_bytes=10))


@given(LISTS)
def test_records_come_back_in_value_and_type(records: list[Any]) -> None:
    for pack in (stoker.packed(records), in_small_blocks(records)):
        assert len(pack) == len(records)
        assert same(list(pack), records)
        assert same([pack[at] for at in range(len(records))], records)
        assert same([pack[-at - 1] for at in range(len(records))], records[::-1])
        assert same(list(reversed(pack)), records[::-1])


@given(LISTS, st.slices(12), st.slices(12))
def test_slices_are_those_of_the_list_sent_or_not(
    records: list[Any], one: slice, two: slice
) -> None:
    pack = in_small_blocks(records)
    for view in (pack[one], pickle.loads(pickle.dumps(pack[one])), in_small_blocks(records[one])):
        assert same(list(view), records[one])
        assert same(list(view[two]), records[one][two])


@given(LISTS, st.integers(2, 5))
def test_a_pack_that_was_sent_is_the_same(records: list[Any], protocol: int) -> None:
    for pack in (stoker.packed(records), in_small_blocks(records)):
        assert same(list(pickle.loads(pickle.dumps(pack, protocol))), records)


def test_buffers_are_handed_out_of_band() -> None:
    pack = stoker.packed([{"path": "x" * 80, "label": n} for n in range(1000)])
    buffers: list[pickle.PickleBuffer] = []
    envelope = pickle.dumps(pack, 5, buffer_callback=buffers.append)
    assert len(envelope) < 1000
    assert sum(buffer.raw().nbytes for buffer in buffers) == pack.nbytes
    assert pickle.loads(envelope, buffers=buffers) == pack


def test_it_acts_like_the_list() -> None:
    records = [{"label": n % 7} for n in range(20)]
    pack = stoker.packed(records)
    assert isinstance(pack, Sequence)
    assert pack == records
    assert records == pack
    assert pack == stoker.packed(records)
    assert pack != records[1:]
    assert pack != records[::-1]
    assert records[3] in pack
    assert {"label": 8} not in pack
    assert pack.index({"label": 3}) == 3
    assert pack.count({"label": 3}) == 3
    assert pack[np.int64(4)] == records[4]
    assert random.Random(0).sample(pack, 5) == random.Random(0).sample(records, 5)
    for index in (20, -21):
        with pytest.raises(IndexError, match="out of range"):
            pack[index]
    with pytest.raises(TypeError, match="must be integers or slices, not str"):
        pack["label"]  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unhashable"):
        hash(pack)
    assert repr(pack).startswith("<packed list: 20 records, ")


def test_an_item_is_a_new_object_each_time() -> None:
    shared = [0]
    pack = stoker.packed([{"box": shared}, {"box": shared}])
    pack[0]["box"].append(1)
    assert list(pack) == [{"box": [0]}, {"box": [0]}]
    assert pack[0]["box"] is not pack[1]["box"]


def test_within_a_record_what_is_one_object_stays_one() -> None:
    loop: list[Any] = [[1]]
    loop += [loop[0], loop]
    back = stoker.packed([loop])[0]
    assert back[0] is back[1]
    assert back[2] is back


def test_it_does_not_change() -> None:
    pack: Any = stoker.packed([1, 2])
    with pytest.raises(PackIsFixed, match=r"list\(packed\)"):
        pack[0] = 3
    with pytest.raises(TypeError, match=r"list\(packed\)"):
        del pack[0]
    with pytest.raises(AttributeError, match=r"no attribute 'append'.*list\(packed\)"):
        pack.append(3)
    assert not hasattr(pack, "__getitems__")
    assert copy.copy(pack) is copy.deepcopy(pack) is stoker.packed(pack) is pack


def test_whatever_iterable_is_packed_once() -> None:
    assert stoker.packed(str(n) for n in range(40_000)) == [str(n) for n in range(40_000)]
    assert stoker.packed((1, 2)) == (1, 2)
    assert stoker.packed(range(3)) == [0, 1, 2]
    assert list(stoker.packed([])) == []


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("abc", "is one record"),
        (np.zeros(3), "one flat buffer already"),
        ({1, 2}, r"packed\(sorted\(records\)\)"),
        (7, r"packed\(data\[i\] for i in range\(len\(data\)\)\)"),
    ],
)
def test_what_is_no_list_of_records_is_refused(wrong: Any, advice: str) -> None:
    with pytest.raises(ArgumentTypeError, match=advice):
        stoker.packed(wrong)


def test_records_of_further_kinds() -> None:
    records: list[Any] = [
        *(
            np.arange(5, dtype=np.int16),
            np.zeros((2, 0)),
            np.float32(0.1),
            np.datetime64("2024-01-01"),
        ),
        *(b"x" * 200_000, ["y" * 70_000, b"z" * 70_000], bytearray(b"w"), frozenset({1})),
        *(decimal.Decimal("1.10"), datetime.timezone.utc, PurePosixPath("a/b"), range(3), len, Row),
        *(OrderedDict(a=1), defaultdict(list, a=[1]), slice(1, 2), 10**400),
    ]
    assert same(list(stoker.packed(records)), records)
    for record in records:
        assert same(list(stoker.packed([record] * 3)), [record] * 3)
    array = stoker.packed([np.zeros(3)])[0]
    array[0] = 1  # Is the caller's own, and may be written to.


def test_a_nan_keeps_its_bits() -> None:
    odd = np.array([0x7FF8_0000_0000_0123], np.uint64).view(np.float64)[0].item()
    assert same(list(stoker.packed([odd, -odd])), [odd, -odd])
    assert same(list(stoker.packed([[odd], [-odd]])), [[odd], [-odd]])


def test_a_record_that_does_not_pickle_is_named_with_its_field() -> None:
    with open(__file__) as file:
        records = [{"meta": [1, 2]} for _ in range(300)]
        records[211] = {"meta": [1, file]}  # type: ignore[list-item]
        with pytest.raises(
            NotPicklable, match=r"records\[211\]\['meta'\]\[1\] is a _io.TextIOWrapper"
        ):
            stoker.packed(records)
        with pytest.raises(NotPicklable, match=r"records\['b'\]\[0\] is a _io.TextIOWrapper"):
            stoker.packed({"a": [1], "b": [file]})


@pytest.mark.parametrize("record", [Stubborn(1, 2), Chameleon()], ids=["stubborn", "chameleon"])
def test_a_record_that_does_not_come_back_is_an_error_at_once(record: Any) -> None:
    with pytest.raises(NotPicklable, match=r"records\[0\]"):
        stoker.packed([record])


def test_an_error_of_the_iterable_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        stoker.packed(1 // n for n in (1, 0))


def test_blocks_are_of_the_narrowest_kind() -> None:
    def kinds(records: list[Any]) -> list[type]:
        return [type(block) for block in blocks_of(records, str)]

    assert kinds(["a"] * 100_000) == [Texts]
    assert kinds([5] * 100) == kinds([False] * 9) == [Numbers]
    assert kinds([5, 5.0]) == [Pickles]
    assert kinds([2**63]) == [Pickles]
    assert stoker.packed([200] * 1000).nbytes == 2000
    assert stoker.packed([True] * 1000).nbytes == 1000


def test_the_collector_has_nothing_to_look_at() -> None:
    gc.collect()
    before = len(gc.get_objects())
    pack = stoker.packed({"label": n} for n in range(20_000))
    assert len(gc.get_objects()) < before + 100
    assert pack[19_999] == {"label": 19_999}
