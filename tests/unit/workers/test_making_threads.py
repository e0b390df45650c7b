"""A batch is made with one thread a library, and the numbers are put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import threadpoolctl
import torch
from torch.utils.data import default_collate

from stoker.order.epoch import Task
from stoker.workers import one_thread
from tests.datasets import Plain
from tests.unit.workers.test_making import (
    Raising,
    Source,
    iterable_maker,
    made_of,
    map_maker,
    tasks,
)


def _numbers() -> list[int]:
    """Threads of torch, and of each library."""
    infos = threadpoolctl.threadpool_info()
    return [torch.get_num_threads(), *(info["num_threads"] for info in infos)]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    with threadpoolctl.threadpool_limits(2):
        torch.set_num_threads(2)
        yield
        after = _numbers()
        torch.set_num_threads(before)
    assert set(after) == {2}


class Threads(Plain):
    """Its samples tell how many threads there are; draws from some index on."""

    def __init__(self, length: int, draws_from: int = 1000) -> None:
        super().__init__(length)
        self.draws_from = draws_from

    def __getitem__(self, index: int) -> Any:
        return set(_numbers()), random.random() if index >= self.draws_from else 0.0


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("draws_from", [0, 12, 1000])
def test_samples_and_collation_have_one_thread(draws_from: int) -> None:
    maker = map_maker(Threads(40, draws_from), collate=lambda samples: (samples, _numbers()))
    for task in tasks(40, 10):
        samples, in_collate = maker.make(task)
        assert all(seen == {1} for seen, _ in samples)
        assert set(in_collate) == {1}
        assert set(_numbers()) == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("known", [None, False, True])
def test_torch_s_own_collation_has_all_threads(
    known: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    monkeypatch.setattr(torch, "tensor", lambda samples: seen.append(_numbers()))
    map_maker([1, 2, 3, 4], collate=default_collate, known=known).make(tasks(4, 4)[0])
    iterable_maker(Source(4), collate=default_collate).make(Task(0, 0, [None] * 4))
    assert [set(numbers) for numbers in seen] == [{2}, {2}]


@pytest.mark.usefixtures("two_threads")
def test_an_iterable_has_one_thread_until_its_end() -> None:
    class Telling:
        def __iter__(self) -> Iterator[Any]:
            yield from (set(_numbers()) for _ in range(4))

    assert made_of(iterable_maker(Telling())) == [[{1}] * 3, [{1}]]
    assert set(_numbers()) == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("error", [LookupError, StopIteration, KeyboardInterrupt])
@pytest.mark.parametrize("known", [None, False, True])
def test_an_error_leaves_the_numbers_as_they_were(
    known: bool | None, error: type[BaseException]
) -> None:
    maker = map_maker(Raising(4, 2, error(), draws=False), known=known)
    with pytest.raises((error, RuntimeError)):
        maker.make(tasks(4, 4)[0])
    assert set(_numbers()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_library_that_is_loaded_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        user_api = internal_api = "blas"
        threads = 5

        def get_num_threads(self) -> int:
            return self.threads

        def set_num_threads(self, threads: int) -> None:
            self.threads = threads

    library, numbers = Library(), []
    known = one_thread.loaded_libraries()
    maker = map_maker(Plain(6), collate=lambda samples: numbers.append(library.threads))
    maker.make(tasks(6, 2)[0])
    monkeypatch.setattr(one_thread, "loaded_libraries", lambda: [*known, library])
    maker.make(tasks(6, 2)[1])
    monkeypatch.setitem(sys.modules, "imported_in_between", sys)
    maker.make(tasks(6, 2)[2])
    assert numbers == [5, 5, 1]
    assert library.threads == 5


@pytest.mark.usefixtures("two_threads")
def test_a_torch_that_takes_no_other_number_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.__config__, "parallel_info", lambda: "ATen parallel backend: native")
    one_thread._reader_of_torchs.cache_clear()
    try:
        [batch] = [map_maker(Threads(1)).make(tasks(1, 1)[0])]
    finally:
        one_thread._reader_of_torchs.cache_clear()
    assert 2 in batch[0][0]
