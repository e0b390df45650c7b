"""Slots: recycled memory that batches are made in.

A slot belongs to the worker that made it; the main process attaches it once and then
leases it batch after batch. Who may touch a slot when::

                    begin             commit, sent
    worker:   free --------> filling --------------> lent ---------------+
                ^                                     :                  |
                |   release(id), sent with a task     : same memory      |
                +-------------------------------------:---- released <---+
    main:                              attached, leased -> last view gone

Guarantees
    - A slot is filled only when nobody in the main process can see it (its release was
      received) and nobody in the worker can (its last lease there is gone): what a consumer
      or a data set keeps never changes under it.
    - A slot that is lent while the main process forks is never filled again: the copy may
      hold the batch for longer.
    - A batch that outgrows its slot moves to a larger one and the small one is retired.
    - Finalizers only append to a deque: they take no lock and may run anywhere.

`WorkerArena` lives in the worker, `LentSlots` in the main process, `PrivateArena` in a
process that keeps its batches for itself. They are for one thread each, but for
`LentSlots.open` and the end of a lease, which may happen in any.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Collection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from stoker.errors import BatchTooLarge
from stoker.transport.layout import ALIGNMENT_BYTES, SMALL_BYTES, Envelope, Packing, unpack
from stoker.transport.shm import AttachedSegment, Kind, OwnedSegment, PrivateSegment

_ROUND_BYTES = 64 * 1024


class NewSlot(NamedTuple):
    """Tells the main process of a slot it has to attach: number, name or None, size."""

    slot: int
    name: str | None
    size_bytes: int


class Shipment(NamedTuple):
    """A batch ready to cross.

    Attributes:
        slot: The slot its memory lies in, or None when the envelope carries it.
        new: Set when that slot has not been attached yet.
        retired: Slots that will not be used again.
        size_bytes: What the batch takes, see `Packing.size_bytes`.
        envelope: The rest.
    """

    slot: int | None
    new: NewSlot | None
    retired: tuple[int, ...]
    size_bytes: int
    envelope: Envelope


def check_size(size_bytes: int, limit_bytes: int | None) -> None:
    """Refuses a batch that a limit on the memory of all batches has no room for.

    Raises:
        BatchTooLarge: It is larger than `limit_bytes`.
    """
    if limit_bytes is not None and size_bytes > limit_bytes:
        raise BatchTooLarge(
            f"one batch takes {size_bytes:,} bytes, and memory_limit is {limit_bytes:,}",
            likely="large samples, or many in a batch",
            change="a smaller batch_size=, or a larger memory_limit=",
        )


class WorkerArena:
    """The slots of one worker, on the worker's side.

    Args:
        kind: The kind of segment to make.
        batch_limit_bytes: Batches above this size are refused; None: there is no limit.
    """

    def __init__(self, kind: Kind, batch_limit_bytes: int | None = None) -> None:
        self._kind: Kind = kind
        self._batch_limit_bytes = batch_limit_bytes
        self._slots: dict[int, OwnedSegment] = {}
        self._free: dict[int, None] = {}  # in the order they came free
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._made = 0
        self._filling: int | None = None
        self._lease: Any = None
        self._cursor = 0

    def begin(self) -> None:
        """Chooses the slot for the next batch, if there is a free one."""
        self._cursor = 0
        clean = [slot for slot in self._free if self._seen[slot]() is None]
        if not clean:
            self._filling = None
            return
        # Of the largest, the one that came free last: it may still be in a cache.
        self._filling = max(reversed(clean), key=lambda slot: self._slots[slot].size_bytes)
        del self._free[self._filling]
        self._lease = self._slots[self._filling].lease()

    def allocate(self, size_bytes: int) -> tuple[Any, int] | None:
        """Room for a collated tensor in the slot being filled.

        Returns:
            The slot's memory and an aligned offset into it in bytes, or None when there is
            no slot yet or it is too small.
        """
        if self._lease is None or self._filling is None:
            return None
        offset = -(-self._cursor // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if offset + size_bytes > self._slots[self._filling].size_bytes:
            return None
        self._cursor = offset + size_bytes
        return self._lease, offset

    def commit(self, batch: object) -> Shipment:
        """Packs a batch, in its slot where it can.

        Raises:
            Exception: What pickle raises for a batch it cannot carry; call `abort` then.
            TransportError: There is no memory for a slot.
            BatchTooLarge: The batch is above the limit.
        """
        packing = Packing(batch, self._home(), self._cursor)
        check_size(packing.size_bytes, self._batch_limit_bytes)
        if packing.end <= SMALL_BYTES and not packing.in_home:
            memory = bytearray(packing.end)
            if packing.placed:
                packing.write(memory, same_slot=False)
            self.abort()
            return Shipment(None, None, (), packing.size_bytes, packing.envelope(bytes(memory)))
        if self._filling is not None and packing.end <= self._slots[self._filling].size_bytes:
            packing.write(self._lease, same_slot=True)
            return self._lend(None, (), packing)
        return self._outgrow(packing)

    def _outgrow(self, packing: Packing) -> Shipment:
        old = self._filling
        need = packing.end if old is None else packing.end * 5 // 4
        largest = max((slot.size_bytes for slot in self._slots.values()), default=0)
        size_bytes = -(-max(need, largest) // _ROUND_BYTES) * _ROUND_BYTES
        if self._batch_limit_bytes is not None:
            size_bytes = max(packing.end, min(size_bytes, self._batch_limit_bytes))
        segment = OwnedSegment(self._kind, size_bytes)
        lease = segment.lease()
        packing.write(lease, same_slot=False)
        retired: tuple[int, ...] = ()
        if old is not None:
            self._slots.pop(old).close()
            del self._seen[old]
            retired = (old,)
        self._made += 1
        self._slots[self._made], self._filling, self._lease = segment, self._made, lease
        return self._lend(NewSlot(self._made, segment.name, size_bytes), retired, packing)

    def _lend(self, new: NewSlot | None, retired: tuple[int, ...], packing: Packing) -> Shipment:
        slot = self._filling
        assert slot is not None
        self._seen[slot] = weakref.ref(self._lease)
        self._filling = self._lease = None
        return Shipment(slot, new, retired, packing.size_bytes, packing.envelope(None))

    def hand_over(self, new: NewSlot, connection: Connection, pid: int | None) -> None:
        """Sends what follows the message that tells of a new slot."""
        self._slots[new.slot].hand_over(connection, pid)

    def abort(self) -> None:
        """Gives the slot being filled back: its batch is not sent, or not in it."""
        if self._filling is not None:
            self._seen[self._filling] = weakref.ref(self._lease)
            self._free[self._filling] = None
        self._filling = self._lease = None

    def release(self, slots: tuple[int, ...]) -> None:
        """The main process can't see these slots any more."""
        self._free.update((slot, None) for slot in slots if slot in self._slots)

    def forget(self, slots: tuple[int, ...]) -> None:
        """These slots are never to be filled again."""
        for slot in slots:
            if slot in self._slots:
                self._slots.pop(slot).close()
                del self._seen[slot]
                self._free.pop(slot, None)

    def _home(self) -> tuple[int, int] | None:
        if self._lease is None or self._filling is None or not self._cursor:
            return None
        return ctypes.addressof(self._lease), self._slots[self._filling].size_bytes


class _Loan(weakref.ref[Any]):
    """A weak reference to a lease that knows which slot it is on."""

    __slots__ = ("forked", "slot")
    slot: int
    forked: bool


_EVERY_LENT: weakref.WeakSet[LentSlots] = weakref.WeakSet()


def _before_fork() -> None:
    for slots in list(_EVERY_LENT):
        slots._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


class LentSlots:
    """The slots of one worker as the main process sees them.

    Args:
        kept_limit: How many delivered batches may stay in their slots at once; further
            ones are copied out, so that a consumer that keeps everything takes its own memory.
    """

    def __init__(self, kept_limit: int) -> None:
        self._kept_limit = kept_limit
        self._slots: dict[int, AttachedSegment] = {}
        self._loans: dict[int, _Loan] = {}
        self._ended: deque[_Loan] = deque()
        self._released: list[int] = []
        self._forgotten: list[int] = []
        _EVERY_LENT.add(self)

    @property
    def count(self) -> int:
        """Slots there are."""
        return len(self._slots)

    @property
    def lent(self) -> int:
        """Slots that the consumer still sees a batch in."""
        return len(self._loans) - len(self._ended)

    @property
    def size_bytes(self) -> int:
        """Memory of all slots there are."""
        return sum(segment.size_bytes for segment in self._slots.values())

    def attach(self, new: NewSlot, connection: Connection) -> None:
        """Attaches a slot; blocks until its descriptor has come."""
        self._slots[new.slot] = AttachedSegment(new.name, new.size_bytes, connection)

    def retire(self, slots: tuple[int, ...]) -> None:
        """The worker will not use these slots again."""
        for slot in slots:
            self._slots.pop(slot).close()

    def open(self, shipment: Shipment, *, copy: bool = False) -> Any:
        """Builds a batch. Its slot is released when the last view of the batch is gone.

        The only method that another thread may call.

        Args:
            shipment: The batch.
            copy: Whether to copy it out of its slot, which is then free at once.

        Raises:
            Unbuilt: Something in it can't be rebuilt.
        """
        if shipment.slot is None:
            return unpack(shipment.envelope, shipment.envelope.memory, copy=True)
        lease = self._slots[shipment.slot].lease()
        loan = _Loan(lease, self._ended.append)
        loan.slot, loan.forked = shipment.slot, False
        copy = copy or self.lent >= self._kept_limit
        self._loans[id(loan)] = loan
        return unpack(shipment.envelope, lease, copy=copy)

    def discard(self, shipment: Shipment) -> None:
        """Releases the slot of a batch that nobody will open."""
        if shipment.slot is not None:
            self._released.append(shipment.slot)

    def take_ended(self, excess: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The slots that were released, and those to forget, since the last call.

        Args:
            excess: So many of those that were released are forgotten: there are too many.
        """
        while self._ended:
            loan = self._ended.popleft()
            if self._loans.pop(id(loan), None) is None:
                continue  # The slot was given up before, see `empty`.
            if loan.forked:
                self._slots.pop(loan.slot).close()
                self._forgotten.append(loan.slot)
            else:
                self._released.append(loan.slot)
        for slot in self._released[: max(0, excess)]:
            self._slots.pop(slot).close()
            self._forgotten.append(slot)
        ended = tuple(self._released[max(0, excess) :]), tuple(self._forgotten)
        self._released, self._forgotten = [], []
        return ended

    def put_back(self, ended: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        """What `take_ended` returned did not reach the worker: it goes with a later message."""
        self._released += ended[0]
        self._forgotten += ended[1]

    def empty(self, held: Collection[int | None]) -> None:
        """Gives the memory of unused slots back; the worker does so with its next message.

        Call only while the worker makes nothing.

        Args:
            held: Slots with a batch that was neither opened nor discarded.
        """
        self.put_back(self.take_ended())
        self._loans.clear()  # What the consumer still sees is its own from now on.
        for slot in [slot for slot in self._slots if slot not in held]:
            self._slots.pop(slot).close()
            self._forgotten.append(slot)
        self._released = [slot for slot in self._released if slot in self._slots]

    @property
    def to_be_told(self) -> int:
        """Slots that are free, which the worker learns with its next message."""
        return len(self._ended) + len(self._released)

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell the worker: slots that are free, or to forget."""
        return bool(self._ended or self._released or self._forgotten)

    def _forked(self) -> None:
        """This process is being copied: the copy goes on seeing what is lent now."""
        for loan in list(self._loans.values()):
            loan.forked = loan() is not None

    def close(self) -> None:
        """Forgets every slot. Memory that a consumer still sees stays until it lets go."""
        for segment in self._slots.values():
            segment.close()
        self._slots.clear()


class PrivateArena:
    """Recycled memory for batches made in this process.

    Fresh memory of tens of megabytes costs more to fault in than to fill, so large tensors
    are collated into memory that earlier batches have left.

    Args:
        spare_limit: How many unused pieces to keep.
    """

    def __init__(self, spare_limit: int = 4) -> None:
        self._spare_limit = spare_limit
        self._spare: list[PrivateSegment] = []
        self._loans: dict[int, tuple[_Loan, PrivateSegment]] = {}
        self._ended: deque[_Loan] = deque()

    def allocate(self, size_bytes: int) -> tuple[Any, int]:
        """Memory of at least `size_bytes` that nobody else sees, and the offset 0."""
        while self._ended:
            self._spare.append(self._loans.pop(id(self._ended.popleft()))[1])
        segment = self._take(size_bytes)
        lease = segment.lease()
        loan = _Loan(lease, self._ended.append)
        self._loans[id(loan)] = (loan, segment)
        return lease, 0

    def _take(self, size_bytes: int) -> PrivateSegment:
        fitting = [s for s in self._spare if size_bytes <= s.size_bytes <= 2 * size_bytes]
        if fitting:
            segment = min(fitting, key=lambda s: s.size_bytes)
            self._spare.remove(segment)
        else:
            segment = PrivateSegment(-(-size_bytes // _ROUND_BYTES) * _ROUND_BYTES)
        while len(self._spare) > self._spare_limit:
            self._spare.pop(0).close()
        return segment
