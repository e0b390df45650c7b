"""Time-outs that people could not make sense of, or that ended a run that could have gone on."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest
import torch

import stoker
from tests.datasets import Plain

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts workers by fork")
FORK = multiprocessing.get_context("fork")
_ARENA = FORK.Value("i", 0)
"""multiprocessing keeps the file that the first of these lies in for the next."""


class Sleepy(Plain):
    """Index 40 sleeps a minute: each time, or only the first."""

    def __init__(self, *, once: bool) -> None:
        super().__init__(48)
        self.once, self.slept = once, FORK.Value("i", 0)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 40 and not (self.once and self.slept.value):
            self.slept.value += 1
            time.sleep(60)
        return super().__getitem__(index)


def loader(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(
        dataset, 8, num_workers=2, timeout=0.5, multiprocessing_context="fork", **options
    )


def test_c161_a_time_out_says_which_worker_at_which_samples_and_where_in_the_code() -> None:
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0\.5 seconds\n") as caught:
        list(loader(Sleepy(once=False)))
    text = str(caught.value)
    assert "(pid " in text
    assert "batch 5, sample indices [40, 41, 42, 43, 44, 45, 46, 47]" in text
    assert f'{__file__}", line ' in text
    assert "in __getitem__" in text


def test_c162_the_stuck_worker_is_replaced_and_training_goes_on() -> None:
    batches = list(loader(Sleepy(once=True), on_timeout="retry"))
    assert torch.equal(torch.cat(batches)[:, 0], torch.arange(48.0))
    batches = list(loader(Sleepy(once=False), on_timeout="skip"))
    assert torch.equal(torch.cat(batches)[:, 0], torch.arange(40.0))


def test_c162_a_time_out_is_a_time_out_error() -> None:
    with pytest.raises(TimeoutError):
        list(loader(Sleepy(once=False)))


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch_factor": 2, "persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"timeout": 3, "on_timeout": "retry"},
    ],
    ids=str,
)
def test_c164_no_workers_for_debugging_is_one_argument_to_change(options: dict[str, Any]) -> None:
    made = stoker.DataLoader(Plain(8), 4, num_workers=0, **options)
    assert len(list(made)) == 2
    again = torch.utils.data.DataLoader(  # As a library does that rebuilds a loader.
        made.dataset,
        num_workers=made.num_workers,
        prefetch_factor=made.prefetch_factor,
        persistent_workers=made.persistent_workers,
        multiprocessing_context=made.multiprocessing_context,
        timeout=made.timeout,
    )
    assert len(list(again)) == 8


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("prefetch_factor", 0), ("prefetch_factor", -1), ("timeout", -1)],
)
def test_c164_what_is_never_valid_is_refused_at_once(
    num_workers: Any, name: str, value: int
) -> None:
    with pytest.raises(ValueError, match=name):
        stoker.DataLoader(Plain(8), num_workers=num_workers, **{name: value})
