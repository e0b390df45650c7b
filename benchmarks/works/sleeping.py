"""Samples that only wait, as for a disk or a network: what counts is that no worker stands idle."""

from __future__ import annotations

import random
import time

import torch.utils.data

from benchmarks.figures import Case, Target
from benchmarks.limits import mean_sample_s
from benchmarks.settings import Data, Settings, Work
from benchmarks.works.compare import Batches, Comparison, Limit

SHORT_S = 0.002
LONG_S = 0.1
ONE_LONG_IN = 50
UNEVEN_BATCH = 8
UNEVEN_WORKERS = 4

WAIT_S = 0.02
WAITING_BATCH = 16
WAITING_WORKERS = 8

LENGTH = 1_000_000


class Uneven(torch.utils.data.Dataset[int]):
    """Sleeps a short time; one sample in each fifty, anywhere among them, sleeps long."""

    def __init__(self) -> None:
        self._long = [random.Random(block).randrange(ONE_LONG_IN) for block in range(1000)]

    def __getitem__(self, index: int) -> int:
        block, place = divmod(index, ONE_LONG_IN)
        is_long = self._long[block % len(self._long)] == place
        time.sleep(LONG_S if is_long else SHORT_S)
        return index

    def __len__(self) -> int:
        return LENGTH


class Waiting(torch.utils.data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        time.sleep(WAIT_S)
        return index

    def __len__(self) -> int:
        return LENGTH


def busy_limit(data: Data, batch_size: int, workers: int, timed: int, nominal_s: float) -> Limit:
    """All workers busy all the time: what a sample takes is timed alone, before a few are loaded.

    A sleep lasts a little longer than it was asked for, so the nominal time would be a limit that
    nothing can reach.
    """

    def batches_per_s() -> float:
        return workers / (batch_size * mean_sample_s(data.samples.__getitem__, range(timed)))

    nominal = workers / (batch_size * nominal_s)
    return Limit(
        batches_per_s,
        f"{workers} workers never idle, {timed} samples timed alone "
        f"(as asked of sleep: {nominal_s * 1000:g} ms a sample, {nominal:.1f} batches/s)",
    )


def uneven_data() -> Data:
    return Data(
        "8 samples that sleep 2 ms, one in fifty 100 ms",
        Uneven(),
        {"batch_size": UNEVEN_BATCH},
    )


def waiting_data() -> Data:
    return Data("16 samples that sleep 20 ms", Waiting(), {"batch_size": WAITING_BATCH})


def uneven(settings: Settings) -> list[Case]:
    data = uneven_data()
    batches = Batches("uneven", data, settings.window(warm_up=50, batches=600))
    nominal_s = SHORT_S + (LONG_S - SHORT_S) / ONE_LONG_IN
    limit = busy_limit(data, UNEVEN_BATCH, UNEVEN_WORKERS, 5 * ONE_LONG_IN, nominal_s)
    targets = (Target(0.97, ("limit",)),)
    return [Comparison(batches, UNEVEN_WORKERS, targets, {"limit": limit}).case(settings)]


def waiting(settings: Settings) -> list[Case]:
    data = waiting_data()
    window = settings.window(
        warm_up=WAITING_WORKERS, batches=15 * WAITING_WORKERS, round_of=WAITING_WORKERS
    )
    batches = Batches("waiting", data, window)
    limit = busy_limit(data, WAITING_BATCH, WAITING_WORKERS, 40, WAIT_S)
    targets = (Target(0.99, ("limit",)),)
    return [Comparison(batches, WAITING_WORKERS, targets, {"limit": limit}).case(settings)]


UNEVEN = Work("uneven", uneven_data, uneven)
WAITING = Work("waiting", waiting_data, waiting)
