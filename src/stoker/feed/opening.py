"""How an answer becomes a batch: what is handed out of it, or raised in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker.errors import NotPicklable
from stoker.feed.crew import Crew
from stoker.feed.faults import cannot_be_built
from stoker.feed.room import Room
from stoker.order.epoch import Task
from stoker.transport.unbuilt import Unbuilt
from stoker.workers.messages import Failed
from stoker.workers.raised import Raised


class Opening:
    """Opens the answers of one feed.

    Args:
        crew: The workers.
        room: How many bytes batches in flight may take.
        sharded: Whether the data set is iterable.

    Attributes:
        on_second_try: Called with a task and the name of an error: the first answer of a worker,
            or a batch that can't be sent. Makes the batch in another way, or raises.
    """

    def __init__(self, crew: Crew, room: Room, *, sharded: bool) -> None:
        self._crew = crew
        self._room = room
        self._sharded = sharded
        self.on_second_try: Callable[[Task, str], Any] | None = None

    def open(self, answer: Any, task: Task | None) -> Any:
        """The batch.

        Args:
            answer: A worker and its message; or what stands for a batch.
            task: What it answers.

        Raises:
            Exception: What stands in place of the batch.
        """
        try:
            if isinstance(answer, tuple):
                worker, message = answer
                return self._open_of_worker(worker, message, task)
            if hasattr(answer, "reraise"):
                answer.reraise()
            return answer.batch
        except Unbuilt as broken:
            if self.on_second_try and task:
                return self.on_second_try(task, "batches that can't be built again")
            raise cannot_be_built(broken, task, self._sharded) from broken.__cause__

    def _open_of_worker(self, worker: int, message: Any, task: Task | None) -> Any:
        if isinstance(message, Failed):
            man = self._crew.men.get(worker)
            return self._failed(message.error, man is not None and not man.batches, task)
        pool = self._crew.pool
        self._room.learn(pool.largest_bytes)
        copy = self._room.is_scarce and pool.lent >= self._room.lent_limit
        return pool.open(worker, message.shipment, copy=copy)

    def _failed(self, error: Raised, is_first: bool, task: Task | None) -> Any:
        unsent = error.name == NotPicklable.__name__
        if self.on_second_try and task and (unsent or is_first):
            return self.on_second_try(task, error.name)
        error.reraise()
        return None
