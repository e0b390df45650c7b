"""``"auto"`` where workers are copies that can't work: the loader goes on without them."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

from stoker.feed import crew, probation
from tests.contract.alike import assert_same, copied
from tests.contract.automatic import begun, loader, needs_still
from tests.contract.automatic import still as still
from tests.datasets import Drawing

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="starts workers by fork"),
    needs_still,
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probation, "LEAST_S", 0.2)
    monkeypatch.setattr(probation, "_USUAL_FACTOR", 0.0)
    monkeypatch.setattr(crew, "native_threads", lambda: ["nativelib-0"])


class Native(Drawing):
    """Waits, in a worker of these numbers, for a thread that only the main process has."""

    def __init__(self, length: int, *stuck: int) -> None:
        super().__init__(length)
        self.stuck = stuck

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is not None and info.id in self.stuck:
            threading.Event().wait()
        return super().__getitem__(index)


def expected(length: int) -> list[Any]:
    torch.manual_seed(0)
    return list(loader(Drawing(length), batch_size=2, shuffle=True, num_workers=0))


def test_c179_the_main_process_goes_on_where_no_forked_worker_makes_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = expected(16)
    torch.manual_seed(0)
    made = loader(Native(16, 0, 1), batch_size=2, shuffle=True)
    iterator, first = begun(made)
    assert len(multiprocessing.active_children()) == 2
    assert_same([first, *iterator], wanted)
    assert iterator.feed.workers == 0
    assert multiprocessing.active_children() == []
    [warning] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "were forked made no batch within" in warning
    assert "the main process goes on" in warning
    assert "in __getitem__" in warning
    assert "nativelib-0" in warning
    assert 'worker_method="fresh"' in warning
    assert "were forked made no batch within" in made.statistics().decisions[-1].reason


def test_none_is_forked_again_for_this_loader() -> None:
    made = loader(Native(8, 0, 1), batch_size=2)
    for _ in range(2):
        list(begun(made)[0] if made.statistics().peak_workers == 0 else made)
        assert multiprocessing.active_children() == []
    iterator = iter(made)
    iterator.feed.resize(2, next(iterator))
    assert iterator.feed.workers == 0
    assert len(list(iterator)) == 3


@pytest.mark.parametrize("in_order", [True, False])
def test_workers_that_have_made_something_go_on(
    in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = expected(24)
    torch.manual_seed(0)
    iterator, first = begun(loader(Native(24, 1), batch_size=2, shuffle=True, in_order=in_order))
    got = [first, *iterator]
    if not in_order:
        for batches in (got, wanted):
            batches.sort(key=lambda batch: int(batch[0][0]))
    assert_same(got, wanted)
    assert iterator.feed.workers == 1
    assert "1 other worker goes on" in caplog.text


def test_a_worker_that_makes_its_first_batch_slowly_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is at work is none that waits for a thread."""
    monkeypatch.setattr(probation, "_AT_WORK_FACTOR", math.inf)
    iterator, first = begun(loader(Busy(6), batch_size=2))
    assert len([first, *iterator]) == 3
    assert iterator.feed.workers == 2
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


class Busy(Drawing):
    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None:
            began = os.times().user
            while os.times().user - began < 0.15:
                pass
        return super().__getitem__(index)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("given_up", [[0, 1], [1]])
def test_what_workers_had_made_or_begun_is_handed_out_or_made_again(
    in_order: bool, given_up: list[int]
) -> None:
    """Also what they had sent, and nobody had read yet."""
    wanted = expected(40)
    torch.manual_seed(0)
    iterator, first = begun(loader(Drawing(40), batch_size=2, shuffle=True, in_order=in_order))
    got = [first, *(copied(next(iterator)) for _ in range(3))]
    inner = iterator.feed.feed
    assert inner._give_up(given_up, "it is tested")
    iterator.feed._rule_out("it is tested", inner.crew.staying)
    assert len(multiprocessing.active_children()) == 2 - len(given_up)
    got += map(copied, iterator)
    if not in_order:
        for batches in (got, wanted):
            batches.sort(key=lambda batch: int(batch[0][0]))
    assert_same(got, wanted)
