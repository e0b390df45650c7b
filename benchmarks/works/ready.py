"""Samples that lie ready in memory: all that is left to do is to move them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.utils.data

from benchmarks.figures import Case, Target
from benchmarks.limits import Memcpy, independent_per_s
from benchmarks.settings import Data, Settings, Work
from benchmarks.works.compare import Batches, Comparison, Limit

BATCH_SIZE = 64
MEMCPY_S = 1.0
BUFFERS = 4

LARGE_SHAPE = (3, 224, 224)
LARGE_BYTES = BATCH_SIZE * math.prod(LARGE_SHAPE) * 4
LARGE_READY = 256  # 154 MB: more than a cache holds
SMALL_SHAPE = (1, 28, 28)
SMALL_READY = 1024
FIELDS_A_SAMPLE = 40
FIELD_FLOATS = 8


class Ready(torch.utils.data.Dataset[Any]):
    """Hands out the same few ready-made samples over and over, for ``batches`` batches."""

    def __init__(self, samples: list[Any], batches: int) -> None:
        self._samples = samples
        self._length = batches * BATCH_SIZE

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]

    def __len__(self) -> int:
        return self._length


def large_data() -> Data:
    return Data(
        "64 ready-made samples of 3×224×224 floats",
        Ready(list(torch.rand(LARGE_READY, *LARGE_SHAPE)), batches=20_000),
        {"batch_size": BATCH_SIZE},
        LARGE_BYTES,
    )


def small_data() -> Data:
    return Data(
        "64 ready-made samples of 1×28×28 floats",
        Ready(list(torch.rand(SMALL_READY, *SMALL_SHAPE)), batches=500_000),
        {"batch_size": BATCH_SIZE},
    )


def fields_data() -> Data:
    values = torch.rand(SMALL_READY, FIELDS_A_SAMPLE, FIELD_FLOATS)
    samples = [{f"field_{n:02}": field for n, field in enumerate(row)} for row in values]
    return Data(
        "64 ready-made samples of 40 tensors of 8 floats, in a dict",
        Ready(samples, batches=100_000),
        {"batch_size": BATCH_SIZE},
    )


def large(settings: Settings) -> list[Case]:
    window = settings.window(warm_up=24, batches=24, seconds=2.0)
    batches = Batches("large", large_data(), window)
    memcpy = Memcpy(LARGE_BYTES, LARGE_READY // BATCH_SIZE, BUFFERS)
    seconds = MEMCPY_S * settings.scale
    one = Limit(
        partial(independent_per_s, memcpy.batch, 1, seconds),
        f"one process that copies {LARGE_BYTES / 1e6:.1f} MB a batch and does nothing else",
    )
    two = Limit(
        partial(independent_per_s, memcpy.batch, 2, seconds),
        "two such processes at the same time",
    )
    threads = Limit(
        partial(independent_per_s, memcpy.batch, torch.get_num_threads(), seconds),
        "as many such processes as torch has threads, which share the stacking in the main process",
    )
    comparisons = (
        Comparison(
            batches,
            workers=2,
            targets=(Target(8, ("torch",)), Target(0.85, ("memcpy",))),
            limits={"memcpy": one, "two memcpy": two},
        ),
        Comparison(
            batches,
            workers=0,
            targets=(Target(5, ("torch",)),),
            limits={"memcpy on all threads": threads},
        ),
    )
    return [comparison.case(settings) for comparison in comparisons]


def small(settings: Settings) -> list[Case]:
    window = settings.window(warm_up=200, batches=200, seconds=2.0)
    batches = Batches("small", small_data(), window)
    return [
        Comparison(batches, workers, (Target(least, ("torch",)),)).case(settings)
        for workers, least in ((2, 4), (0, 0.7))
    ]


def fields(settings: Settings) -> list[Case]:
    window = settings.window(warm_up=20, batches=40, seconds=2.0)
    batches = Batches("fields", fields_data(), window)
    return [Comparison(batches, 2, (Target(8, ("torch",)),)).case(settings)]


LARGE = Work("large", large_data, large)
SMALL = Work("small", small_data, small)
FIELDS = Work("fields", fields_data, fields)
