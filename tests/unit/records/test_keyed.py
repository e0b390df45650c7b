"""Packed dicts: the same keys are found as in the dict, in its order."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.errors import ArgumentTypeError, PackIsFixed
from tests.unit.records.kinds import Colour, Level, Pair, Text
from tests.unit.records.test_same import same

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e300, float("inf"), Fraction(1, 2), Decimal(2), Level.LOW])
    | st.text(st.characters(), max_size=3)
    | st.binary(max_size=3)
    | st.text(max_size=1).map(Text)
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.builds(Pair, inner, inner),
    max_leaves=3,
)


@given(st.dictionaries(KEYS, st.integers(), max_size=20), st.lists(KEYS, max_size=20))
def test_it_finds_what_the_dict_finds(records: dict[Any, int], others: list[Any]) -> None:
    for pack in (stoker.packed(records), pickle.loads(pickle.dumps(stoker.packed(records), 5))):
        assert len(pack) == len(records)
        assert same(list(pack.items()), list(records.items()))
        assert same(list(pack), list(records))
        for key in [*records, *others]:
            assert (key in pack) == (key in records)
            assert pack.get(key, "no") == records.get(key, "no")


@given(st.dictionaries(st.text(max_size=4), st.lists(st.floats(), max_size=2)))
def test_records_come_back_in_value_and_type(records: dict[str, Any]) -> None:
    pack = stoker.packed(records)
    assert same(list(pack.values()), list(records.values()))
    assert same([pack[key] for key in records], list(records.values()))


def test_it_acts_like_the_dict() -> None:
    records = {f"key {n}": {"n": n} for n in range(1000)}
    pack = stoker.packed(records)
    assert isinstance(pack, Mapping)
    assert pack == records
    assert records == pack
    assert pack == stoker.packed(records)
    assert pack != {**records, "key 5": 0}
    assert pack != {"other": 0}
    assert pack.keys() == records.keys()
    assert list(reversed(pack)) == list(reversed(records))
    assert list(reversed(pack.values())) == list(reversed(records.values()))
    assert list(reversed(pack.items())) == list(reversed(records.items()))
    assert {"n": 7} in pack.values()
    assert ("key 7", {"n": 7}) in pack.items()
    assert dict(pack) == records
    assert pack.packed_values()[10:12] == [{"n": 10}, {"n": 11}]
    with pytest.raises(KeyError) as caught:
        pack["none such"]
    assert caught.value.args == ("none such",)
    with pytest.raises(TypeError, match="unhashable"):
        pack[[1]]  # type: ignore[index]
    assert list(stoker.packed({}).items()) == []
    assert repr(pack).startswith("<packed dict: 1,000 records, ")


def test_keys_are_found_across_types_as_in_a_dict() -> None:
    pack: Any = stoker.packed({1: "one", "a": "text", (1, "a"): "both", None: "none"})
    for key in (1, 1.0, True, np.int8(1), Decimal(1), Level.LOW):
        assert pack[key] == "one"
    assert pack[np.str_("a")] == pack[Text("a")] == "text"
    assert pack[1.0, Text("a")] == pack[Pair(1, "a")] == "both"
    assert pack[None] == "none"
    for key in ("1", b"a", (1,), Colour.RED, frozenset()):
        assert key not in pack


def test_it_does_not_change() -> None:
    pack: Any = stoker.packed({"a": 1})
    with pytest.raises(PackIsFixed, match=r"dict\(packed\)"):
        pack["a"] = 2
    with pytest.raises(PackIsFixed):
        del pack["a"]
    with pytest.raises(AttributeError, match="'update'"):
        pack.update(a=2)
    assert copy.deepcopy(pack) is pack


@pytest.mark.parametrize("key", [Colour.RED, frozenset({1}), ("a", Colour.RED)])
def test_a_key_without_a_lasting_hash_is_refused(key: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"no hash that is the same in every process"):
        stoker.packed({"a": 1, key: 2})


def test_many_keys_are_few_to_a_bucket() -> None:
    pack = stoker.packed({f"images/{n:06d}.jpg": n for n in range(20_000)})
    starts, _ = pack._table.arrays
    assert int(np.diff(starts.astype(int)).max()) <= 12


def test_keys_are_found_by_a_process_with_another_seed_of_hashes() -> None:
    records = {("a", 1): 0, "b": 1, b"c": 2, None: 3, 0.5: 4}
    program = (
        "import pickle, sys; pack = pickle.load(sys.stdin.buffer);"
        "print([pack[key] for key in (('a', 1), 'b', b'c', None, 0.5)])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(stoker.packed(records)),
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert said.stdout.split() == b"[0, 1, 2, 3, 4]".split()
