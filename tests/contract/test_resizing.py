"""The number of workers changes while an epoch runs, and no batch is any different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from tests.contract.alike import assert_same, copied, differences
from tests.datasets import Drawing

BATCHES = 24
BATCH_SIZE = 3


class Augmented(Drawing):
    """Sample i is i, numbers drawn from all generators, and as many more as asked for."""

    def __init__(self, length: int, drawn: int) -> None:
        super().__init__(length)
        self.drawn = drawn

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), torch.rand(self.drawn)


def loader(num_workers: Any, drawn: int, **options: Any) -> Any:
    return stoker.DataLoader(
        Augmented(BATCHES * BATCH_SIZE, drawn),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        multiprocessing_context="fork" if num_workers else None,
        seed=11,
        **options,
    )


def epochs(made: Any, count: int) -> list[list[Any]]:
    return [list(made) for _ in range(count)]


def all_come_up(iterator: Any) -> None:
    feed = iterator.feed.feed
    while feed.crew.starting:
        feed._handle(feed._pool.wait(10))


resizes = st.lists(
    st.dictionaries(
        st.integers(0, BATCHES - 1), st.tuples(st.integers(0, 3), st.booleans()), max_size=6
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=25)
@given(
    script=resizes,
    drawn=st.sampled_from([1, 9000]),  # batches that go through the pipe, and through slots
    in_order=st.booleans(),
    prefetch=st.integers(1, 3),
)
def test_random_resizes_at_random_batches(
    script: list[dict[int, tuple[int, bool]]], drawn: int, in_order: bool, prefetch: int
) -> None:
    """One dict for each epoch: at which batch to have how many workers, and whether to wait
    until they have come up.
    """
    wanted = epochs(loader(0, drawn), len(script))
    must_work = False
    made = loader("auto", drawn, in_order=in_order, prefetch_factor=prefetch)
    for resizes, batches in zip(script, wanted, strict=True):
        iterator = iter(made)
        got = []
        for number in range(BATCHES):
            got.append(copied(next(iterator)))
            if number in resizes:
                workers, wait = resizes[number]
                iterator.feed.resize(workers, got[-1])
                assert made.num_workers == workers
                if wait:
                    all_come_up(iterator)
                    last = number == max(resizes) and number < BATCHES - 2
                    must_work = must_work or (workers > 0 and last)
        with pytest.raises(StopIteration):
            next(iterator)
        if in_order:
            assert_same(got, batches)
        else:
            assert len(got) == len(batches)
            assert all(
                sum(not differences(batch, other) for other in batches) == 1 for batch in got
            )
        decided = [decision.reason for decision in made.statistics().decisions]
        assert not any("no workers" in reason for reason in decided)
    if must_work:
        assert made.statistics().total_bytes > 0, "no worker made a batch"
    del iterator, made
