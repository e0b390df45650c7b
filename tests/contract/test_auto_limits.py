"""What rules workers out, what needs one, and data sets that have one iterator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import MapDataPipe, get_worker_info

import stoker
from tests.contract.automatic import (
    FORK,
    begun,
    firsts,
    loader,
    marks,
    pids,
    reasons,
    still,
)
from tests.contract.methods import Tabled
from tests.contract.test_pinning import accelerator
from tests.datasets import (
    EndsOnArrival,
    Gated,
    OnlyInMain,
    Plain,
    Stream,
    Telling,
)
from tests.faults.scripts import are_gone

__all__ = ["accelerator", "still"]


def refused(made: Any, workers: int = 2) -> tuple[list[Any], list[str]]:
    """The batches of an epoch that wanted workers, and why there can be none."""
    iterator = iter(made)
    first = next(iterator)
    iterator.feed.resize(workers, first)
    got = [first, *iterator]
    assert made.num_workers == 0
    assert not iterator._workers
    return got, [decision.reason for decision in made.statistics().decisions]


class WithLambda(Plain):
    def __getitem__(self, index: int) -> Any:
        return index, lambda: index


class OnMeta(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.empty(3, device="meta")


class TestWhatRulesWorkersOut:
    """With the loader's own governor; a reason is kept, and training goes on."""

    def test_a_data_set_that_does_not_pickle(self) -> None:
        class Local(Plain):
            pass

        made = stoker.DataLoader(Local(20), multiprocessing_context="spawn")
        got, why = refused(made)
        assert [int(batch[0, 0]) for batch in got] == list(range(20))
        [reason] = [reason for reason in why if "could not be started" in reason]
        assert "Local" in reason

    def test_a_worker_that_dies_while_it_starts(self) -> None:
        made = stoker.DataLoader(EndsOnArrival(20), multiprocessing_context="spawn")
        iterator = iter(made)
        first = next(iterator)
        iterator.feed.resize(1, first)
        [process] = iterator._workers
        process.join(30)
        assert process.exitcode == 3
        got = [first, *iterator]
        assert [int(batch[0, 0]) for batch in got] == list(range(20))
        found = [reason for reason in reasons(made) if "exit code 3" in reason]
        assert len(found) == 1
        assert "a worker ended while it was starting" in found[0]
        assert made.num_workers == 0
        assert [int(batch[0, 0]) for batch in made] == list(range(20))

    def test_batches_that_do_not_pickle(self) -> None:
        made = loader(WithLambda(20), batch_size=None)
        got, why = refused(made)
        assert [(index, function()) for index, function in got] == [(n, n) for n in range(20)]
        assert len([reason for reason in why if reason.startswith("no workers:")]) == 1

    def test_tensors_that_are_not_in_the_cpus_memory(self) -> None:
        made = loader(OnMeta(20))
        got, why = refused(made)
        assert all(batch.is_meta for batch in got)
        [reason] = [reason for reason in why if reason.startswith("no workers:")]
        assert "the data set makes tensors on meta, not on the CPU" in reason

    @pytest.mark.parametrize("workers", [1, 3])
    def test_a_worker_that_fails_where_the_main_process_does_not(self, workers: int) -> None:
        made = loader(OnlyInMain(30))
        iterator, first = begun(made, workers)
        chosen = pids(iterator)
        got = [first, *iterator]
        assert [int(batch[0, 0]) for batch in got] == list(range(30))
        assert made.num_workers == made.statistics().num_workers == 0
        assert are_gone(chosen, 2.0)
        said = "no workers: workers raise ConnectionError"
        assert len([reason for reason in reasons(made) if said in reason]) == 1
        assert [int(batch[0, 0]) for batch in made] == list(range(30))

    def test_nothing_is_tried_again(self) -> None:
        """Samples so slow that workers would pay: the governor is told once for all."""
        made = loader(Tabled(60, _slow_lambda), batch_size=None)
        assert [function() for function in made] == list(range(60))
        assert [function() for function in made] == list(range(60))
        why = reasons(made)
        assert len([reason for reason in why if reason.startswith("no workers:")]) == 1
        assert len(why) <= 4


def _slow_lambda(index: int) -> Any:
    threading.Event().wait(0.005)
    return lambda: index


def _initialise(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.mark = 7 + worker


class TestWhatNeedsAWorker:
    def test_worker_init_fn(self) -> None:
        """It has to have run before any sample is read."""
        made = loader(Telling(40), batch_size=4, worker_init_fn=_initialise)
        for _ in range(2):
            iterator = iter(made)
            assert made.num_workers >= 1
            assert len(iterator._workers) >= 1
            batches = list(iterator)
            assert marks(batches) <= {7, 8, 9}
            assert all(batch[2].all() for batch in batches)
            assert firsts(batches) == list(range(40))
        assert "worker_init_fn runs in workers only" in reasons(made)[0]

    def test_worker_init_fn_that_is_set_later(self) -> None:
        made = loader(Telling(40), batch_size=4)
        assert marks(list(made)) == {0}
        made.worker_init_fn = _initialise
        batches = list(made)
        assert all(batch[2].all() for batch in batches)
        assert marks(batches) <= {7, 8, 9}
        made.worker_init_fn = None
        assert marks(list(made)) == {0}

    def test_an_error_of_worker_init_fn(self) -> None:
        def fail(worker: int) -> None:
            raise OSError("no disk")

        made = loader(Telling(40), batch_size=4, worker_init_fn=fail)
        with pytest.raises(OSError, match="no disk"):
            list(made)

    def test_a_time_out(self) -> None:
        made = loader(Gated(40, 3, FORK.Event()), timeout=0.3)
        iterator = iter(made)
        assert made.num_workers >= 1
        with pytest.raises(TimeoutError, match=r"timed out after 0\.3 seconds"):
            list(iterator)
        assert "timeout= can only be kept by workers" in reasons(made)[0]
        del iterator
        made.dataset.at = -1
        made.timeout = 60
        assert [int(batch[0, 0]) for batch in made] == list(range(40))

    def test_a_time_out_that_is_set_later(self) -> None:
        made = loader(Gated(40, -1, FORK.Event()))
        assert len(list(made)) == 40
        made.timeout = 0.3
        made.dataset.at = 3
        with pytest.raises(TimeoutError, match=r"timed out after 0\.3 seconds"):
            list(made)

    def test_a_worker_that_cannot_start_is_an_error_here(self) -> None:
        class Local(Plain):
            pass

        made = stoker.DataLoader(Local(4), multiprocessing_context="spawn", timeout=20)
        with (
            pytest.warns(UserWarning, match="Got pickle error"),
            pytest.raises(Exception, match="Local"),
        ):
            list(made)


class MapPipe(MapDataPipe[Any]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        return index, 0, get_worker_info() is not None


class StreamTelling(Stream):
    def __iter__(self) -> Iterator[Any]:
        for index in super().__iter__():
            yield index, 0, get_worker_info() is not None


def _nothing(worker: int) -> None:
    pass


@pytest.mark.parametrize("dataset", [StreamTelling(9), MapPipe()], ids=["iterable", "pipe"])
class TestIterables:
    """Where the number of workers would change the batches, it is left as it is."""

    def test_the_main_process_makes_the_batches(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2)
        for _ in range(2):
            batches = list(made)
            assert firsts(batches) == list(range(9))
            assert not any(batch[2].any() for batch in batches)
        assert made.num_workers == 0
        [reason] = reasons(made)
        assert "its batches depend on how many there are" in reason

    @pytest.mark.parametrize(
        "options",
        [{"worker_init_fn": _nothing}, {"timeout": 60}],
        ids=["worker_init_fn", "timeout"],
    )
    def test_one_worker_does_where_something_needs_it(
        self, dataset: Any, options: dict[str, Any]
    ) -> None:
        made = loader(dataset, batch_size=2, **options)
        for _ in range(2):
            iterator = iter(made)
            assert len(iterator._workers) == made.num_workers == 1
            batches = list(iterator)
            assert firsts(batches) == list(range(9))
            assert all(batch[2].all() for batch in batches)

    def test_persistent_workers_persist(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2, worker_init_fn=_nothing, persistent_workers=True)
        seen = set()
        for _ in range(3):
            iterator = iter(made)
            seen |= set(pids(iterator))
            assert firsts(list(iterator)) == list(range(9))
        assert len(seen) == 1

    def test_what_is_for_workers_is_taken(self, dataset: Any) -> None:
        made = loader(dataset, batch_size=2, prefetch_factor=3, persistent_workers=True)
        assert firsts(list(made)) == list(range(9))


def test_a_data_set_without_a_length_does_as_in_torch() -> None:
    """torch never asks a data set for its length where a sampler is given."""

    class Endless(Plain):
        def __len__(self) -> int:
            raise RuntimeError("nobody knows")

    made = stoker.DataLoader(Endless(9), sampler=range(9))
    assert len(list(made)) == 9
    assert made.statistics().length == 9


def test_a_sampler_whose_length_fails_does_as_in_torch() -> None:
    class Unsized:
        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 1], [2]])

        def __len__(self) -> int:
            raise AttributeError("not loaded yet")

    made = stoker.DataLoader(Plain(9), batch_sampler=Unsized())
    assert sum(1 for _ in made) == 2  # list() would ask for the length
    assert made.statistics().length is None
