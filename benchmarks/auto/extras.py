"""Further questions to the loader that chooses: each gives one or two lines of figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.utils.data

from benchmarks.auto.consumers import CONSUMERS
from benchmarks.auto.contest import AUTO
from benchmarks.auto.figures import LEAST_SHARE, Finding
from benchmarks.auto.plan import PLANS, READY
from benchmarks.auto.run import AutoRun, steady
from benchmarks.measure import Loader, quietly, time_epoch
from benchmarks.settings import Data
from benchmarks.works import WORKS
from stoker import DataLoader
from stoker.feed.meter import Meter

NOTHING = CONSUMERS["0"]
LEAST_PAIRS = 5
ROWS = 500_000
ROW_FLOATS = 20
ROW_BATCH = 256
METER_CALLS = 50_000
SMALL_BATCH_US = 48
SHORT_BATCH_US = 150
MINUTE_S = 60.0
MINUTE_WORK, MINUTE_CONSUMER = "uneven", "sleep5"
WARM_UP = 16  # batches of an epoch that its steady rate leaves out; not looked at here


@dataclass(frozen=True)
class Asked:
    """How thoroughly to look.

    Attributes:
        rounds: how many figures each contender gets.
        scale: the part of each time that is taken.
        tell: called with what is measured next.
    """

    rounds: int
    scale: float
    tell: Callable[[str], None]


def memory(asked: Asked) -> list[Finding]:
    """Rows that lie in memory, which no worker could bring sooner; beside torch's own loader."""
    samples = torch.utils.data.TensorDataset(torch.rand(ROWS, ROW_FLOATS))
    data = Data(f"{ROW_BATCH} rows of {ROW_FLOATS} floats", samples, {"batch_size": ROW_BATCH})
    plan = READY.scaled(asked.scale)
    asked.tell("settles")
    auto = AutoRun(data, NOTHING)
    settling = quietly(lambda: auto.settle(plan))
    own: list[float] = []
    others: list[float] = []
    for _ in range(max(asked.rounds, LEAST_PAIRS)):
        asked.tell("torch, 0 workers")
        loader: Loader = torch.utils.data.DataLoader(samples, **data.arguments)
        others.append(quietly(partial(steady, loader, NOTHING, plan)).per_s)
        asked.tell("auto")
        own.append(quietly(lambda: auto.steady(plan)).per_s)
    share = statistics.median(a / b for a, b in zip(own, others, strict=True))
    workers = settling.workers
    return [
        Finding(
            f"in memory: {data.title}, 0 ms",
            f"{workers} workers; {share:.2f} × torch with 0 workers",
            "0 workers",
            [] if workers == 0 else [f"{workers} workers"],
            {"settling": asdict(settling), "auto": own, "torch": others, "share": share},
        )
    ]


def epoch(asked: Asked) -> list[Finding]:
    """A whole first epoch, which begins in the main process, beside those of fixed counts."""
    data = WORKS["mnist"].data()
    counts = PLANS["mnist"].counts
    took: dict[int, list[float]] = {count: [] for count in (AUTO, *counts)}
    chosen: list[int] = []
    for number in range(max(asked.rounds, LEAST_PAIRS)):
        for count in (list(took) * 2)[number % len(took) :][: len(took)]:
            asked.tell("auto" if count == AUTO else f"{count} workers")
            seconds, workers = quietly(partial(_epoch, data, count))
            took[count].append(seconds)
            if count == AUTO:
                chosen.append(workers)
    best = min(counts, key=lambda count: statistics.median(took[count]))
    auto_s, best_s = statistics.median(took[AUTO]), statistics.median(took[best])
    share = statistics.median(a / b for a, b in zip(took[AUTO], took[best], strict=True))
    most = 1 / LEAST_SHARE
    return [
        Finding(
            f"first epoch: {data.title}",
            f"{auto_s:.2f} s, {share:.2f} × the best fixed ({best}: {best_s:.2f} s); "
            f"ends with {', '.join(map(str, chosen))} workers",
            f"at most {most:.2f} ×",
            [] if share <= most else [f"{share:.2f} ×"],
            {"seconds": took, "workers": chosen, "ratio": share},
        )
    ]


def _epoch(data: Data, count: int) -> tuple[float, int]:
    """Seconds that a whole first epoch takes, and the number of workers at its end."""
    given: dict[str, Any] = {} if count == AUTO else {"num_workers": count}
    loader: DataLoader[object] = DataLoader(data.samples, **given, **data.arguments)
    whole_per_s = time_epoch(lambda: loader, WARM_UP).whole_per_s
    assert whole_per_s is not None
    return len(loader) / whole_per_s, int(loader.num_workers)


def minute(asked: Asked) -> list[Finding]:
    """Whether the number of workers stays as it is while nothing else changes."""
    consumer, work = CONSUMERS[MINUTE_CONSUMER], WORKS[MINUTE_WORK]
    auto = AutoRun(work.data(), consumer)
    asked.tell("settles")
    settling = quietly(lambda: auto.settle(PLANS[MINUTE_WORK]))
    seconds = MINUTE_S * asked.scale
    asked.tell(f"{seconds:g} s")
    quietly(lambda: auto.go_on(seconds))
    later = auto.changes()[len(settling.changes) :]
    counts = [settling.workers, *(change.workers for change in later)]
    return [
        Finding(
            f"steady for {seconds:g} s: {work.name}, {consumer.title}",
            f"{len(later)} changes of the number of workers ({' → '.join(map(str, counts))})",
            facts={"settling": asdict(settling), "later": [asdict(change) for change in later]},
        )
    ]


def meter(asked: Asked) -> list[Finding]:
    """What a batch made in the main process pays for being counted."""
    asked.tell("calls")
    calls = round(METER_CALLS * asked.scale)
    each = [quietly(lambda: _metered_us(calls)) for _ in range(max(asked.rounds, LEAST_PAIRS))]
    cost = statistics.median(each)
    shares = ", ".join(
        f"{cost / batch:.2%} of a batch of {batch} us" for batch in (SMALL_BATCH_US, SHORT_BATCH_US)
    )
    return [
        Finding(
            "the meter, a batch made in the main process",
            f"{cost:.2f} us: {shares}",
            facts={"us_a_batch": each},
        )
    ]


def _metered_us(calls: int) -> float:
    """Microseconds that `Meter` takes for a batch, with its two looks at the clock."""
    told = Meter()
    told.begin_epoch()
    clock = time.perf_counter
    began = clock()
    for _ in range(calls):
        entered = clock()
        told.entered(entered)
        told.loaded(entered, clock())
    with_meter_s = clock() - began
    began = clock()
    for _ in range(calls):
        pass
    return (with_meter_s - (clock() - began)) / calls * 1e6
