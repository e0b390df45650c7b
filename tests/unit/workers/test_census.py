"""What a data set holds, as it is found without running its code."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from stoker.workers.census import Holding, census
from stoker.workers.growth import GrowthWatch, ranked, suspected
from stoker.workers.looks import Look, Suspect

KEPT: dict[int, Any] = {}
MIB = 1 << 20


class Holds:
    """Any attributes."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __getitem__(self, index: int) -> Any:
        return KEPT[index]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: its code was run")


class Slotted:
    __slots__ = ("nothing", "words")

    def __init__(self) -> None:
        self.words = [str(number) for number in range(1000)]


class Caches:
    @functools.cache  # noqa: B019 that is what it is about
    def read(self, index: int) -> Any:
        return index


def found(**roots: Any) -> dict[str, Holding]:
    return census(roots).holdings


def test_records_are_counted_and_weighed() -> None:
    records = [{"path": f"/data/{number:09}.jpg", "label": number} for number in range(50_000)]
    seen = found(dataset=Holds(samples=records))["dataset.samples"]
    assert (seen.kind, seen.of, seen.count) == ("list", "dict", 50_000)
    # A dict, a string and a number each; small numbers and the names are everybody's.
    assert 145_000 < seen.objects < 160_000
    assert 10 * MIB < seen.object_bytes < 25 * MIB
    assert seen.array_bytes == 0


@pytest.mark.parametrize(
    "thing",
    [np.zeros(1 << 20), torch.zeros(1 << 20), range(1 << 30), b"x" * MIB, "x" * MIB],
    ids=["array", "tensor", "range", "bytes", "str"],
)
def test_what_is_read_as_it_is_has_no_objects(thing: Any) -> None:
    assert sum(each.object_bytes for each in found(dataset=Holds(thing=thing)).values()) < 1000


def test_tensors_in_a_list_weigh_as_arrays() -> None:
    seen = found(dataset=Holds(cache=[None] * 10 + [torch.zeros(1 << 18) for _ in range(10)]))
    assert seen["dataset.cache"].array_bytes == 10 * MIB
    assert seen["dataset.cache"].object_bytes < 10_000


def test_paths_lead_through_what_wraps_a_data_set() -> None:
    words = [str(number) for number in range(1000)]
    inner = Holds(parts={"train": words}, array=np.array(words, dtype=object))

    def collate(batch: Any) -> Any:
        return words[0], batch

    roots = {
        "dataset": Subset(inner, list(range(1000))),  # type: ignore[arg-type]
        "collate_fn": functools.partial(collate, option=[1.5] * 100),
        "slotted": Slotted(),
    }
    seen = census(roots)
    assert seen.is_whole
    counts = {path: holding.count for path, holding in seen.holdings.items()}
    assert counts["dataset.indices"] == 1000
    assert counts["dataset.dataset.array"] == 1000
    assert counts["slotted.words"] == 1000
    assert counts["collate_fn.keywords['option']"] == 100
    # The nearest of two ways to one list.
    assert counts["collate_fn.func.words"] == 1000
    assert "dataset.dataset.parts['train']" not in counts


def test_what_methods_keep_outside_is_found() -> None:
    KEPT.update({number: str(number) for number in range(100)})
    caches = Caches()
    for number in range(50):
        caches.read(number)
    try:
        seen = found(dataset=Holds(), other=caches)
        assert seen[f"{__name__}.KEPT"].count == 100
        assert seen["other.read"].count == 50
        assert seen["other.read"].kind == "cache of a function"
    finally:
        KEPT.clear()
        Caches.read.cache_clear()


def test_circles_and_depths_end() -> None:
    around: list[Any] = [1]
    around.append(around)
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    wide = {f"key {number}": [number] for number in range(100_000)}
    seen = census({"dataset": Holds(around=around, deep=deep, wide=wide, lock=threading.Lock())})
    assert seen.holdings["dataset.wide"].count == 100_000
    assert census({"dataset": TensorDataset(torch.zeros(3))}).is_whole


def test_a_container_that_changes_ends_it_early() -> None:
    class Odd(dict[str, int]):
        def items(self) -> Any:
            raise AssertionError("its code was run")

    assert found(dataset=Holds(odd=Odd(a=1)))["dataset.odd"].count == 1


def holding(count: int, objects: int = 0, arrays: int = 0, kind: str = "dict") -> Holding:
    return Holding("dataset.it", kind, "str", count, objects // 50, objects, arrays)


@pytest.mark.parametrize(
    ("before", "now", "forked", "how"),
    [
        (holding(5, 100 * MIB), holding(5, 100 * MIB), True, "copied"),
        (holding(5, 100 * MIB), holding(5, 100 * MIB), False, None),
        (holding(5, arrays=100 * MIB), holding(5, arrays=100 * MIB), True, None),
        (holding(0), holding(12_000, 40 * MIB), False, "grown"),
        (holding(0), holding(12_000, 40 * MIB), True, "grown"),
        (None, holding(12_000, arrays=40 * MIB), True, "grown"),
        # A cache that was there from the start, of nothing: MONAI has such.
        (holding(500, 4000, kind="list"), holding(500, 9000, 90 * MIB, "list"), False, "grown"),
        (holding(0), holding(100, 5000), True, None),
        (holding(0, kind="cache of a function"), holding(90, 0, 0, "cache of a function"),
         False, "grown"),
    ],
)  # fmt: skip
def test_who_is_suspected(before: Any, now: Holding, forked: bool, how: str | None) -> None:
    suspect = suspected(before, now, forked=forked)
    told = None if suspect is None else "grown" if suspect.has_grown else "copied"
    assert told == how


def test_the_likeliest_explains_most_of_the_growth() -> None:
    copied = Suspect("dataset.samples", "list", "dict", 9, 9, 1000 * MIB, False)
    reads = Suspect("dataset.reads", "list", "int", 9, 0, 2 * MIB, True)
    cache = Suspect("dataset.cache", "dict", "bytes", 9, 0, 300 * MIB, True)
    assert ranked([copied, reads], 100 * MIB)[0] == copied
    assert ranked([copied, cache], 250 * MIB)[0] == cache


def looks(watch_over: Any, batches: int, *, forked: bool, each: Any = lambda: None) -> list[Look]:
    """What is told when it looks after every batch."""
    told: list[Look] = []
    watch = GrowthWatch(
        {"dataset": watch_over}, forked=forked, tell=lambda what: told.append(what["look"])
    )
    for _ in range(batches):
        each()
        watch._look_at = 0.0
        watch.made()
    return told


def test_a_cache_that_grows_is_told_with_its_numbers() -> None:
    dataset = Holds(cache={})
    told = looks(
        dataset,
        4,
        forked=False,
        each=lambda: dataset.cache.update({len(dataset.cache): bytearray(16 * MIB)}),
    )
    assert [look.batches for look in told] == [1, 2, 3, 4]
    assert told[-1].private_bytes - told[0].private_bytes > 40 * MIB
    [suspect] = told[-1].suspects
    assert (suspect.path, suspect.before, suspect.elements) == ("dataset.cache", 1, 4)


def test_looks_are_seldom() -> None:
    told: list[Any] = []
    watch = GrowthWatch({"dataset": Holds()}, forked=False, tell=told.append)
    for _ in range(10_000):
        watch.made()
    assert 1 <= len(told) <= 4


def test_what_can_not_be_looked_at_is_left_alone() -> None:
    def fails(what: Any) -> None:
        raise OSError("no room")

    watch = GrowthWatch({"dataset": Holds()}, forked=False, tell=fails)
    for _ in range(3):
        watch.made()
    assert watch._look_at == float("inf")
