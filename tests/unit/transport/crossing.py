"""A worker's arena and the main process's slots, joined by a pipe within one process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import torch

from stoker.transport.arena import LentSlots, Shipment, WorkerArena
from stoker.transport.shm import Kind

Allocate = Callable[[int], "tuple[Any, int] | None"]


def stacked(allocate: Allocate, array: Any) -> torch.Tensor:
    """A tensor with the values of `array`, in the slot if there is room, as collation does it."""
    source = torch.as_tensor(np.ascontiguousarray(array))
    room = allocate(source.numel() * source.element_size()) if source.numel() else None
    if room is None:
        return source.clone()
    buffer, offset = room
    flat = torch.frombuffer(buffer, dtype=source.dtype, count=source.numel(), offset=offset)
    return flat.view(source.shape).copy_(source)


class Crossing:
    """Carries batches across as a worker and the main process do."""

    def __init__(self, kind: Kind, kept_limit: int = 1000) -> None:
        self.main, self.worker = multiprocessing.Pipe()
        self.arena = WorkerArena(kind)
        self.slots = LentSlots(kept_limit)
        self.shipments: list[Shipment] = []

    def __enter__(self) -> Crossing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.slots.close()
        del self.arena
        self.main.close()
        self.worker.close()

    def ship(self, make: Callable[[Allocate], Any]) -> Shipment:
        """Makes a batch on the worker's side and sends it."""
        released, forgotten = self.slots.take_ended()
        self.arena.release(released)
        self.arena.forget(forgotten)
        self.arena.begin()
        try:
            shipment = self.arena.commit(make(self.arena.allocate))
        except BaseException:
            self.arena.abort()
            raise
        if shipment.new is not None:
            self.arena.hand_over(shipment.new, self.worker, os.getpid())
            self.slots.attach(shipment.new, self.main)
        self.slots.retire(shipment.retired)
        self.shipments.append(shipment)
        return pickle.loads(pickle.dumps(shipment, protocol=5))

    def carry(self, make: Callable[[Allocate], Any]) -> Any:
        """Ships a batch and opens it."""
        return self.slots.open(self.ship(make))

    def send(self, batch: Any) -> Any:
        """Carries a batch that was not made in the slot."""
        return self.carry(lambda allocate: batch)

    @property
    def last(self) -> Shipment:
        return self.shipments[-1]

    @property
    def made(self) -> int:
        """How many slots the worker has made so far."""
        return sum(shipment.new is not None for shipment in self.shipments)
