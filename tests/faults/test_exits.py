"""What ends a process, raised by a sample or by the program: the same for any number of workers.

What a sample raises stands for its batch, and the epoch goes on; what the program is told in the
midst of its own work ends the iteration, as Ctrl-C does.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker.errors import IteratorStopped
from tests.contract.methods import Tabled
from tests.datasets import Plain

_FIXED: dict[str, dict[str, Any]] = {
    "0": {"num_workers": 0},
    "2": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "debug": {"num_workers": 2, "debug": True},
}
_ALL = {**_FIXED, "auto": {"num_workers": "auto"}}
fixed_ways = pytest.mark.parametrize("options", _FIXED.values(), ids=_FIXED)
every_way = pytest.mark.parametrize("options", _ALL.values(), ids=_ALL)


def make(dataset: Any, options: dict[str, Any], **more: Any) -> Any:
    if options["num_workers"] and not options.get("debug"):
        more["multiprocessing_context"] = "fork"
    return stoker.DataLoader(dataset, **options, **more)


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


@every_way
@pytest.mark.parametrize("where", ["a sample", "collate_fn"])
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit], ids=lambda kind: kind.__name__)
def test_an_exit_in_a_sample_stands_for_its_batch(
    kind: Any, where: str, options: dict[str, Any]
) -> None:
    def sample(index: int) -> int:
        random.random(), np.random.rand(), torch.rand(())
        if where == "a sample" and index == 3:
            raise kind(4)
        return index

    def collate(samples: Any) -> Any:
        if where == "collate_fn" and samples[0] == 3:
            raise kind(4)
        return samples[0]

    made = make(Tabled(8, sample), options, collate_fn=collate)
    iterator = iter(made)
    states = random_states()
    seen = [next(iterator) for _ in range(3)]
    with pytest.raises(kind, match="4"):
        next(iterator)
    assert random_states() == states
    assert [*seen, *iterator] == [0, 1, 2, 4, 5, 6, 7]
    del made, iterator


@fixed_ways
def test_an_exit_in_the_iterator_of_a_stream_ends_it_as_any_error_does(
    options: dict[str, Any],
) -> None:
    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(2)
            raise SystemExit(4)

    iterator = iter(make(Stream(), options))
    shards = options["num_workers"] or 1
    assert [int(next(iterator)) for _ in range(2 * shards)] == sorted([0, 1] * shards)
    for _ in range(shards):
        with pytest.raises(SystemExit):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@every_way
def test_an_exit_in_the_sampler_ends_the_iteration(options: dict[str, Any]) -> None:
    class Sampler:
        def __iter__(self) -> Iterator[int]:
            yield 0
            raise SystemExit(4)

        def __len__(self) -> int:
            return 2

    made = make(Plain(20, (1,)), options, sampler=Sampler())
    held: list[Any] = []  # Nothing, where the sampler is asked that far at once.
    with pytest.raises(SystemExit):
        list(held.append(iter(made)) or held[0])
    for iterator in held:
        with pytest.raises(IteratorStopped):
            next(iterator)
    held.clear()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_exit_by_a_signal_while_waiting_ends_the_iteration(num_workers: int) -> None:
    """A scheduler's SIGTERM, say: a message may be half read."""
    parent = os.getpid()

    def sample(index: int) -> int:
        if index == 3:
            os.kill(parent, signal.SIGTERM)
            signal.pause()
        return index

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        iterator = iter(make(Tabled(8, sample), {"num_workers": num_workers}))
        with pytest.raises(SystemExit):
            list(iterator)
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(IteratorStopped):
        next(iterator)
