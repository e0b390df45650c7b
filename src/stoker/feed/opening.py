"""How an answer becomes a batch: what is handed out of it, or raised in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker.errors import NotPicklable
from stoker.feed.crew import Crew
from stoker.feed.faults import cannot_be_built
from stoker.feed.losses import Reported
from stoker.feed.room import Room
from stoker.order.broken import Damage
from stoker.order.epoch import Task
from stoker.transport.unbuilt import Unbuilt
from stoker.workers.messages import Failed, LeftOut, Made
from stoker.workers.raised import Raised
from stoker.workers.tolerance import LEFT_OUT


class Opening:
    """Opens the answers of one feed.

    Args:
        crew: The workers.
        room: How many bytes batches in flight may take.
        sharded: Whether the data set is iterable.

    Attributes:
        reported: What is broken in batches that are not handed out yet.
        on_second_try: Called with a task, the name of an error, and whether all samples of the
            batch were let pass for it; where a worker has never read a sample, and for a batch
            that can't be sent or built. Makes the batch, or `LEFT_OUT`, in another way, and
            tells what is broken in it; or raises.
    """

    def __init__(self, crew: Crew, room: Room, *, sharded: bool) -> None:
        self._crew = crew
        self._room = room
        self._sharded = sharded
        self.reported = Reported()
        self.on_second_try: Callable[[Task, str, bool], tuple[Any, Damage | None]] | None = None

    def open(self, answer: Any, task: Task | None) -> Any:
        """The batch; `LEFT_OUT` where nobody is to get it.

        Args:
            answer: A worker and its message; or what stands for a batch.
            task: What it answers.

        Raises:
            Exception: What stands in place of the batch.
        """
        if answer is LEFT_OUT:
            return answer
        try:
            if isinstance(answer, tuple):
                worker, message = answer
                return self._open_of_worker(worker, message, task)
            if isinstance(answer, Raised):
                return self._failed(answer, False, task)
            if hasattr(answer, "reraise"):
                answer.reraise()
            return answer.batch
        except Unbuilt as broken:
            if self.on_second_try and task:
                return self._tried_again(task, "batches that can't be built again")
            raise cannot_be_built(broken, task, self._sharded) from broken.__cause__

    def _open_of_worker(self, worker: int, message: Any, task: Task | None) -> Any:
        man = self._crew.men.get(worker)
        is_sound = man is None or man.sound
        if isinstance(message, Failed):
            return self._failed(message.error, not is_sound, task)
        pool, damage = self._crew.pool, message.damage
        if damage and damage.is_whole and self.on_second_try and task and not is_sound:
            if isinstance(message, Made):
                pool.discard(worker, message.shipment)
            name = damage.broken[0].error.partition(":")[0]
            return self._tried_again(task, name, unreadable=True)
        if isinstance(message, LeftOut):
            return LEFT_OUT
        self._room.learn(pool.largest_bytes)
        copy = self._room.is_scarce and pool.lent >= self._room.lent_limit
        return pool.open(worker, message.shipment, copy=copy)

    def _failed(self, error: Raised, is_first: bool, task: Task | None) -> Any:
        unsent = error.name == NotPicklable.__name__
        if self.on_second_try and task and (unsent or is_first):
            return self._tried_again(task, error.name)
        raise error.rebuilt()

    def _tried_again(self, task: Task, name: str, *, unreadable: bool = False) -> Any:
        assert self.on_second_try is not None
        batch, damage = self.on_second_try(task, name, unreadable)
        self.reported.note(task.number, damage)
        return batch
