"""The helper thread that copies batches into page-locked memory.

As in torch, pinning is a copy: handing out page-locked slots would let a slot be refilled
under a copy to the device that has not finished.

Guarantees
    - Whatever fails in the thread surfaces as itself, in place of the batch it belongs to.
    - The thread is ours alone: it ends with `close`, and is started after the workers.
    - This process is never forked, by whomever, while such a thread starts or pins: the copy
      would find locked what the thread holds, in Python or a library, and nobody to unlock it.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from stoker.host.forks import at_fork
from stoker.transport.arena import LentSlots
from stoker.transport.unbuilt import Unbuilt
from stoker.workers.messages import Made
from stoker.workers.process import ProcessPool
from stoker.workers.raised import Raised

_GATE = threading.RLock()
_EVERY_PINNER: weakref.WeakSet[Pinner] = weakref.WeakSet()
_PAUSED: list[threading.RLock] = []


def _before_fork() -> None:
    _GATE.acquire()
    for pinner in list(_EVERY_PINNER):
        lock = pinner.at_work
        lock.acquire()
        _PAUSED.append(lock)


def _after_fork() -> None:
    while _PAUSED:
        _PAUSED.pop().release()
    _GATE.release()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@dataclass
class Pinned:
    """A batch in page-locked memory, or, in its place, the error."""

    epoch: int
    number: int
    worker: int
    batch: Any


class PinFailed(Pinned):
    """A batch that could not be opened or pinned."""

    def reraise(self) -> None:
        """Raises what the thread caught, with its traceback."""
        raise self.batch if isinstance(self.batch, Unbuilt) else self.batch.rebuilt()


class Pinner:
    """Opens and pins batches in a thread.

    Args:
        pool: Opens the batches.
        device: The accelerator's type, as `torch.accelerator` names it.

    Attributes:
        connection: Can be read when `collect` has something.
        pending: Batches that were submitted and not collected.
        at_work: Held while a batch is pinned.
    """

    def __init__(self, pool: ProcessPool, device: str | None) -> None:
        self._pool = pool
        self._device = device
        self.connection, self._wake = multiprocessing.Pipe(duplex=False)
        self._waiting: queue.SimpleQueue[tuple[int, Made, LentSlots] | None] = queue.SimpleQueue()
        self._pinned: deque[Pinned] = deque()
        self.at_work = threading.RLock()
        self.pending = 0
        self._index = torch.accelerator.current_device_index()
        self._thread = threading.Thread(target=self._run, name="stoker-pin", daemon=True)
        with _GATE:
            self._thread.start()
            _EVERY_PINNER.add(self)

    def submit(self, worker: int, made: Made) -> None:
        """Gives the thread a batch, which outlives its worker. Does not block."""
        self.pending += 1
        self._waiting.put((worker, made, self._pool.slots_of(worker)))

    def collect(self) -> list[Pinned]:
        """What is done since the last time. Call when `connection` can be read."""
        self.connection.recv_bytes()
        self.pending -= 1
        return [self._pinned.popleft()]

    def close(self) -> None:
        """Ends the thread after the batch it is at."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        self.connection.close()
        self._wake.close()

    def _run(self) -> None:
        torch.accelerator.set_device_index(self._index)
        while (item := self._waiting.get()) is not None:
            with self.at_work:
                self._pinned.append(self._pin(*item))
            self._wake.send_bytes(b".")
            del item

    def _pin(self, worker: int, made: Made, slots: LentSlots) -> Pinned:
        try:
            batch = pin_memory(slots.open(made.shipment), self._device)
            return Pinned(made.epoch, made.number, worker, batch)
        except Unbuilt as broken:
            return PinFailed(made.epoch, made.number, worker, broken)
        except BaseException as error:
            where = f"in pin memory thread for device {self._index}, batch {made.number}"
            return PinFailed(made.epoch, made.number, worker, Raised.of(error, where))
