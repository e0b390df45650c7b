"""Batches do not depend on how many threads there were where they were made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

import stoker
from stoker.tuning import account
from tests.contract.alike import assert_same, copied, differences
from tests.contract.automatic import Still
from tests.contract.test_resizing import all_come_up

LENGTH, BATCH = 8, 2


def numbers(index: int) -> dict[str, Any]:
    """Results whose last bits depend on the number of threads."""
    torch.manual_seed(index)
    matrix = np.random.default_rng(index).standard_normal((200, 200))
    vector = np.random.default_rng(index).standard_normal(20_000)
    return {
        "sum": torch.rand(1_000_000).sum(),
        "torch": torch.rand(300, 300) @ torch.rand(300, 300),
        "product": matrix @ matrix,
        "dot": vector @ vector,
        "solution": np.linalg.solve(matrix, vector[:200]),
    }


def now() -> tuple[int, int]:
    """How many threads torch has, and at most any library."""
    return torch.get_num_threads(), max(libraries().values(), default=1)


def libraries() -> dict[str, int]:
    infos = threadpoolctl.threadpool_info()
    return {info["filepath"]: info["num_threads"] for info in infos}


class Computed(Dataset[Any]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return numbers(index)


class ComputedInBatches(Computed):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [numbers(index) for index in indices]


class Indices(Computed):
    def __getitem__(self, index: int) -> Any:
        return index


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return map(numbers, range(LENGTH))


def compute(indices: list[int]) -> Any:
    return default_collate([numbers(index) for index in indices])


def made(dataset: Any, num_workers: Any, method: str | None = None, **options: Any) -> list[Any]:
    """The batches of two epochs: samples are first read under seeds, later watched."""
    loader: Any = stoker.DataLoader(
        dataset, BATCH, num_workers=num_workers, multiprocessing_context=method, **options
    )
    return [batch for _ in range(2) for batch in loader]


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    """This process has 3 threads a library, and has them afterwards."""
    torchs, others = torch.get_num_threads(), libraries()
    with threadpoolctl.threadpool_limits(3):
        torch.set_num_threads(3)
        before = libraries()
        yield
        after = torch.get_num_threads(), libraries()
        torch.set_num_threads(torchs)
    assert after == (3, before)
    assert libraries() == others


def test_these_numbers_depend_on_threads() -> None:
    """Or the tests below would see nothing."""
    loader: Any = DataLoader(Computed(), BATCH)
    several = list(loader)
    with threadpoolctl.threadpool_limits(1):
        torch.set_num_threads(1)
        one = list(loader)
        torch.set_num_threads(3)
    assert differences(several, one)


@pytest.mark.parametrize("how", ["sample", "batch", "collate"])
@pytest.mark.parametrize("workers", [1, 2])
def test_bits_do_not_depend_on_num_workers(how: str, workers: int) -> None:
    dataset = {"sample": Computed, "batch": ComputedInBatches, "collate": Indices}[how]()
    collate = compute if how == "collate" else None
    expected = made(dataset, 0, collate_fn=collate)
    assert_same(made(dataset, workers, "fork", collate_fn=collate), expected)


def test_bits_stay_when_an_automatic_loader_changes_in_mid_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(account, "LoaderGovernor", Still)
    loader: Any = stoker.DataLoader(Computed(), 1, multiprocessing_context="fork")
    iterator, batches = iter(loader), []
    for batch in iterator:
        batches.append(copied(batch))
        if len(batches) in (2, 5):
            iterator.feed.resize(2 if len(batches) == 2 else 0, batch)
            all_come_up(iterator)
    assert_same(batches, list(stoker.DataLoader(Computed(), 1, num_workers=0)))


def test_bits_are_the_same_from_a_fresh_process() -> None:
    assert_same(made(Computed(), 1, "spawn"), made(Computed(), 0))


def test_bits_of_an_iterable_are_the_same_from_a_worker() -> None:
    assert_same(made(Streamed(), 1, "fork"), made(Streamed(), 0))


class Telling(Computed):
    """Its samples are the numbers of threads."""

    def __getitem__(self, index: int) -> Any:
        return now()


class TellingStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(LENGTH):
            yield now()


def tell(samples: Any) -> Any:
    return samples, now()


@pytest.mark.parametrize("dataset", [Telling(), TellingStream()], ids=["map", "iterable"])
def test_one_thread_for_samples_and_collate_and_all_in_between(dataset: Any) -> None:
    loader: Any = stoker.DataLoader(dataset, BATCH, num_workers=0, collate_fn=tell)
    for _ in range(2):
        for batch in loader:
            assert batch == ([(1, 1)] * BATCH, (1, 1))
            assert now() == (3, 3)


class ThreadsWhenStacked(torch.Tensor):
    """Stacking these appends the number of torch's threads to `seen`."""

    seen: list[int]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.stack:
            cls.seen.append(torch.get_num_threads())
        return super().__torch_function__(function, types, args, kwargs)  # type: ignore[no-untyped-call]


class Subclassed(Computed):
    def __getitem__(self, index: int) -> Any:
        return torch.ones(3).as_subclass(ThreadsWhenStacked)


def test_stacking_has_all_threads() -> None:
    ThreadsWhenStacked.seen = []
    made(Subclassed(), 0)
    assert set(ThreadsWhenStacked.seen) == {3}


class Failing(Computed):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise self.error
        return index


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt, StopIteration])
def test_an_error_restores(error: type[BaseException]) -> None:
    loader: Any = stoker.DataLoader(Failing(error()), BATCH, num_workers=0)
    with pytest.raises((error, RuntimeError)):
        list(loader)
    assert now() == (3, 3)


def test_an_error_in_collate_restores() -> None:
    def broken(samples: Any) -> Any:
        raise LookupError

    loader: Any = stoker.DataLoader(Indices(), BATCH, num_workers=0, collate_fn=broken)
    with pytest.raises(LookupError):
        next(iter(loader))
    assert now() == (3, 3)


class Loading(Computed):
    """Has a loader of its own; tells the numbers before, in and after it."""

    def __getitem__(self, index: int) -> Any:
        inner: Any = stoker.DataLoader(Telling(), BATCH, num_workers=0, collate_fn=tell)
        return now(), next(iter(inner))[1], now()


def test_a_loader_in_a_data_set_leaves_one_thread() -> None:
    loader: Any = stoker.DataLoader(Loading(), BATCH, num_workers=0, collate_fn=tell)
    for samples, _ in loader:
        assert samples == [((1, 1), (1, 1), (1, 1))] * BATCH


def _raise_to_two(worker: int) -> None:
    torch.set_num_threads(2)


def test_worker_init_fn_may_raise_the_number() -> None:
    batches = made(Telling(), 1, "fork", collate_fn=tell, worker_init_fn=_raise_to_two)
    assert {threads for _, (threads, _) in batches} == {2}


class Waiting(Computed):
    """In its sample, another thread looks at its own number of torch's threads."""

    def __init__(self) -> None:
        self.ready, self.asked, self.answered = (threading.Event() for _ in range(3))
        self.seen = 0

    def look(self) -> None:
        torch.get_num_threads()
        self.ready.set()
        self.asked.wait()
        self.seen = torch.get_num_threads()
        self.answered.set()

    def __getitem__(self, index: int) -> Any:
        self.asked.set()
        self.answered.wait()
        return torch.get_num_threads()


def test_other_threads_keep_theirs_for_torch() -> None:
    dataset = Waiting()
    thread = threading.Thread(target=dataset.look)
    thread.start()
    dataset.ready.wait()
    loader: Any = stoker.DataLoader(dataset, BATCH, num_workers=0)
    assert next(iter(loader)).tolist() == [1, 1]
    thread.join()
    assert dataset.seen == 3
