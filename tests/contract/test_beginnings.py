"""Workers that take their time to come up, and what the loader says of it."""

from __future__ import annotations

import time
from typing import Any

from stoker.tuning.statistics import Statistics
from tests.contract.automatic import loader
from tests.datasets import Plain

SLOW_S = 0.3


def slow(worker: int) -> None:
    time.sleep(SLOW_S)


def two_epochs(anew: bool, **arguments: Any) -> Statistics:
    """Of loaders of a data set that no other test has, by its length."""
    dataset = Plain(14 if anew else 22)
    options: dict[str, Any] = {
        "num_workers": 2,
        "worker_init_fn": slow,
        "batch_size": 2,
    } | arguments
    for epoch in range(2):
        if anew or not epoch:
            made = loader(dataset, **options)
        assert len(list(made)) == len(dataset) // 2
    told: Statistics = made.statistics()
    return told


def test_workers_that_come_up_slowly_every_epoch() -> None:
    told = two_epochs(anew=False)
    assert told.starts == told.epochs == 2
    assert told.waited_s >= told.coming_up_s > 1.8 * SLOW_S
    assert told.start_s > told.coming_up_s
    assert "(2 times, " in str(told)
    (remark,) = [each for each in told.remarks if "started anew every epoch" in each]
    assert "persistent_workers=True" in remark


def test_workers_that_stay_come_up_once() -> None:
    told = two_epochs(anew=False, persistent_workers=True)
    assert told.starts == 1
    assert SLOW_S * 0.9 < told.coming_up_s < 2 * SLOW_S


def test_a_loader_made_for_each_epoch() -> None:
    told = two_epochs(anew=True)
    assert told.epochs == told.starts == 1
    assert any("2 loaders, 2 epochs" in each and "make it once" in each for each in told.remarks)
