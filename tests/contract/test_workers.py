"""The workers themselves: how many, what they know, how long they live."""

from __future__ import annotations

import gc
import multiprocessing
import os
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

import stoker
from tests.contract.datasets import Reporting
from tests.contract.methods import every_process, loader, many_workers
from tests.datasets import Gated, Plain

FORK = multiprocessing.get_context("fork")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listed(samples: list[Any]) -> list[Any]:
    """A collate function that leaves everything as it is."""
    return samples


@many_workers
@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_there_are_as_many_workers_as_asked_for(num_workers: int) -> None:
    iterator = iter(loader(Reporting(40), "fork", num_workers, collate_fn=listed))
    workers = iterator._workers
    assert isinstance(workers, list)
    assert len(workers) == num_workers
    assert all(worker.is_alive() and worker.daemon for worker in workers)
    pids = {worker.pid for worker in workers}
    assert len(pids) == num_workers
    assert {pid for [(pid, *_)] in iterator} <= pids


def test_there_are_no_workers_without_workers() -> None:
    before = multiprocessing.active_children()
    iterator = iter(loader(Reporting(4), "inline", collate_fn=listed))
    assert [sample for [sample] in iterator] == [(os.getpid(), None)] * 4
    assert multiprocessing.active_children() == before
    assert get_worker_info() is None


@every_process
def test_workers_know_what_torchs_know(method: str) -> None:
    torch.manual_seed(3)
    iterator = iter(loader(Reporting(12), method, collate_fn=listed, worker_init_fn=_mark))
    base_seed = iterator._base_seed
    seen = set()
    for [(pid, info, mark, _, threads)] in iterator:
        number = [worker.pid for worker in iterator._workers].index(pid)
        assert info == (number, 2, base_seed + number, True)
        assert mark == ("initialised", number)
        assert threads == 1
        seen.add(number)
    torch.manual_seed(3)
    assert base_seed == torch.empty((), dtype=torch.int64).random_().item()
    assert get_worker_info() is None


def _mark(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.mark = ("initialised", worker)


def test_worker_init_fn_finds_the_generators_seeded_as_in_torch() -> None:
    reports: list[list[Any]] = []
    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        torch.manual_seed(9)
        made = kind(
            Reporting(8),
            num_workers=2,
            collate_fn=listed,
            worker_init_fn=_draw,
            multiprocessing_context="fork",
        )
        reports.append(sorted({sample[2] for [sample] in made}))
    assert reports[0] == reports[1]


def _draw(worker: int) -> None:
    import random

    import numpy as np

    info = get_worker_info()
    assert info is not None
    drawn = float(torch.rand(())), random.random(), float(np.random.rand())
    info.dataset.mark = (worker, torch.initial_seed() == info.seed, *drawn)


def test_an_error_in_worker_init_fn_arrives() -> None:
    def fail(worker: int) -> None:
        raise OSError(f"no disk for worker {worker}")

    made = loader(Plain(4), "fork", worker_init_fn=fail)
    with pytest.raises(OSError, match=r"no disk for worker [01]"):
        list(made)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_context_object_serves_as_well_as_its_name(method: str) -> None:
    context = multiprocessing.get_context(method)
    made = stoker.DataLoader(
        Reporting(4), num_workers=1, multiprocessing_context=context, collate_fn=listed
    )
    iterator = iter(made)
    assert type(iterator._workers[0]) is context.Process
    assert len(list(iterator)) == 4


def test_the_default_context_is_torchs() -> None:
    iterator = iter(stoker.DataLoader(Plain(2), num_workers=1))
    assert type(iterator._workers[0]) is torch.multiprocessing.Process
    assert len(list(iterator)) == 2


def test_workers_end_with_their_epoch() -> None:
    made = loader(Plain(6), "fork", batch_size=2)
    iterator = iter(made)
    list(iterator)
    assert not any(worker.is_alive() for worker in iterator._workers)
    assert made._iterator is None


def test_persistent_workers_live_as_long_as_their_loader() -> None:
    made = loader(Reporting(6), "fork", collate_fn=listed, persistent_workers=True)
    pids: set[int] = set()
    iterator = iter(made)
    for _ in range(3):
        assert iter(made) is iterator is made._iterator
        pids |= {sample[0] for [sample] in made}
        assert all(worker.is_alive() for worker in iterator._workers)
    assert pids <= {worker.pid for worker in iterator._workers}
    del made, iterator
    gc.collect()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
@pytest.mark.parametrize("in_order", [True, False])
def test_an_epoch_left_in_its_middle_is_followed_by_a_whole_one(taken: int, in_order: bool) -> None:
    made = loader(Plain(60, (1,)), "fork", batch_size=3, persistent_workers=True, in_order=in_order)
    for _ in range(3):
        iterator = iter(made)
        for _ in range(taken):
            next(iterator)
        whole = sorted(int(x) for batch in made for x in batch.flatten())
        assert whole == list(range(60))
    del made, iterator


def test_an_epoch_left_while_its_workers_are_busy_is_followed_by_a_whole_one() -> None:
    gate = FORK.Event()
    made = loader(Gated(20, 1, gate), "fork", batch_size=1, persistent_workers=True)
    next(iter(made))
    iterator = iter(made)  # the worker is still at a batch of the epoch before
    gate.set()
    assert [int(batch[0, 0]) for batch in iterator] == list(range(20))
    del made, iterator


def test_large_batches_of_a_left_epoch_give_their_slots_back() -> None:
    made = loader(Plain(40, (100, 100)), "fork", batch_size=1, persistent_workers=True)
    places = set()
    for _ in range(30):
        for number, batch in enumerate(made):
            places.add(batch.data_ptr())
            del batch
            if number == 2:
                break
    assert len(places) <= 40
    del made


def test_changes_of_the_dataset_reach_only_new_workers() -> None:
    """As in torch: a worker has a copy."""
    dataset = Reporting(2)
    made = loader(dataset, "fork", 1, collate_fn=listed)
    dataset.mark = "changed"  # type: ignore[assignment]
    assert {sample[2] for [sample] in made} == {"changed"}


def test_the_iterator_can_be_set_aside() -> None:
    """Libraries restart persistent workers this way."""
    made = loader(Reporting(4), "fork", collate_fn=listed, persistent_workers=True)
    first = {worker.pid for worker in iter(made)._workers}
    made._iterator = None
    second = {worker.pid for worker in iter(made)._workers}
    assert not first & second
    assert not any(alive(pid) for pid in first)
    assert len(list(made)) == 4
    made._iterator._shutdown_workers()
    assert not any(alive(pid) for pid in second)
    made._iterator = None


def test_shutting_down_twice_is_harmless() -> None:
    iterator = iter(loader(Plain(6), "fork"))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    assert not any(worker.is_alive() for worker in iterator._workers)


def test_an_iterator_that_was_shut_down_says_so() -> None:
    iterator = iter(loader(Plain(20), "fork"))
    next(iterator)
    iterator._shutdown_workers()
    with pytest.raises(Exception, match="stopped") as caught:
        list(iterator)
    assert not isinstance(caught.value, StopIteration)


def test_an_iterator_stays_at_its_end() -> None:
    for method in ("inline", "fork"):
        iterator = iter(loader(Plain(3), method))
        assert len(list(iterator)) == 3
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


def test_several_iterators_of_a_loader_are_independent() -> None:
    made = loader(Plain(8, (1,)), "fork", batch_size=2)
    pairs = zip(made, made, strict=True)
    assert [(int(a[0, 0]), int(b[0, 0])) for a, b in pairs] == [(i, i) for i in range(0, 8, 2)]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_two_loaders_work_side_by_side(method: str) -> None:
    first, second = (loader(Plain(n, (1,)), method, 1, batch_size=2) for n in (4, 6))
    assert [[int(b[0, 0]) for b in pair] for pair in zip(first, second, strict=False)] == [
        [0, 0],
        [2, 2],
    ]


def test_an_empty_dataset_has_no_batches() -> None:
    assert list(loader(Plain(0), "fork", batch_size=2)) == []
    assert list(loader(Plain(0), "inline", batch_size=2)) == []


def test_an_iterator_cannot_be_pickled_and_says_what_to_do() -> None:
    import pickle

    iterator = iter(loader(Plain(3), "inline"))
    with pytest.raises(Exception, match="cannot be pickled"):
        pickle.dumps(iterator)


def test_a_loader_can_be_pickled_and_copied() -> None:
    import copy
    import pickle

    made = loader(Plain(6, (1,)), "fork", batch_size=2)
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert [int(batch[0, 0]) for batch in other] == [0, 2, 4]
