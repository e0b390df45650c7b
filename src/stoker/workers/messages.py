"""What the main process and a worker say to each other, over one pipe for each worker.

Every message is one pickle. Batches of more than a few kilobytes lie in slots, so messages
are small and a worker does not block on sending them.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from stoker.order.broken import Damage
from stoker.order.epoch import Task
from stoker.transport.arena import Shipment
from stoker.transport.layout import Envelope
from stoker.workers.raised import Raised


class BeginEpoch(NamedTuple):
    """To a worker: what follows belongs to another epoch.

    Attributes:
        epoch: Which one, counted by the iterator.
        key: What its random numbers follow from: base seed and count, see `EpochKey`.
        shared_seed: For data pipes, as torch has it.
    """

    epoch: int
    key: tuple[int, int]
    shared_seed: int | None


class Make(NamedTuple):
    """To a worker: make these batches, one after the other.

    Attributes:
        epoch: The epoch they belong to.
        tasks: The batches.
        released: Slots that are free again.
        forgotten: Slots that must not be used again.
        careful: Numbers of those at which a worker has died: the worker notes in its black box
            what it is about to read.
    """

    epoch: int
    tasks: tuple[Task, ...]
    released: tuple[int, ...]
    forgotten: tuple[int, ...]
    careful: tuple[int, ...] = ()


class Repeat(NamedTuple):
    """To a worker that replaces a dead one: first make again what that had made, for nobody.

    Attributes:
        epoch: The epoch it belongs to.
        steps: How many batches of its iterator over an iterable data set.
        digest: What `RunningDigest` had come to after them.
        task: Any of its tasks: all are alike.
    """

    epoch: int
    steps: int
    digest: int
    task: Task


class Stop(NamedTuple):
    """To a worker: end."""


class Started(NamedTuple):
    """From a worker, once: it has come up and ``worker_init_fn`` has run.

    Attributes:
        affinity: The CPUs it may run on; None where the system does not tell.
    """

    affinity: tuple[int, ...] | None


class Unbuildable(NamedTuple):
    """From a worker, the first and last that it says: it can't build what it was sent."""

    error: Raised


class Made(NamedTuple):
    """From a worker: a batch. The descriptor of a new slot follows on the pipe.

    Attributes:
        seconds: How long it took to make.
        cpu_s: CPU time of the worker meanwhile.
        starved_s: How long the worker could have run meanwhile and had no CPU; None where
            the system does not tell.
        digest: Of all batches of its iterator over an iterable data set, see `RunningDigest`.
        damage: What could not be read and was let pass; None: nothing.
    """

    epoch: int
    number: int
    shipment: Shipment
    seconds: float
    cpu_s: float
    starved_s: float | None
    digest: int = 0
    damage: Damage | None = None


class LeftOut(NamedTuple):
    """From a worker: nothing of the batch could be read, and all was let pass."""

    epoch: int
    number: int
    damage: Damage
    digest: int = 0


class Failed(NamedTuple):
    """From a worker: the batch could not be made; `error` re-raises what was raised."""

    epoch: int
    number: int
    error: Raised
    digest: int = 0


class ShardEnded(NamedTuple):
    """From a worker: its iterator over an iterable data set has no batch `number`.

    Attributes:
        changed: Whether the data set is seen to have kept something of it.
    """

    epoch: int
    number: int
    changed: bool = False


class Repeating(NamedTuple):
    """From a worker, now and then: it is repeating, and goes on."""

    epoch: int
    steps: int


class Repeated(NamedTuple):
    """From a worker: it has done what `Repeat` asked for.

    Attributes:
        differs: Empty where all was as before; else what differs, as a clause.
    """

    epoch: int
    differs: str


class Told(NamedTuple):
    """From a worker, between its answers: what it logs, or warns of, and its memory.

    Attributes:
        worker: Its number.
        kind: "log", "warning" or "memory"; or "torch", which was imported in a batch.
        what: The record or warning, in plain values; or a `Look`, as "look"; or nothing.
    """

    worker: int
    kind: str
    what: dict[str, Any]


_KINDS: tuple[type[Any], ...] = (
    BeginEpoch,
    Make,
    Stop,
    Started,
    Made,
    Failed,
    ShardEnded,
    Told,
    Repeat,
    Repeating,
    Repeated,
    LeftOut,
    Unbuildable,
)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


def dumps(message: Any) -> bytes:
    """Pickles a message; raises what pickle raises for what it cannot carry.

    As plain tuples: a named tuple takes pickle several times as long.
    """
    if type(message) is Made:
        *shipment, envelope = message.shipment
        fields: Any = (*message[:2], *message[3:], *shipment, *envelope)
    elif type(message) is Make:
        fields = (message.epoch, [tuple(task) for task in message.tasks], *message[2:])
    elif type(message) is Repeat:
        fields = (*message[:3], tuple(message.task))
    else:
        fields = tuple(message)
    return pickle.dumps((_CODES[type(message)], fields), protocol=5)


def loads(data: bytes) -> Any:
    """The message that `dumps` was given."""
    code, fields = pickle.loads(data)
    kind = _KINDS[code]
    if kind is Made:
        *made, slot, new, retired, size_bytes, stream, buffers, memory = fields
        shipped = Shipment(slot, new, retired, size_bytes, Envelope(stream, buffers, memory))
        return Made._make([*made[:2], shipped, *made[2:]])
    if kind is Make:
        epoch, tasks, *rest = fields
        return Make(epoch, tuple(Task(*task) for task in tasks), *rest)
    if kind is Repeat:
        return Repeat._make([*fields[:3], Task(*fields[3])])
    return kind(*fields)
