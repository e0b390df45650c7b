"""Public cases of groups C and G: memory of workers that grows, and memory that does not."""

from __future__ import annotations

import logging
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from stoker.host.facts import Fact
from stoker.host.memory import MemoryFacts
from stoker.tuning import memory_watch
from stoker.tuning.growth import WorkerMemory
from stoker.workers import growth
from tests.contract.methods import Tabled, loader

MIB = 1 << 20
RECORDS = 300_000


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked workers look after every batch, and there are 256 MiB of memory."""
    for name in ("_FIRST_S", "_LONGEST_S", "_COST_AT_FIRST", "_COST_IN_THE_END"):
        monkeypatch.setattr(growth, name, 0.0)
    available = Fact(256 * MIB, "what a test has set")
    facts = MemoryFacts(available, available, Fact(None, "no cgroup limits memory"))
    monkeypatch.setattr(memory_watch, "memory_facts", lambda: facts)


class Records:
    """Sample i is made of a record; `samples` is a list of dicts."""

    def __init__(self) -> None:
        self.samples = [
            {"path": f"/data/train/{number:09}.jpg", "label": number} for number in range(RECORDS)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        record = self.samples[index]
        return record["label"] + len(record["path"])


class Arrays:
    """The same labels; `samples` is an array."""

    def __init__(self) -> None:
        self.samples = np.arange(RECORDS)
        self.paths = np.array([b"/data/train/000000000.jpg"] * RECORDS)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Caching:
    """Keeps what it has read: in a dict, or in a list that has all its places at once."""

    def __init__(self, length: int, *, places: bool) -> None:
        self.length = length
        self.cache: Any = [None] * length if places else {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.cache[index] = torch.ones(1 << 17)
        return index


class CachingStream(IterableDataset[Any]):
    """An iterable data set that keeps what it has yielded."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __iter__(self) -> Any:
        for number in range(400):
            self.seen.append(np.ones(1 << 16))
            yield number


def read(made: Any) -> WorkerMemory:
    """An epoch is read; what is known then."""
    for _ in made:
        pass
    told = made.statistics().worker_memory
    assert isinstance(told, WorkerMemory)
    return told


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "stoker" and record.levelno >= logging.WARNING
    ]


def test_c057_a_list_that_workers_copy_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """As reported: memory rises during an epoch, since reading Python objects writes to them."""
    made = loader(Records(), "fork", batch_size=10_000, shuffle=True, seed=3)
    told = read(made)
    assert told.workers == 2
    assert told.grown_bytes > 64 * MIB
    assert told.private_bytes >= told.start_bytes + told.grown_bytes
    assert told.peak_bytes >= told.private_bytes
    assert told.growth_likely.startswith("dataset.samples: list of dict, 300,000 elements, about ")
    assert "stoker.packed(...)" in told.growth_change
    assert "dataset.samples" in str(made.statistics())
    [text] = warnings_of(caplog)
    assert text.startswith("the private memory of 2 workers has grown by ")
    assert "what a test has set" in text
    read(made)
    assert len(warnings_of(caplog)) == 1


def test_c059_arrays_do_not_grow(caplog: pytest.LogCaptureFixture) -> None:
    """The control of the same report: numpy arrays are read without being written to."""
    made = loader(Arrays(), "fork", batch_size=10_000, shuffle=True, seed=3)
    told = read(made)
    assert told.grown_bytes < 16 * MIB
    assert "dataset." not in told.growth_likely
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("places", [True, False], ids=["list of places", "dict"])
def test_c061_a_cache_of_each_worker_is_named(
    places: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As reported: a cache that fills while the loader runs, once in each worker."""
    dataset = Caching(400, places=places)
    told = read(loader(dataset, "fork", batch_size=20))
    assert told.grown_bytes > 150 * MIB
    assert told.growth_likely.startswith(
        "dataset.cache (list): its 400 elements have grown, by about "
        if places
        else "dataset.cache (dict): it has grown from 20 to "
    )
    [text] = warnings_of(caplog)
    assert "lru_cache(maxsize=...)" in text


def test_c061_a_cache_in_a_fresh_worker_is_named() -> None:
    """Which looks after 0.25 s, and then ever more seldom."""
    made = loader(Caching(100_000, places=False), "spawn", 1, batch_size=8)
    likely = ""
    for _ in made:
        told = made.statistics().worker_memory
        if told is not None and (likely := told.growth_likely):
            break
    assert likely.startswith("dataset.cache (dict): it has grown from 8 to ")


def test_c026_growth_is_told_before_memory_is_used_up(caplog: pytest.LogCaptureFixture) -> None:
    """While it would come to more than there is only by the end of the epoch."""
    batches = loader(Caching(4000, places=False), "fork", batch_size=20)
    before = sum(1 for _ in takewhile(lambda _: not warnings_of(caplog), batches))
    assert before < 199
    [text] = warnings_of(caplog)
    assert "at that rate this epoch adds " in text


def test_what_an_iterable_keeps_is_named() -> None:
    told = read(loader(CachingStream(), "fork", batch_size=20))
    assert told.growth_likely.startswith("dataset.seen (list): it has grown from 20 to ")


def test_buffers_that_workers_fill_once_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    def sample(index: int) -> int:
        if index == 20:
            held.append(bytearray(72 * MIB))
        return index

    held: list[Any] = []
    told = read(loader(Tabled(400, sample), "fork", 1, batch_size=10))
    assert told.grown_bytes > 68 * MIB
    assert told.growing is False
    assert told.to_come_bytes == 0
    assert warnings_of(caplog) == []
