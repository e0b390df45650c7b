"""A watched loader looks, and is used, as one that is not."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

import stoker
from tests.datasets import Plain
from tests.watch.test_epochs import SWITCHES, numbers
from tests.watch.watching import Watch, scripted, watched


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with scripted(*SWITCHES), watched(tmp_path) as found:
        yield found


class Doubling(DataLoader[Any]):
    """A loader with a constructor, a length and batches of its own."""

    def __init__(self, samples: int) -> None:
        super().__init__(Plain(samples), batch_size=2)
        self.factor = 2

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * self.factor

    def __len__(self) -> int:
        return 100


def test_a_subclass_with_an_iter_of_its_own_keeps_what_it_does(watch: Watch) -> None:
    loader = Doubling(24)
    for _ in range(6):
        batches = [numbers(batch) for batch in loader]
        assert len(batches) == 12
        assert all(number % 2 == 0 for batch in batches for number in batch)
        assert max(max(batch) for batch in batches) <= 46
    assert len(loader) == 100


class DoublingStoker(stoker.DataLoader[Any]):
    """The same of Stoker's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * 2


@pytest.mark.parametrize("workers", [0, 1, "auto"])
def test_stokers_own_loader_is_served_once(tmp_path: Path, workers: Any) -> None:
    own = 0 if workers == "auto" else workers
    steps = [("own", own, 2), ("search", 1 - own, 2), ("replay", own, 2)]
    with scripted(*steps), watched(tmp_path) as watch:
        loader = DoublingStoker(Plain(24), batch_size=2, num_workers=workers)
        for _ in range(4):
            batches = [numbers(batch) for batch in loader]
            assert len(batches) == 12
            assert {number / 2 % 1 for batch in batches for number in batch} == {0.0}
            assert max(max(batch) for batch in batches) <= 46
        assert not watch.told()
        loader.close() if hasattr(loader, "close") else None
        del loader


def test_an_iterator_is_one_of_pytorchs_and_has_its_attributes(watch: Watch) -> None:
    loader = DataLoader(Plain(8), batch_size=2)
    batches = iter(loader)
    assert isinstance(batches, _BaseDataLoaderIter)
    assert batches._dataset is loader.dataset  # type: ignore[attr-defined]
    assert len(batches) == 4
    assert iter(batches) is batches
    next(batches)
    assert batches._num_yielded == 1  # type: ignore[attr-defined]
    assert not hasattr(batches, "no_such_thing")
    with pytest.raises(NotImplementedError):
        pickle.dumps(batches)
    del batches


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_copies_of_a_loader_belong_to_its_line(watch: Watch, again: Any) -> None:
    loader = DataLoader(Plain(10), batch_size=2)
    assert sum(1 for _ in loader) == 5
    other = again(loader)
    assert sum(1 for _ in other) == 5
    assert watch.site.epochs == 2


class Nesting(Plain):
    """Every sample is read with a loader of its own."""

    def __getitem__(self, index: int) -> Any:
        return sum(float(batch.sum()) for batch in DataLoader(Plain(3))) + index


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_inside_a_data_set_are_not_watched(tmp_path: Path, workers: int) -> None:
    with scripted(("own", workers, 1000)), watched(tmp_path) as watch:
        loader = DataLoader(Nesting(4), num_workers=workers)
        assert [float(batch[0]) for batch in loader] == [9.0, 10.0, 11.0, 12.0]
        assert watch.site.made == 1


def test_a_loader_may_be_iterated_in_a_thread(watch: Watch) -> None:
    came: list[int] = []
    loader = DataLoader(Plain(24), batch_size=2)
    for _ in range(5):
        thread = threading.Thread(target=lambda: came.append(sum(1 for _ in loader)))
        thread.start()
        thread.join()
    assert came == [12] * 5
    assert watch.site.done


def test_threads_with_an_iterator_each_get_whole_epochs(watch: Watch) -> None:
    loader, came = DataLoader(Plain(60), batch_size=2), []
    start = threading.Barrier(3)

    def use() -> None:
        for _ in range(3):
            start.wait()
            came.append(sum(1 for _ in loader))

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert came == [30] * 9
    assert not watch.failed()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("when", ["in an epoch", "between epochs"])
def test_a_fork_goes_on_alone_and_its_parents_workers_do_too(tmp_path: Path, when: str) -> None:
    with scripted(("own", 0, 1), ("search", 2, 100)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(80), batch_size=2)
        for number, _ in enumerate(loader):
            if number == 10 and when == "in an epoch":
                _fork(loader)
        if when == "between epochs":
            _fork(loader)
        assert sum(1 for _ in loader) == 40
        assert not watch.told()


def _fork(loader: Any) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if sum(1 for _ in loader) == 40 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_iterator_goes_on_in_a_fork(tmp_path: Path) -> None:
    with scripted(("own", 0, 1000)), watched(tmp_path):
        batches = iter(DataLoader(Plain(6)))
        assert [numbers(next(batches)) for _ in range(2)] == [[0], [1]]
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if [numbers(each) for each in batches] == [[2], [3], [4], [5]] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [numbers(each) for each in batches] == [[2], [3], [4], [5]]
        del batches


def spawned(index: int) -> None:
    assert index == torch.utils.data.get_worker_info().id  # type: ignore[union-attr]


def test_workers_have_their_init_function_and_are_never_left_out(tmp_path: Path) -> None:
    with scripted(("own", 1, 2), ("search", 0, 2), ("search", 2, 2)), watched(tmp_path) as watch:
        loader = DataLoader(Plain(24), batch_size=2, num_workers=1, worker_init_fn=spawned)
        assert [sum(1 for _ in loader) for _ in range(3)] == [12] * 3
        (why,) = watch.told()
        assert "worker_init_fn runs in workers only" in why
