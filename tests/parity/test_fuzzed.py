"""Whatever the constructor is given: it is taken as by torch, or refused by name, at once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler, TensorDataset

import stoker
from tests.contract.alike import differences
from tests.datasets import Stream
from tests.parity.calls import KINDS, outcome

TABLE = TensorDataset(torch.arange(7))
DATASETS: dict[str, Any] = {
    "table": TABLE,
    "list": [1, 2, 3],
    "empty": [],
    "stream": Stream(5),
    "nothing": None,
    "no length": type("NoLength", (), {"__getitem__": lambda self, index: index})(),
}


def first(samples: list[Any]) -> Any:
    return samples[0]


# What makes sense for some argument: also tried for the others.
AUTO = "auto"
SENSIBLE: dict[str, list[Any]] = {
    "batch_size": [1, 2, 100, None],
    "shuffle": [True, False, None, 1],
    "sampler": [[2, 0, 1], range(2), SequentialSampler([1, 2])],
    "batch_sampler": [[[0, 1], [2]], BatchSampler(SequentialSampler([1, 2]), 2, False)],
    "num_workers": [0, AUTO, np.int64(0), False],
    "collate_fn": [first, list],
    "pin_memory": [False],
    "drop_last": [True, False],
    "timeout": [0, 0.0, 5, np.float32(5)],
    "worker_init_fn": [None, print],
    "multiprocessing_context": [None, "fork", "spawn"],
    "generator": [None, torch.Generator()],
    "prefetch_factor": [None, 1, 3],
    "persistent_workers": [True, False],
    "pin_memory_device": ["", "cuda"],
    "in_order": [True, False, 0],
    "seed": [None, 3],
    "memory_limit": [None, "1GB", 10**9],
    "debug": [None, True, False],
    "max_restarts": [3, 0, np.int64(2)],
    "on_timeout": ["raise", "retry", "skip"],
    "on_error": ["raise", "skip", "replace", first],
    "max_errors": [None, 3, 0.1],
}
ODD: list[Any] = [
    *(-1, -5, 0.5, 1.5, float("nan"), float("inf"), 10**30, "", "x", "3", b"1", 3j, [], {}, {1: 2}),
    *((), object(), int, lambda: None, np.array([1, 2]), np.array(1), torch.tensor([1, 2])),
    *(torch.tensor(1), torch.device("cpu"), np.random.default_rng(0), iter([1]), Ellipsis, 3),
]
NEW = {"seed", "memory_limit", "debug", "max_restarts", "on_timeout", "on_error", "max_errors"}
FOR_WORKERS = {"prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(sorted(SENSIBLE)), max_size=3, unique=True))
    some = [value for values in SENSIBLE.values() for value in values]
    given: dict[str, Any] = {}
    for name in names:
        which = draw(st.integers(0, 3))
        pool = SENSIBLE[name] if which < 2 else ODD if which == 2 else some
        given[name] = pool[draw(st.integers(0, len(pool) - 1))]
    return draw(st.sampled_from(sorted(DATASETS))), given


def begin(made: Any) -> list[Any]:
    """Its first batches; the generator gives the same to both kinds."""
    generator = made.generator if isinstance(made.generator, torch.Generator) else None
    (generator or torch.default_generator).manual_seed(3)
    return list(itertools.islice(made, 3))


@settings(max_examples=400)
@given(calls())
def test_any_argument_is_taken_as_by_torch_or_refused_by_name(
    call: tuple[str, dict[str, Any]],
) -> None:
    dataset, given = call
    torchs = {name: value for name, value in given.items() if name not in NEW}
    if torchs.get("num_workers") is AUTO:
        del torchs["num_workers"]
    ours = outcome(lambda kind: kind(DATASETS[dataset], **given), KINDS["stoker"])
    stock = outcome(lambda kind: kind(DATASETS[dataset], **torchs), KINDS["torch"])
    if ours.error is not None:
        kind, text = ours.error
        assert kind in ("TypeError", "ValueError"), ours.error
        named = [name for name in (*given, "dataset") if name in text]
        assert named, ours.error
        return
    if stock.error is not None:  # What is for workers is taken where there may be none.
        assert given.get("num_workers", AUTO) is AUTO or given["num_workers"] == 0
        assert any(name in stock.error[1] for name in FOR_WORKERS), stock.error
        return
    if "on_error" in given:
        return  # A sample that raises may be let pass.
    count = given.get("num_workers", AUTO)
    if (count is not AUTO and count != 0) or given.get("timeout", 0) != 0:
        return  # Workers are for other tests.
    _compare_beginnings(ours.value, stock.value, given)


def _compare_beginnings(ours: Any, stock: Any, given: dict[str, Any]) -> None:
    if given.get("worker_init_fn") is not None and "num_workers" not in given:
        ours.num_workers = 0  # It would be worth a worker.
    mine, theirs = outcome(lambda _: begin(ours), None), outcome(lambda _: begin(stock), None)
    if theirs.error is not None:
        assert mine.error is not None, theirs.error
        return
    if mine.error is not None:
        assert "memory_limit" in given, mine.error
        assert "memory_limit is" in mine.error[1]
        return
    if given.get("seed") is None:
        assert not differences(mine.value, theirs.value)


@settings(max_examples=150)
@given(st.data())
def test_what_works_in_torch_is_taken(data: st.DataObject) -> None:
    """Nothing that makes sense is refused."""
    names = data.draw(st.lists(st.sampled_from(sorted(SENSIBLE)), max_size=4, unique=True))
    given = {name: data.draw(st.sampled_from(SENSIBLE[name])) for name in names}
    torchs = {name: value for name, value in given.items() if name not in NEW}
    if torchs.get("num_workers") is AUTO:
        del torchs["num_workers"]
    try:
        torch.utils.data.DataLoader(TABLE, **torchs)
    except (TypeError, ValueError):
        return
    if given.get("seed") is not None and given.get("generator") is not None:
        return
    if given.get("max_errors") is not None and given.get("on_error", "raise") == "raise":
        return
    stoker.DataLoader(TABLE, **given)


# Anything is true or false in torch; an array is not.
TRUTHY = {"shuffle", "pin_memory", "persistent_workers", "in_order"}
ARRAY = np.array([1, 2])


@pytest.mark.parametrize("name", sorted(SENSIBLE))
@pytest.mark.parametrize("value", [object(), 3j, ARRAY], ids=["object", "complex", "array"])
def test_nonsense_is_refused_with_its_name(name: str, value: Any) -> None:
    given = {"num_workers": 1, name: value}
    works = {"sampler", "batch_sampler"} if value is ARRAY else TRUTHY
    if name in works:
        stoker.DataLoader(TABLE, **given)
        return
    with pytest.raises((TypeError, ValueError), match=name):
        stoker.DataLoader(TABLE, **given)
