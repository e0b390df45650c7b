"""``memory_limit=``: what batches in flight take, whatever the number of workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker
from stoker.errors import ArgumentError, BatchTooLarge
from stoker.host.facts import Fact
from stoker.host.memory import MemoryFacts
from stoker.host.ranks import CpuShare
from stoker.tuning import account
from tests.contract.methods import answers, many_workers
from tests.contract.test_resizing import all_come_up
from tests.datasets import Plain

FORK = multiprocessing.get_context("fork")
SHAPE = (64, 1024)
BATCH_BYTES = 2 * 64 * 1024 * 4
"""Two samples. A multiple of what slots are rounded to, so that a slot is as large as a batch."""
BATCHES = 20

COUNTS: tuple[Any, ...] = (0, 1, 2, "auto")
every_count = pytest.mark.parametrize("num_workers", COUNTS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors as large as these would be filled by torch's threads, beside busy workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fits(batches: int) -> int:
    """A limit that so many batches fit in, and half of another."""
    return batches * BATCH_BYTES + BATCH_BYTES // 2


def loader(num_workers: Any, limit: Any, dataset: Any = None, **options: Any) -> Any:
    if num_workers == 0:
        options.pop("prefetch_factor", None)
    else:
        options.setdefault("multiprocessing_context", "fork")
    return stoker.DataLoader(
        Plain(2 * BATCHES, SHAPE) if dataset is None else dataset,
        **{"batch_size": 2} | options,
        num_workers=num_workers,
        memory_limit=limit,
    )


def batches_of(made: Any, workers: int = 2) -> Iterator[Any]:
    """The batches of an epoch; a loader that chooses is made to choose `workers`."""
    automatic = made._automatic
    iterator = iter(made)
    for number, batch in enumerate(iterator):
        if number == 1 and automatic:
            iterator.feed.resize(workers, batch)
            all_come_up(iterator)
        yield batch


def is_right(number: int, batch: torch.Tensor) -> bool:
    return bool((batch[0] == 2 * number).all() and (batch[1] == 2 * number + 1).all())


@every_count
@pytest.mark.parametrize("fitting", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_no_more_is_in_flight_than_fits(num_workers: Any, fitting: int, prefetch: int) -> None:
    made = loader(num_workers, fits(fitting), prefetch_factor=prefetch)
    for number, batch in enumerate(batches_of(made)):
        assert is_right(number, batch)
        assert made.statistics().in_flight <= fitting
    told = made.statistics()
    assert told.batches == BATCHES
    assert told.peak_in_flight <= fitting
    assert (told.memory_limit, told.memory_limit_source) == (fits(fitting), "memory_limit")
    assert (told.peak_slot_bytes > 0) == (num_workers != 0)


@every_count
@pytest.mark.parametrize("fitting", [2, 3])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_slots_of_all_workers_stay_within_the_limit_where_batches_are_dropped(
    num_workers: Any, fitting: int, prefetch: int
) -> None:
    """One worker makes the batches here: with more, it depends on timing; see below."""
    workers = min(1, num_workers) if isinstance(num_workers, int) else num_workers
    made = loader(workers, fits(fitting), prefetch_factor=prefetch)
    for number, batch in enumerate(batches_of(made, workers=1)):
        assert is_right(number, batch)
        del batch
    assert made.statistics().peak_slot_bytes <= fits(fitting)


@pytest.mark.parametrize("num_workers", [1, 2, "auto"])
@pytest.mark.parametrize("keep", [False, True])
def test_with_room_for_one_batch_there_is_one_slot(num_workers: Any, keep: bool) -> None:
    made = loader(num_workers, fits(1))
    kept = [batch if keep else None for batch in batches_of(made)]
    count, peak_bytes = len(kept), made.statistics().peak_slot_bytes
    del made, kept
    assert (count, peak_bytes) == (BATCHES, BATCH_BYTES)


def test_a_slot_is_never_larger_than_the_limit() -> None:
    limit = 2 * 3 * 40_000 * 4
    made = loader(1, limit, Plain(2 * BATCHES, (3, 40_000)))
    kept = None
    for kept in made:
        kept = kept.clone()
    assert kept is not None
    assert made.statistics().peak_slot_bytes <= limit


class WaitsForLater(Plain):
    """Batch 1 is ready only after batch 3 is, or a second."""

    def __init__(self) -> None:
        super().__init__(2 * BATCHES, SHAPE)
        self.later = FORK.Event()

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            self.later.wait(1)
        if index == 7:
            self.later.set()
        return super().__getitem__(index)


def test_a_slot_that_came_free_unseen_by_its_worker_is_not_counted_on() -> None:
    """While worker 0 makes a slot for batch 1, the one of batch 0 comes free; worker 1 must
    not be given what worker 0 is then thought not to need.
    """
    made = loader(2, fits(3), WaitsForLater(), prefetch_factor=1)
    iterator = iter(made)
    next(iterator)
    iterator.feed.crew.men[0].service_s = 1.0  # so that nothing is queued behind batch 1
    assert len(list(map(is_right, range(1, BATCHES), iterator))) == BATCHES - 1
    peak_bytes = made.statistics().peak_slot_bytes
    del made, iterator
    assert peak_bytes <= fits(3)


class Growing(Dataset[Any]):
    """The first half of the samples is small, the others are forty times as large."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        size = 16 * 1024 if 2 * index < self.length else 640 * 1024
        return torch.full((size,), float(index))


LARGEST_BYTES = 640 * 1024 * 4


@pytest.mark.parametrize("num_workers", [1, 2])
def test_when_batches_grow_the_slots_become_fewer(num_workers: int) -> None:
    """What was in flight when the first large one came may be above the limit; then no more."""
    limit = 3 * LARGEST_BYTES
    made = loader(num_workers, limit, Growing(400), batch_size=1, prefetch_factor=4)
    slot_bytes = []
    for number, batch in enumerate(made):
        assert (batch == number).all()
        slot_bytes.append(made.statistics().slot_bytes)
    del made
    assert max(slot_bytes[300:]) <= limit


@every_count
@pytest.mark.parametrize("fitting", [1, 2, 4])
def test_a_consumer_that_keeps_every_batch_does_not_stall(num_workers: Any, fitting: int) -> None:
    made = loader(num_workers, fits(fitting), prefetch_factor=3)
    kept = list(batches_of(made))
    assert len(kept) == BATCHES
    assert all(is_right(number, batch) for number, batch in enumerate(kept))
    for number, batch in enumerate(kept):  # Each is its own.
        batch += 1000
        assert all(is_right(n, other) for n, other in enumerate(kept[number + 1 :], number + 1))


@every_count
def test_a_limit_that_fits_exactly_one_batch_serves(num_workers: Any) -> None:
    for number, batch in enumerate(batches_of(loader(num_workers, BATCH_BYTES))):
        assert is_right(number, batch)
    assert number == BATCHES - 1


@every_count
def test_before_the_first_batch_has_told_its_size_there_is_one_in_flight(num_workers: Any) -> None:
    made = loader(num_workers, "1GB", prefetch_factor=8)
    iterator = iter(made)
    assert made.statistics().in_flight == (0 if num_workers in (0, "auto") else 1)
    next(iterator)
    del iterator


class Uneven(Plain):
    """Every seventh sample is four times as large as the others."""

    def __getitem__(self, index: int) -> torch.Tensor:
        rows = 4 if index % 7 == 3 else 1
        return torch.full((rows, 64, 1024), float(index))


@every_count
def test_a_batch_above_the_limit_is_an_error_in_its_place(num_workers: Any) -> None:
    limit = 2 * 64 * 1024 * 4
    made = loader(num_workers, limit, Uneven(16), batch_size=1)
    iterator, seen = iter(made), []
    for number, answer in enumerate(answers(iterator)):
        if number == 1 and num_workers == "auto":
            iterator.feed.resize(2, answer)
            all_come_up(iterator)
        seen.append(answer)
    assert len(seen) == 16
    for number, answer in enumerate(seen):
        if number % 7 == 3:
            assert isinstance(answer, BatchTooLarge)
            assert isinstance(answer, RuntimeError)
            assert f"{4 * 64 * 1024 * 4:,}" in str(answer)
            assert f"{limit:,}" in str(answer)
            assert "batch_size" in str(answer)
        else:
            assert (answer == number).all()
    if num_workers == "auto":
        assert made.num_workers == 2, "an error of a batch is no reason to go without workers"


@pytest.mark.parametrize("num_workers", [0, 1, "auto"])
def test_an_only_batch_above_the_limit_is_an_error(num_workers: Any) -> None:
    made = loader(num_workers, BATCH_BYTES - 1, Plain(2, SHAPE))
    with pytest.raises(BatchTooLarge, match=f"{BATCH_BYTES:,}"):
        next(iter(made))


class Texts(Dataset[Any]):
    """Samples of plain Python objects: nothing but a pickle."""

    def __init__(self, length: int, words: int) -> None:
        self.length = length
        self.words = words

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[str]:
        return [f"{index}-{word:06}" for word in range(self.words)]


def as_it_is(samples: list[Any]) -> list[Any]:
    return samples


@every_count
def test_python_objects_count_too(num_workers: Any) -> None:
    options = {"collate_fn": as_it_is, "batch_size": 1}
    made = loader(num_workers, 1_500_000, Texts(12, 30_000), **options)
    for number, (words,) in enumerate(batches_of(made)):
        assert words[:2] == [f"{number}-000000", f"{number}-000001"]
        assert len(words) == 30_000
    told = made.statistics()
    if num_workers:
        assert told.batch_bytes > 200_000
        assert told.peak_in_flight <= 1_500_000 // told.batch_bytes
    with pytest.raises(BatchTooLarge):
        next(iter(loader(num_workers, 100_000, Texts(12, 30_000), **options)))


class Parts(IterableDataset[Any]):
    """Worker w yields w * 100, w * 100 + 1, ... as large tensors."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first = 100 * info.id if info is not None else 0
        for step in range(self.length):
            yield torch.full(SHAPE, float(first + step))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("fitting", [1, 2, 3, 6])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_iterable_data_set_is_served_under_a_limit(
    num_workers: int, fitting: int, keep: bool
) -> None:
    made = loader(num_workers, fits(fitting), Parts(12), prefetch_factor=3)
    kept, seen = [], []
    for batch in made:
        seen.append(int(batch[0, 0, 0]))
        kept.append(batch if keep else None)
    assert sorted(seen) == [100 * w + step for w in range(num_workers) for step in range(0, 12, 2)]
    if keep:
        assert [int(batch[0, 0, 0]) for batch in kept] == seen
    assert made.statistics().peak_in_flight <= fitting


@many_workers
def test_slots_for_an_iterable_data_set_stay_within_the_limit() -> None:
    made = loader(3, fits(2), Parts(12), prefetch_factor=2)
    count = sum(1 for _ in made)
    peak_bytes = made.statistics().peak_slot_bytes
    del made
    assert count == 3 * 6
    assert peak_bytes <= fits(2)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_data_sets_large_batch_is_an_error(num_workers: int) -> None:
    seen = list(answers(iter(loader(num_workers, BATCH_BYTES - 1, Parts(2)))))
    assert seen
    assert all(isinstance(answer, BatchTooLarge) for answer in seen)


@many_workers
@pytest.mark.parametrize("workers", [(3, 1), (1, 3), (2, 0), (0, 2)])
def test_the_limit_holds_while_the_number_changes(workers: tuple[int, int]) -> None:
    made = loader("auto", fits(4), prefetch_factor=2)
    iterator = iter(made)
    for number, batch in enumerate(iterator):
        assert is_right(number, batch)
        if number in (2, 9):
            iterator.feed.resize(workers[number == 9], batch)
            all_come_up(iterator) if iterator.feed.feed else None
        assert made.statistics().in_flight <= 4
    assert number == BATCHES - 1


def plant_memory(monkeypatch: pytest.MonkeyPatch, available: int, ranks: int = 1) -> None:
    fact = Fact(available, "the planted machine")
    monkeypatch.setattr(
        account, "memory_facts", lambda: MemoryFacts(fact, fact, Fact(None, "none"))
    )
    share = CpuShare(Fact(ranks, "planted"), Fact(2.0, "planted"))
    monkeypatch.setattr(account, "cpu_share", lambda: share)
    monkeypatch.setattr(account, "_ACCOUNTS", {})


@every_count
def test_without_a_limit_it_is_a_share_of_what_is_available(
    monkeypatch: pytest.MonkeyPatch, num_workers: Any
) -> None:
    plant_memory(monkeypatch, 1 << 30)
    made = loader(num_workers, None)
    list(made)
    told = made.statistics()
    assert told.memory_limit == 1 << 28
    assert told.memory_limit_source == "25% of the planted machine"


def test_ranks_share_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_memory(monkeypatch, 1 << 30, ranks=4)
    made = loader(0, None)
    list(made)
    assert made.statistics().memory_limit == 1 << 26


def test_live_loaders_share_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_memory(monkeypatch, 1 << 30)
    first, second = loader(1, None), loader(1, None)
    one = iter(first)
    two = iter(second)
    assert first.statistics().memory_limit == 1 << 28
    assert second.statistics().memory_limit == 1 << 27
    del one
    third = loader(1, None)
    three = iter(third)
    assert third.statistics().memory_limit == 1 << 27
    del two, three
    list(first)
    assert first.statistics().memory_limit == 1 << 28


def test_what_is_found_is_no_reason_to_refuse_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_memory(monkeypatch, BATCH_BYTES)
    for num_workers in (0, 1):
        assert len(list(loader(num_workers, None))) == BATCHES


SIZES = {
    "4GB": 4_000_000_000,
    "512 MiB": 512 << 20,
    "1.5kb": 1500,
    " 2TiB ": 2 << 40,
    "700B": 700,
    10_000: 10_000,
}


@pytest.mark.parametrize("given", SIZES)
def test_sizes(given: Any) -> None:
    made = loader(0, given)
    assert made.statistics().memory_limit == SIZES[given]
    assert made.memory_limit == given


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("x", ArgumentError),
        ("", ArgumentError),
        ("4 gigs", ArgumentError),
        ("-1GB", ArgumentError),
        ("0GB", ArgumentError),
        (0, ArgumentError),
        (-1, ArgumentError),
        (True, TypeError),
        (1.5, TypeError),
        ([], TypeError),
    ],
)
@pytest.mark.parametrize("num_workers", [0, "auto"])
def test_what_is_no_size_is_refused_by_the_constructor(
    num_workers: Any, given: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="memory_limit") as caught:
        loader(num_workers, given)
    assert repr(given) in str(caught.value)
    assert isinstance(caught.value, ValueError if error is ArgumentError else TypeError)


def test_a_limit_is_not_set_afterwards() -> None:
    made = loader(0, "1GB")
    with pytest.raises(ValueError, match="memory_limit"):
        made.memory_limit = "2GB"
