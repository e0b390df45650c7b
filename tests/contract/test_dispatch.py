"""Who makes which batch when: no worker waits for another, within a bound."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from stoker.feed import feed
from tests.contract.datasets import HeldBack
from tests.contract.methods import loader, many_workers

FORK = multiprocessing.get_context("fork")


def count(made: Any, at_least: int) -> int:
    """How often a semaphore was released, after waiting for the least it has to be."""
    for number in range(at_least):
        assert made.acquire(timeout=15), f"only {number} of {at_least} were made"
    extra = 0
    while made.acquire(timeout=0.2):
        extra += 1
    return at_least + extra


def values(batch: Any) -> list[int]:
    return [int(x) for x in batch.flatten().tolist()]


def test_batches_come_in_order_by_default() -> None:
    dataset = HeldBack(24, 0, FORK, shape=(1,))
    iterator = iter(loader(dataset, "fork", 2, batch_size=2))
    count(dataset.made, 4)  # others are done while the first waits
    dataset.gate.set()
    assert [values(batch) for batch in iterator] == [[i, i + 1] for i in range(0, 24, 2)]


@many_workers
def test_a_blocked_batch_does_not_stop_other_workers() -> None:
    """While the consumer waits for batch 0, the other workers go on past the window."""
    dataset = HeldBack(60, 0, FORK, shape=(1,))
    iterator = iter(loader(dataset, "fork", 3, batch_size=1, prefetch_factor=2))
    opener = FORK.Process(target=_open_after, args=(dataset.made, 20, dataset.gate))
    opener.start()
    assert [values(batch) for batch in iterator] == [[i] for i in range(60)]
    opener.join()
    assert opener.exitcode == 0
    opener.close()


def _open_after(made: Any, number: int, gate: Any) -> None:
    for _ in range(number):
        if not made.acquire(timeout=15):
            raise SystemExit(1)
    gate.set()


@pytest.mark.parametrize("at", [1, 2, 5, 9])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_blocked_batch_does_not_hold_back_those_before_it(at: int, num_workers: int) -> None:
    """What a worker has made is handed out while it is at the next batch."""
    dataset = HeldBack(20, at, FORK, shape=(1,))
    iterator = iter(loader(dataset, "fork", num_workers, batch_size=1, timeout=10))
    assert [values(next(iterator)) for _ in range(at)] == [[i] for i in range(at)]
    dataset.gate.set()
    assert [values(batch) for batch in iterator] == [[i] for i in range(at, 20)]


@many_workers
@pytest.mark.parametrize(("num_workers", "prefetch"), [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_no_more_than_the_window_is_made_while_the_consumer_is_away(
    num_workers: int, prefetch: int
) -> None:
    dataset = HeldBack(100, -1, FORK)
    options = {"batch_size": 2, "prefetch_factor": prefetch}
    iterator = iter(loader(dataset, "fork", num_workers, **options))
    window = 2 * num_workers * prefetch
    assert count(dataset.made, window) == window
    next(iterator)
    assert count(dataset.made, 0) <= 2 * 64 * num_workers
    del iterator


def test_a_slow_consumer_is_never_more_than_the_window_behind() -> None:
    """Also after many batches: what is made and not handed out stays bounded."""
    dataset = HeldBack(400, -1, FORK)
    iterator = iter(loader(dataset, "fork", 2, batch_size=1, prefetch_factor=2))
    made = count(dataset.made, 4)
    for handed_out in range(1, 6):
        next(iterator)
        made += count(dataset.made, 0)
        assert made - handed_out <= 4 + 2 * 64
    del iterator


def test_out_of_order_hands_out_what_is_ready() -> None:
    dataset = HeldBack(12, 0, FORK, shape=(1,))
    options = {"batch_size": 2, "in_order": False, "timeout": 15, "prefetch_factor": 1}
    iterator = iter(loader(dataset, "fork", 2, **options))
    first = [values(next(iterator)) for _ in range(5)]
    assert sorted(first) == [[i, i + 1] for i in range(2, 12, 2)]
    dataset.gate.set()
    assert [values(batch) for batch in iterator] == [[0, 1]]


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_out_of_order_hands_out_everything_once(num_workers: int) -> None:
    made = loader(
        HeldBack(50, -1, FORK, shape=(1,)),
        "fork" if num_workers else "inline",
        num_workers,
        batch_size=3,
        in_order=False,
    )
    assert sorted(x for batch in made for x in values(batch)) == list(range(50))


def test_one_worker_keeps_its_order_even_out_of_order() -> None:
    made = loader(HeldBack(50, -1, FORK, shape=(1,)), "fork", 1, batch_size=3, in_order=False)
    assert [x for batch in made for x in values(batch)] == list(range(50))


@many_workers
@pytest.mark.parametrize("num_workers", [1, 2, 5, 8])
def test_all_workers_work_at_once(num_workers: int) -> None:
    """Each of the first batches waits until all the others are being made."""
    dataset = _Meeting(num_workers)
    options = {"batch_size": 1, "prefetch_factor": 1}
    batches = list(loader(dataset, "fork", num_workers, **options))
    assert sorted(values(batch)[0] for batch in batches) == list(range(num_workers))


class _Meeting(HeldBack):
    def __init__(self, parties: int) -> None:
        super().__init__(parties, -1, FORK, shape=(1,))
        self.here = [FORK.Event() for _ in range(parties)]

    def __getitem__(self, index: int) -> Any:
        self.here[index].set()
        assert all(event.wait(20) for event in self.here)
        return super().__getitem__(index)


def test_the_consumer_sleeps_no_longer_than_workers_can_answer_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches of 20 KB go through the pipe: one more than fits makes the worker wait."""
    slept_for: list[list[tuple[int, float | None]]] = []

    def nap_s(held: Any) -> float:
        slept_for.append(list(held))
        return 0.0

    monkeypatch.setattr(feed, "nap_s", nap_s)
    dataset = HeldBack(200, -1, FORK, shape=(5000,))
    for _ in loader(dataset, "fork", 1, batch_size=1):
        pass
    known = [held for waits in slept_for for held, service_s in waits if service_s is not None]
    assert known
    assert max(known) == 1
