"""``debug=True``: the batches of workers, made in the main process."""

from __future__ import annotations

import bdb
import io
import multiprocessing
import os
import pdb
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from tests.contract.alike import assert_same
from tests.contract.methods import seeded_epochs
from tests.contract.test_random_state import states
from tests.datasets import Drawing, Failing, Plain, draw_all

FORK = multiprocessing.get_context("fork")


def seeds_everything(worker: int) -> None:
    """As people write it."""
    seed = torch.initial_seed() % 2**32
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    info = get_worker_info()
    assert info is not None
    info.dataset.opened = worker, seed  # type: ignore[attr-defined]


class Opened(Drawing):
    """Needs what `worker_init_fn` gives it."""

    opened: Any = None

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert self.opened is not None
        return *super().__getitem__(index), info.num_workers


class Shards(IterableDataset[Any]):
    """Each worker's share, with draws, and what it has done to its own copy."""

    opened: Any = None

    def __init__(self, length: int) -> None:
        self.length = length
        self.begun = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        self.begun += 1
        for index in range(info.id, self.length, info.num_workers):
            yield index, self.begun, info.id, info.seed % 1000, self.opened, draw_all()


def epochs(dataset: Any, *, debug: bool, **options: Any) -> list[Any]:
    def make() -> Any:
        return stoker.DataLoader(
            dataset, 3, debug=debug, multiprocessing_context="fork", collate_fn=list, **options
        )

    return seeded_epochs(make, 2)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("kind", [Opened, Shards])
def test_the_batches_are_those_of_workers(kind: Any, seed: int | None, persistent: bool) -> None:
    options = {
        "num_workers": 2,
        "persistent_workers": persistent,
        "seed": seed,
        "worker_init_fn": seeds_everything,
    }
    expected = epochs(kind(10), debug=False, **options)
    before = states()
    made = epochs(kind(10), debug=True, **options)
    assert_same(made, expected)
    if seed is not None:
        torch.manual_seed(11)  # as `seeded_epochs` does
        assert states()[1:] == before[1:]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num_workers", ["auto", 0])
def test_an_automatic_number_or_none_makes_the_same(num_workers: Any) -> None:
    def make(debug: bool) -> Any:
        options = {} if num_workers == 0 else {"timeout": 60}
        return stoker.DataLoader(
            Drawing(10), 3, True, num_workers=num_workers, debug=debug, **options
        )

    assert_same(seeded_epochs(lambda: make(True), 2), seeded_epochs(lambda: make(False), 2))


class Where(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(os.getpid())


def test_the_variable_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_DEBUG", "1")
    made = stoker.DataLoader(Where(4), num_workers=2)
    assert {int(pid) for pid in made} == {os.getpid()}
    assert made.num_workers == 2
    monkeypatch.setenv("STOKER_DEBUG", "0")
    assert os.getpid() not in {int(pid) for pid in made}


def test_it_may_be_set_later() -> None:
    made = stoker.DataLoader(Where(4), num_workers=1, multiprocessing_context="fork")
    assert os.getpid() not in {int(pid) for pid in made}
    made.debug = True
    assert {int(pid) for pid in made} == {os.getpid()}
    with pytest.raises(TypeError, match="debug"):
        made.debug = 3  # type: ignore[assignment]


class Broken(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            breakpoint()
        return super().__getitem__(index)


def test_c167_a_breakpoint_stops_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    typed, shown = io.StringIO("p ('here', index)\ncontinue\n"), io.StringIO()

    def stop() -> None:
        pdb.Pdb(stdin=typed, stdout=shown).set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    made = stoker.DataLoader(Broken(3, (1,)), num_workers=2, debug=True)
    assert [float(batch) for batch in made] == [0.0, 1.0, 2.0]
    assert "('here', 1)" in shown.getvalue()


def test_a_breakpoint_in_a_worker_says_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def quit_at_once() -> None:
        raise bdb.BdbQuit  # As pdb does at the end of its input, which a worker has none of.

    monkeypatch.setattr(sys, "breakpointhook", quit_at_once)
    with pytest.raises(bdb.BdbQuit, match=r"debug=True, or\s+STOKER_DEBUG=1"):
        list(stoker.DataLoader(Broken(3, (1,)), num_workers=1, multiprocessing_context="fork"))


def test_an_exception_is_as_it_was_raised() -> None:
    made = stoker.DataLoader(Failing(8, 3), num_workers=2, debug=True)
    with pytest.raises(ValueError, match="broken") as caught:
        list(made)
    assert "Caught" not in str(caught.value)
    assert caught.traceback[-1].path.name == "datasets.py"


def test_there_is_no_worker_info_between_batches() -> None:
    iterator = iter(
        stoker.DataLoader(Opened(4), num_workers=1, debug=True, worker_init_fn=seeds_everything)
    )
    assert get_worker_info() is None
    next(iterator)
    assert get_worker_info() is None


def test_a_data_set_that_can_not_be_copied_is_used_itself() -> None:
    dataset = Shards(6)
    dataset.lock = FORK.Lock()  # type: ignore[attr-defined]
    made = stoker.DataLoader(dataset, 2, num_workers=2, debug=True, collate_fn=_firsts)
    assert list(made) == [[0, 2], [1, 3], [4], [5]]
    assert dataset.begun == 2


def _firsts(samples: list[Any]) -> list[Any]:
    return [sample[0] for sample in samples]
