"""Batches are the same, bit for bit, whoever makes them and whenever they are done."""

from __future__ import annotations

import functools
import multiprocessing
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

import stoker
from tests.contract.alike import assert_same
from tests.contract.datasets import (
    Augmented,
    DrawingUnseen,
    InTurns,
    SwappingBits,
    collate_drawing,
)
from tests.contract.methods import (
    Tabled,
    every_process,
    fixed_batches,
    loader,
    many_workers,
    seeded_epochs,
    use_segments,
)
from tests.datasets import Batched, Drawing, DrawingFrom, Nested, Plain, draw_all

FORK = multiprocessing.get_context("fork")
SMALL, LARGE = (2, 3), (3, 80, 80)  # LARGE: 76,800 bytes a sample, which goes into a slot


def reference(dataset: Any, epochs: int = 1, **options: Any) -> list[list[Any]]:
    """The batches of some epochs made in this process."""
    return seeded_epochs(functools.partial(loader, dataset, "inline", **options), epochs)


@many_workers
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["pipe", "slots"])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
def test_batches_do_not_depend_on_num_workers(num_workers: int, shape: tuple[int, ...]) -> None:
    dataset = Augmented(43, shape)
    options = {"batch_size": 4, "shuffle": True, "collate_fn": collate_drawing}
    expected = reference(dataset, epochs=2, **options)
    make = functools.partial(loader, dataset, "fork", num_workers, **options)
    assert_same(seeded_epochs(make, epochs=2), expected)


@many_workers
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_numbers_that_only_collate_draws_do_not_depend_on_num_workers(num_workers: int) -> None:
    options = {"batch_size": 4, "collate_fn": collate_drawing}
    expected = reference(Plain(43), **options)[0]
    made = fixed_batches(Plain(43), "fork", num_workers=num_workers, **options)
    assert_same(made, expected)


@pytest.mark.parametrize(
    ("method", "segments"),
    [
        ("fork", "memfd"),
        ("fork", "named"),
        ("forkserver", "memfd"),
        ("forkserver", "named"),
        ("spawn", "memfd"),
    ],
)
def test_batches_do_not_depend_on_the_start_method_or_the_memory(
    method: str, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_segments(monkeypatch, segments)
    dataset = Augmented(20, LARGE)
    options = {"batch_size": 3, "shuffle": True, "collate_fn": collate_drawing}
    expected = reference(dataset, **options)[0]
    assert_same(fixed_batches(dataset, method, **options), expected)


@every_process
def test_small_batches_do_not_depend_on_the_start_method(method: str) -> None:
    dataset = Augmented(20, SMALL)
    options = {"batch_size": 3, "shuffle": True, "collate_fn": collate_drawing}
    expected = reference(dataset, **options)[0]
    assert_same(fixed_batches(dataset, method, **options), expected)


@many_workers
@pytest.mark.parametrize("num_workers", [2, 3, 4])
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["pipe", "slots"])
def test_batches_do_not_depend_on_the_order_they_finish_in(
    num_workers: int, shape: tuple[int, ...]
) -> None:
    options = {"batch_size": 2, "collate_fn": collate_drawing}
    expected = reference(InTurns(24, 2, 1, FORK, shape), **options)[0]
    for _ in range(3):
        backwards = InTurns(24, 2, num_workers, FORK, shape)
        made = fixed_batches(
            backwards, "fork", num_workers=num_workers, prefetch_factor=1, **options
        )
        assert_same(made, expected)


@pytest.mark.parametrize("length", [1, 3, 7, 8, 9, 17])
@pytest.mark.parametrize("first", [0, 1, 7, 8, 9, 16])
def test_a_dataset_that_begins_to_draw_late_is_the_same(length: int, first: int) -> None:
    dataset = DrawingFrom(length, first)
    expected = reference(dataset, batch_size=5)[0]
    assert_same(fixed_batches(dataset, "fork", batch_size=5), expected)


def test_late_draws_are_the_same_whatever_was_made_before_them() -> None:
    """The numbers of a sample do not depend on whether its batch was the first that drew."""
    dataset = DrawingFrom(40, 20)
    indices = list(range(40))
    forward = reference(dataset, batch_size=40, sampler=indices)[0][0]
    small = reference(dataset, batch_size=10, sampler=indices)[0]
    for column in (1, 2):
        joined = torch.cat([batch[column] for batch in small])
        assert_same(joined, forward[column])


@many_workers
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_draws_that_are_put_back_are_the_same(num_workers: int) -> None:
    """A guard like ``torch.random.fork_rng`` hides that a sample drew."""
    dataset = DrawingUnseen(30)
    expected = reference(dataset, batch_size=2)[0]
    assert_same(fixed_batches(dataset, "fork", num_workers=num_workers, batch_size=2), expected)


def test_a_swapped_numpy_generator_is_the_same() -> None:
    expected = reference(SwappingBits(9), batch_size=2)[0]
    assert_same(fixed_batches(SwappingBits(9), "fork", batch_size=2), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": None},
        {"batch_size": None, "shuffle": True},
        {"batch_sampler": [[3, 1], (2,), [0, 4, 5]]},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": 4, "sampler": [5, 5, 5, 2, 0, 5]},
    ],
    ids=["no batches", "no batches, shuffled", "batch_sampler", "drop_last", "repeats"],
)
def test_every_way_to_batch_is_the_same(options: dict[str, Any]) -> None:
    expected = reference(Drawing(10), epochs=2, **options)
    make = functools.partial(loader, Drawing(10), "fork", **options)
    assert_same(seeded_epochs(make, epochs=2), expected)


def test_a_dataset_that_reads_whole_batches_is_the_same() -> None:
    dataset = _DrawingBatches(13)
    options = {"batch_size": 4, "collate_fn": collate_drawing, "shuffle": True}
    expected = reference(dataset, **options)[0]
    assert_same(fixed_batches(dataset, "fork", **options), expected)


class _DrawingBatches(Batched):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self[index], draw_all()) for index in indices]


def test_nested_samples_are_the_same() -> None:
    expected = reference(Nested(13), batch_size=4)[0]
    assert_same(fixed_batches(Nested(13), "fork", batch_size=4), expected)


def test_torchs_batches_are_ours_where_nothing_is_random() -> None:
    expected = list(torch.utils.data.DataLoader(Nested(13), batch_size=4))
    assert_same(reference(Nested(13), batch_size=4)[0], expected)
    assert_same(fixed_batches(Nested(13), "fork", batch_size=4), expected)


def _collate_drawing_torch(samples: list[Any]) -> Any:
    return default_collate(samples), torch.rand(3)


@pytest.mark.parametrize(
    "collate", [None, _collate_drawing_torch, list], ids=["default", "drawing", "list"]
)
def test_collate_functions_are_the_same(collate: Any) -> None:
    expected = reference(Drawing(9), batch_size=4, collate_fn=collate)[0]
    assert_same(fixed_batches(Drawing(9), "fork", batch_size=4, collate_fn=collate), expected)


class _Marked:
    """A kind of sample that torch collates only when it is told how."""

    def __init__(self, index: int) -> None:
        self.index = index


def _marks(samples: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.tensor([x.index for x in samples]), draw_all()


def test_a_drawing_entry_of_torchs_collate_map_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(torch_collate.default_collate_fn_map, _Marked, _marks)
    dataset = Tabled(24, _Marked)
    expected = reference(dataset, batch_size=2)[0]
    assert_same(fixed_batches(dataset, "fork", batch_size=2), expected)
    numbers = [numbers[1] for _, numbers in expected]
    assert len(set(numbers)) == len(numbers)


@many_workers
@settings(max_examples=12)
@given(
    length=st.integers(0, 30),
    batch_size=st.integers(1, 9),
    num_workers=st.integers(1, 4),
    prefetch=st.integers(1, 4),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_batches_are_the_same_for_any_settings(
    length: int,
    batch_size: int,
    num_workers: int,
    prefetch: int,
    shuffle: bool,
    drop_last: bool,
    seed: int,
) -> None:
    if length == 0:
        shuffle = False  # torch refuses to shuffle nothing
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "shuffle": shuffle,
        "drop_last": drop_last,
        "collate_fn": collate_drawing,
        "seed": seed,
    }
    expected = list(stoker.DataLoader(Drawing(length), **options))
    with_workers = stoker.DataLoader(
        Drawing(length),
        num_workers=num_workers,
        prefetch_factor=prefetch,
        multiprocessing_context="fork",
        **options,
    )
    assert_same(list(with_workers), expected)
