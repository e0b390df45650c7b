"""Invented totals of a loader with four workers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from stoker.feed.window import Window
from stoker.tuning.decision import Decision
from stoker.tuning.statistics import Statistics, WorkerState

WINDOW = Window(
    workers=4,
    batches=100,
    seconds=5.0,
    waited_s=0.5,
    away_s=4.0,
    handling_s=0.5,
    made=110,
    busy_s=11.0,
    cpu_s=5.5,
    starved_s=None,
    order_s=0.25,
    batch_bytes=9_600_000,
)
USUAL = Statistics(
    automatic=True,
    num_workers=4,
    peak_workers=6,
    epochs=2,
    batches=1800,
    batch_size=64,
    length=938,
    seconds=120.0,
    waited_s=6.0,
    away_s=110.0,
    handling_s=4.0,
    order_s=0.5,
    start_s=0.4,
    made=1804,
    service_s=0.1,
    cpu_s=0.05,
    starved_s=0.001,
    batch_bytes=9_600_000,
    total_bytes=17_280_000_000,
    in_flight=4,
    peak_in_flight=12,
    slot_bytes=40 << 20,
    peak_slot_bytes=120 << 20,
    memory_limit=2 << 30,
    memory_limit_source="a quarter of memory.max",
    cpus=8.0,
    cpus_source="affinity",
    workers=(
        WorkerState(0, 4711, "working", 451, 0.1),
        WorkerState(1, 4712, "working", 450, 0.1),
        WorkerState(2, 4713, "idle", 452, 0.1),
        WorkerState(3, None, "starting"),
    ),
    recent=WINDOW,
    waits=((0.0001, 1500), (0.01, 0), (math.inf, 300)),
    decisions=(
        Decision(0, 2, "a batch takes 100 ms", (("service_s", 0.1),), 1.5, 12),
        Decision(2, 4, "the consumer waits 40 %", (("waiting", 0.4),), 12.0, 130),
    ),
    remarks=("something stood out",),
)


def invent(**changes: Any) -> Statistics:
    """`USUAL` with changes."""
    return replace(USUAL, **changes)
