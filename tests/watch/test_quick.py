"""Batches that are handed out between two looks, of which only the times are noted down."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from stoker.watch import quick
from stoker.watch.stretches import Stretches
from tests.datasets import Plain
from tests.watch.watching import Watch, scripted, watched


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The next look is due after `MOST` batches only."""
    monkeypatch.setattr(quick, "EVERY_S", 1e6)
    with scripted(("own", 0, 10**9)), watched(tmp_path) as found:
        yield found


def until_unseen(watch: Watch, batches: Iterator[Any], most: int = 3000) -> list[Any]:
    """Batches until one was handed out without a look."""
    taken = []
    for _ in range(most):
        taken.append(next(batches))
        if watch.site._quick.count:
            return taken
    raise AssertionError("every batch was looked at")


@pytest.mark.parametrize("workers", [0, 1])
def test_they_are_the_batches_in_their_order_and_all_are_counted(
    watch: Watch, workers: int
) -> None:
    loader = DataLoader(Plain(8000), batch_size=2, num_workers=workers)
    batches = iter(loader)
    taken = [*until_unseen(watch, batches), *batches]
    assert torch.equal(torch.cat(taken)[:, 0], torch.arange(8000.0))
    record = watch.site.record(whole=False)
    assert watch.site.total == record.batches == 4000
    assert watch.site.ended == 1
    assert record.seconds > 0


def test_there_are_only_so_many_between_two_looks(watch: Watch) -> None:
    batches = iter(DataLoader(Plain(8000)))
    until_unseen(watch, batches)
    counts = []
    for _ in range(3 * quick.MOST):
        next(batches)
        counts.append(watch.site._quick.count)
    assert max(counts) == quick.MOST
    assert counts.count(0) > 1


def test_their_time_is_told_apart_as_loading_and_as_the_step() -> None:
    source = type("Source", (), {"workers": 0, "take": None})()
    held = quick.Quick(threading.RLock())
    held.begin(source, quick.Loading(), 10, 0.0)
    held.times += (0.3, 0.4, 0.6, 0.9)
    stretches = Stretches()
    assert held.flush(stretches) == (pytest.approx(0.4), 2)
    assert stretches.sums.loading_s == pytest.approx(0.4)
    assert stretches.sums.away_s == pytest.approx(0.5)
    assert held.flush(stretches) == (0.0, 0)


class Failing(Plain):
    """Its samples raise once they are told to."""

    fails = False

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.fails:
            raise ZeroDivisionError("sample")
        return super().__getitem__(index)


def test_an_error_there_is_the_users_own(watch: Watch) -> None:
    data = Failing(8000)
    batches = iter(DataLoader(data))
    taken = len(until_unseen(watch, batches))
    data.fails = True
    with pytest.raises(ZeroDivisionError, match="sample"):
        next(batches)
    assert watch.site.total == taken
    assert not watch.failed()


def test_another_iterator_takes_over_from_one_that_is_passed_over(watch: Watch) -> None:
    loader = DataLoader(Plain(8000))
    first = iter(loader)
    taken = len(until_unseen(watch, first))
    second = iter(loader)
    assert [int(next(second)[0, 0]) for _ in range(5)] == list(range(5))
    assert int(next(first)[0, 0]) == taken
    assert watch.site.total == taken + 5


def test_a_loader_inside_a_sample_is_not_watched(watch: Watch) -> None:
    class Nested(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.stack(list(DataLoader(Plain(2))))[:, 0]

    until_unseen(watch, iter(DataLoader(Nested(8000))))
    assert len(watch.sites) == 1


def test_an_iterable_data_set_that_asks_late_is_seen_to_ask(watch: Watch) -> None:
    class Late(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            for number in range(4000):
                if number == 3999:
                    torch.utils.data.get_worker_info()
                yield number

    batches = iter(DataLoader(Late()))
    until_unseen(watch, batches)
    assert not watch.site.record(whole=False).shards
    assert sum(1 for _ in batches) > 0
    assert watch.site.record(whole=False).shards


def test_a_copy_of_the_process_goes_on_alone(watch: Watch) -> None:
    batches = iter(DataLoader(Plain(8000)))
    taken, site = len(until_unseen(watch, batches)), watch.site
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        try:
            number = int(next(batches)[0, 0])
            os.write(tells, f"{number} {site._quick.count}".encode())
        finally:
            os._exit(0)
    os.close(tells)
    os.waitpid(child, 0)
    with os.fdopen(told) as pipe:
        number, count = map(int, pipe.read().split())
    assert number == taken
    assert count == site._quick.count, "the child noted it down for its parent"
    assert int(next(batches)[0, 0]) == taken


def test_workers_are_not_kept_alive_by_what_was_passed_over(tmp_path: Path) -> None:
    with scripted(("own", 1, 10**9)), watched(tmp_path) as watch:
        batches = iter(DataLoader(Plain(8000), num_workers=1))
        until_unseen(watch, batches)
        pids = watch.site._supply.source.pids
        for _ in batches:
            pass
        assert pids
        assert not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in pids)
