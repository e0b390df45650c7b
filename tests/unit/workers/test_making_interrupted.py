"""Ctrl-C at any moment while a batch is made in-process: nothing of the program's stays lent.

Python looks for signals when a function begins and when a call has returned. There a profiling
function raises, at one moment after the other.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import stoker
from stoker.order.streams import lending
from stoker.workers.making import IterableMaker, MapMaker
from tests.datasets import Drawing, Plain
from tests.unit.alike import assert_alike
from tests.unit.order.states import states
from tests.unit.workers.test_making import KEY, map_maker, tasks

STOKER = str(Path(stoker.__file__).parent)


class Interrupt:
    """Raises at the moment with this number; counts what it has seen."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(STOKER):
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt


class Streaming(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (torch.rand(2) + index for index in range(6))


def quiet() -> MapMaker:
    return map_maker(Plain(6), collate=default_collate, known=False)


def drawing_after_all() -> MapMaker:
    return map_maker(Drawing(6), known=False)


def drawing() -> MapMaker:
    return map_maker(Drawing(6), known=True)


def streaming() -> IterableMaker:
    return IterableMaker(
        Streaming(), batched=True, drop_last=False, collate=default_collate, key=KEY, shard=0
    )


def functions() -> list[Any]:
    return [
        *(torch.get_rng_state, torch.set_rng_state, torch.random.get_rng_state),
        *(random.getstate, random.setstate, np.random.get_state, np.random.set_state),
    ]


def free() -> bool:
    """Whether another thread could lend."""
    found: list[bool] = []

    def look() -> None:
        found.append(lending().acquire(blocking=False))
        if found[0]:
            lending().release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("make", [quiet, drawing, drawing_after_all, streaming])
@pytest.mark.parametrize("pending", [False, True], ids=["", "pending Gaussians"])
def test_ctrl_c_at_any_moment_leaves_nothing_lent(make: Callable[[], Any], pending: bool) -> None:
    expected = make().make(tasks(6, 3)[0])
    if pending:
        torch.randn(1, dtype=torch.float64), random.gauss(0, 1), np.random.randn()
    before, theirs, threads = states(), functions(), torch.get_num_threads()
    bits = np.random.get_bit_generator()
    for at in itertools.count(1):
        maker, interrupt = make(), Interrupt(at)
        caught = None
        sys.setprofile(interrupt)
        try:
            maker.make(tasks(6, 3)[0])
        except KeyboardInterrupt as error:
            caught = error  # as a notebook keeps it, with all its frames
        finally:
            sys.setprofile(None)
        if interrupt.seen < at:
            break
        assert caught is not None
        assert states() == before, at
        assert np.random.get_bit_generator() is bits, at
        assert functions() == theirs, at
        assert torch.get_num_threads() == threads, at
        assert free(), at
    assert at > 20
    assert_alike(make().make(tasks(6, 3)[0]), expected)
