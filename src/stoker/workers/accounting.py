"""What the main process knows of a worker's slots before the worker says so. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stoker.transport.arena import Shipment


@dataclass
class FreeSlots:
    """How many slots a worker will have free when it has made all that it was sent.

    Counted from what it is told: a task takes a free slot, or makes a new one.

    Attributes:
        count: Free slots.
        new: Of each task that is not answered, whether it makes a slot; oldest first.
    """

    count: int = 0
    new: deque[bool] = field(default_factory=deque)

    def sent(self, released: int, tasks: int) -> None:
        """A worker is told of slots that are free, and given tasks."""
        self.count += released
        for _ in range(tasks):
            self.new.append(self.count == 0)
            self.count -= self.count > 0

    def not_sent(self, released: int, tasks: int) -> None:
        """What was to be sent last was dropped."""
        for _ in range(tasks):
            self.count += not self.new.pop()
        self.count -= min(released, self.count)

    def answered(self, shipment: Shipment | None) -> None:
        """A task was answered, with a batch or without."""
        new = self.new.popleft()
        if shipment is None or shipment.slot is None:
            self.count += not new
        elif new and shipment.new is None:  # One that an earlier answer gave back.
            self.count -= self.count > 0
