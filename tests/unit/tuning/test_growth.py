"""When growth of workers' memory is worth a word: planted series."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.feed.growing import Growing, History
from stoker.tuning.growth import (
    files_warning,
    is_substantial,
    too_many_files,
    warning,
    worker_memory,
)
from stoker.workers.looks import Look, Suspect

MIB = 1 << 20
GIB = 1 << 30
TIMES = (1, 10, 30, 70, 150, 310, 630, 1270)
COPIED = Suspect("dataset.samples", "list", "dict", 2_000_000, 2_000_000, GIB, False)
GROWN = Suspect("dataset.cache", "dict", "bytes", 12_000, 0, GIB, True)


def history(
    private: Callable[[int], float],
    *suspects: Suspect,
    files: Callable[[int], int] = lambda batches: 12,
    times: tuple[int, ...] = TIMES,
) -> History:
    """Looks of a worker with so much private memory after so many batches, and open files."""
    made = History()
    for n in times:
        made.add(Look(7, n, int(private(n)), "planted", files(n), True, suspects))
    return made


def steady(per_batch: float) -> Callable[[int], float]:
    return lambda n: 20 * MIB + per_batch * n


def levelling(most: float, after: float) -> Callable[[int], float]:
    return lambda n: 20 * MIB + most * (1 - math.exp(-n / after))


@pytest.mark.parametrize(
    ("private", "growing"),
    [
        (steady(MIB), True),
        (steady(0.1 * MIB), True),
        (steady(0), False),
        (steady(-0.01 * MIB), False),
        (levelling(500 * MIB, 20), False),
        (levelling(500 * MIB, 200), False),
        (levelling(500 * MIB, 5000), True),
        (lambda n: (20 + 300 * (n > 5)) * MIB, False),
        (lambda n: (20 + 300 * (n > 1000)) * MIB, False),  # What it takes to make batches at all.
        (lambda n: (20 + 3 * (n % 3)) * MIB, False),  # It comes and goes.
        (lambda n: 20 * MIB + n**1.5 * MIB / 10, True),
    ],
)
def test_what_grows_on_and_what_has_come_to_rest(
    private: Callable[[int], float], growing: bool
) -> None:
    told = worker_memory([history(private)], 0, 1000)
    assert told is not None
    assert told.growing is growing
    assert (told.per_batch_bytes > 0, told.to_come_bytes > 0) == (growing, growing)


def test_two_looks_tell_of_no_trend() -> None:
    told = worker_memory([history(steady(MIB), times=(1, 100))], 0, 1000)
    assert told is not None
    assert told.growing is None
    assert told.grown_bytes == 99 * MIB
    assert told.to_come_bytes == 0
    assert not is_substantial(told, GIB)
    assert worker_memory([], 0, None) is None


@pytest.mark.parametrize(
    ("per_batch", "left", "available", "told_of"),
    [
        (MIB, 0, 64 * GIB, False),
        (MIB, 100_000, 64 * GIB, True),  # The epoch would not end well.
        (MIB, None, 64 * GIB, False),  # As much again would not matter.
        (MIB, 0, 4 * GIB, True),  # A good part is gone already.
        (0.04 * MIB, 10_000_000, GIB, False),  # So far too little to say.
    ],
)
def test_steady_growth_is_told_where_memory_would_not_suffice(
    per_batch: float, left: int | None, available: int, told_of: bool
) -> None:
    told = worker_memory([history(steady(per_batch))], 0, left)
    assert told is not None
    assert is_substantial(told, available) is told_of


def test_growth_within_the_first_200_batches_is_enough() -> None:
    """C026: before the kill. Three quarters of its epoch are to come."""
    workers = [history(steady(MIB / 2), COPIED, times=(1, 20, 60, 150)) for _ in range(8)]
    told = worker_memory(workers, 0, 8 * 2000)
    assert told is not None
    assert is_substantial(told, 10 * GIB)
    text = warning(told, 10 * GIB, "cgroup limit in /sys/fs/cgroup/memory.max")
    assert "dataset.samples" in text
    assert "cgroup limit" in text


def test_no_more_is_foretold_than_there_is_to_copy() -> None:
    told = worker_memory([history(steady(MIB / 2), COPIED)], 0, 1_000_000)
    assert told is not None
    assert told.grown_bytes + told.to_come_bytes <= 1.25 * COPIED.size_bytes
    unbounded = worker_memory([history(steady(MIB / 2), GROWN)], 0, 1_000_000)
    assert unbounded is not None
    assert unbounded.to_come_bytes > 400 * GIB


@given(
    seed=st.integers(0, 1 << 30),
    most=st.floats(0, 300 * MIB),
    after=st.floats(1, 150),
    workers=st.integers(1, 16),
)
def test_buffers_that_fill_are_never_told(
    seed: int, most: float, after: float, workers: int
) -> None:
    """Whatever they fill with, and with noise of 2 MiB: there is plenty of memory."""
    draw = random.Random(seed)

    def private(n: int) -> float:
        return levelling(most, after)(n) + draw.uniform(0, 2 * MIB)

    told = worker_memory([history(private) for _ in range(workers)], 0, 1_000_000)
    assert told is not None
    assert not is_substantial(told, 32 * GIB)


@given(seed=st.integers(0, 1 << 30), per_batch=st.floats(0.2 * MIB, 8 * MIB))
def test_a_leak_that_would_fill_memory_is_told_through_noise(seed: int, per_batch: float) -> None:
    draw = random.Random(seed)

    def private(n: int) -> float:
        return steady(per_batch)(n) + draw.uniform(-2, 2) * MIB

    told = worker_memory([history(private)], 0, int(40 * GIB / per_batch))
    assert told is not None
    assert told.growing
    assert is_substantial(told, 32 * GIB)


def test_the_words_have_four_parts_and_name_the_attribute() -> None:
    told = worker_memory([history(steady(MIB), GROWN, COPIED)] * 2, 0, 100)
    assert told is not None
    lines = warning(told, GIB, "memory available on the machine").splitlines()
    assert lines == [
        "the private memory of 2 workers has grown by 2.48 GiB since they were ready, to 2.52 GiB; "
        "1 GiB are left (memory available on the machine)",
        "  while: making batches, each of which adds 1 MiB; at that rate this epoch adds "
        "100 MiB more",
        "  likely cause: dataset.cache (dict): it has grown from 0 to 12,000 elements, by about "
        "1 GiB, in each worker on its own",
        "  to change it: a bound for it, as functools.lru_cache(maxsize=...) has; or files or "
        "memory maps that all workers read; or fewer workers",
    ]


def test_without_a_suspect_it_says_so() -> None:
    told = worker_memory([history(steady(MIB))], 0, 100)
    assert told is not None
    assert told.growth_likely.startswith("nothing that the data set holds was seen to grow")


@pytest.mark.parametrize(
    ("files", "limit", "more"),
    [
        (lambda n: 12 + n, 1024, 1269),
        (lambda n: 12 + n, None, None),
        (lambda n: 12 + n, 100_000, None),
        (lambda n: min(200, 12 + n), 256, None),  # It has come to rest.
        (lambda n: 12, 16, None),
    ],
)
def test_files_that_are_opened_and_not_closed(
    files: Callable[[int], int], limit: int | None, more: int | None
) -> None:
    assert too_many_files([history(steady(0), files=files)], limit) == more


def test_the_words_for_open_files() -> None:
    text = files_warning(600, 1024)
    assert text.startswith("a worker has 600 files more open than after its first batch")
    assert "likely cause: " in text
    assert "to change it: " in text


def test_histories_are_bounded_and_end_with_their_worker() -> None:
    growing = Growing()
    for n in range(1, 10_000):
        growing.take(0, Look(7, n, n * MIB, "planted"), {0, 1})
        growing.take(1, Look(8, n, MIB, "planted"), {0, 1})
    kept = growing.histories[0]
    assert len(kept.looks) <= 32
    assert (kept.looks[0].batches, kept.looks[-1].batches) == (1, 9_999)
    assert kept.grown_bytes == 9_998 * MIB
    assert growing.peak_bytes == 10_000 * MIB
    growing.take(1, Look(9, 1, MIB, "planted"), {1})  # Another process under its number.
    assert [len(each.looks) for each in growing.histories.values()] == [1]
    assert growing.of(1, 8) is None
    assert growing.of(1, 9) is growing.histories[1]


def test_what_is_imported_is_no_growth() -> None:
    growing = Growing()
    growing.take(0, Look(7, 0, 2 * MIB, "planted"), {0})
    growing.take(0, Look(7, 1, 140 * MIB, "planted", imported=True), {0})
    growing.take(0, Look(7, 9, 141 * MIB, "planted"), {0})
    told = worker_memory(list(growing.histories.values()), growing.peak_bytes, None)
    assert told is not None
    assert (told.start_bytes, told.grown_bytes) == (140 * MIB, MIB)
    assert told.growth_likely == ""


@pytest.mark.parametrize(("each", "count", "blamed"), [(3, 4, False), (9, 4, True), (3, 32, True)])
def test_little_growth_is_not_blamed(each: int, count: int, blamed: bool) -> None:
    """A few MiB a worker come with the first batches; of many workers they are told together."""
    workers = [history(lambda n: (20 + each * (n > 5)) * MIB) for _ in range(count)]
    told = worker_memory(workers, 0, None)
    assert told is not None
    assert told.grown_bytes == each * count * MIB
    assert bool(told.growth_likely) is bool(told.growth_change) is blamed
