"""Which worker makes which batch, and which batch is handed out: a pure state machine.

No time, no process, no batch: only numbers. The feed tells it what happened and asks what to
do next.

States of a batch::

    assign        finished            deliver
      --> running ---------> ready ------------> delivered
           |  |                ^
           |  +- made -> pinning     |
           +-- shard_ended --> never was
      <---- lost ------ put_back ----+

Guarantees (checked by `validate`)
    - Every number is delivered once, in order when that is asked for. It is assigned once,
      and once more each time that it was put back, or lost with the worker that held it.
    - Batches running or ready never exceed the window, except while the consumer waits for
      one that is still being made, or has just waited: then free workers run ahead, up to
      another bound. They never exceed what memory allows.
    - Of a map-style data set any free worker makes the next batch, and workers may join and
      leave at any time: one that leaves makes what it holds, and gets no more. Of an iterable
      one, worker w makes numbers w, w + n, w + 2n ... until its iterator ends; the n workers
      stay, and one that is lost has another in its place at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import ceil

NOTICE_S = 0.00015
"""How long a worker that has finished waits for its next task, at best (measured: 0.1-0.3 ms)."""
BURST_S = 0.012
"""How much work a worker may hold while the consumer waits: enough not to wake for each batch."""
BURST_LIMIT = 64
NAP_LIMIT_S = BURST_S / 3
_BURST_LEAST = 3
_WORTH_QUEUEING = 0.05


def queue_depth(
    prefetch: int, away_s: float, service_s: float | None, *, waiting: bool = False
) -> int:
    """How many batches a worker should hold at once: the one it makes, and queued ones.

    A queued batch keeps a worker busy while nobody looks, but it cannot move to another
    worker if the one in front of it is slow. So no more are queued than the worker can make
    while the consumer is away. While the consumer waits, batches that take a fraction of a
    millisecond are queued in bursts: waking a process for each costs more than making it.

    Args:
        prefetch: The most there may be while the consumer does not wait.
        away_s: How long the consumer stays away between two batches.
        service_s: How long this worker takes for a batch, or None when not known yet.
        waiting: Whether the consumer waits, or has just had to.
    """
    if service_s is None:
        return prefetch
    service_s = max(service_s, 1e-9)
    unattended = (away_s + NOTICE_S) / service_s - _WORTH_QUEUEING
    depth = min(prefetch, 1 + max(0, ceil(min(unattended, prefetch))))
    burst = min(BURST_LIMIT, int(min(BURST_S / service_s, BURST_LIMIT))) if waiting else 0
    return max(depth, burst)


def nap_s(held: Iterable[tuple[int, float | None]]) -> float:
    """How long a waiting consumer should sleep before it waits for answers.

    A worker whose answer wakes nobody goes on at once. So while workers hold bursts of short
    batches, the consumer sleeps for a third of the shortest, instead of being woken for each
    batch.

    Args:
        held: For each worker, how many batches it has not answered, and can answer while
            nobody reads; and how long it takes for one, or None when not known yet.
    """
    bursts = [
        count * service_s if count >= _BURST_LEAST else 0.0
        for count, service_s in held
        if service_s is not None and service_s <= NAP_LIMIT_S
    ]
    return min(NAP_LIMIT_S, min(bursts, default=0.0) / 3)


class Dispatcher:
    """See the module.

    Args:
        workers: How many there are to begin with; at least 1 where `sharded`.
        prefetch: Batches in advance per worker, at least 1; the window is their product.
        in_order: Whether batches are delivered by number.
        sharded: Whether each worker has an iterator of its own.
    """

    def __init__(self, workers: int, prefetch: int, *, in_order: bool, sharded: bool) -> None:
        self.prefetch = prefetch
        self.in_order = in_order
        self.sharded = sharded
        self.head = 0
        self._next = 0
        self._again: list[int] = []
        self._exhausted = False
        self._queues: dict[int, deque[int]] = {}
        self._serving: set[int] = set()
        self._pinning: dict[int, int] = {}
        self._ready: dict[int, int] = {}
        self._rounds: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        for worker in range(workers):
            self.join(worker)

    def join(self, worker: int) -> None:
        """A worker may be given batches from now on."""
        self._serving.add(worker)
        self._queues.setdefault(worker, deque())
        self._rounds.setdefault(worker, 0)

    def leave(self, worker: int) -> None:
        """A worker is given no more batches; it makes those that it holds."""
        self._serving.discard(worker)

    def lost(self, worker: int) -> tuple[int, ...]:
        """A worker has died: what it held is to be made again, before anything new.

        It is given nothing until another joins under its number; of shards, the other has taken
        its place already.

        Returns:
            The numbers that it held.
        """
        numbers = tuple(self._queues.pop(worker, ()))
        if self.sharded:
            self._queues[worker] = deque()
            self._rounds[worker] = self._rounds.get(worker, 0) - len(numbers)
        else:
            self._serving.discard(worker)
            self._again += numbers
        return numbers

    def has_left(self, worker: int) -> bool:
        """Whether a worker that was told to leave has made all that it held."""
        return worker not in self._serving and not self._queues.get(worker)

    @property
    def serving(self) -> int:
        """Workers that may be given batches."""
        return len(self._serving)

    @property
    def window(self) -> int:
        """Most batches in flight while the consumer does not wait."""
        return len(self._serving) * self.prefetch

    @property
    def assigned_so_far(self) -> int:
        """The number after the last one that was assigned."""
        return self._next

    @property
    def in_flight(self) -> int:
        """Batches running, pinning or ready."""
        running = sum(map(len, self._queues.values()))
        return running + len(self._pinning) + len(self._ready)

    def running(self, worker: int) -> tuple[int, ...]:
        """The numbers a worker holds; the first is the one it is making."""
        return tuple(self._queues.get(worker, ()))

    def ready_of(self, worker: int) -> int:
        """How many batches of a worker are made and not handed out."""
        made = [*self._pinning.values(), *self._ready.values()]
        return made.count(worker)

    def is_pinned(self, number: int) -> bool:
        """Whether a batch is made, and has still to be pinned."""
        return number in self._pinning

    def is_pinning(self, worker: int) -> bool:
        """Whether a batch of a worker has still to be pinned."""
        return worker in self._pinning.values()

    def has_ended(self, worker: int) -> bool:
        """Whether there is nothing left for a worker to make in this epoch."""
        no_more = worker in self._ended if self.sharded else self._exhausted and not self._again
        return no_more and not self._queues.get(worker)

    def shard_is_over(self, worker: int) -> bool:
        """Whether the iterator of a worker has ended, whatever the worker still holds."""
        return self.sharded and worker in self._ended

    def next_assignment(
        self, *, waiting: bool, depths: Mapping[int, int], run_ahead: int, most: int
    ) -> tuple[int, int] | None:
        """The next (worker, number) to assign, or None.

        Args:
            waiting: Whether the consumer waits for a batch, or has just had to.
            depths: How many batches each worker may hold.
            run_ahead: Bound on batches in flight while the consumer waits.
            most: Bound on batches in flight that nothing lifts; at least 1.
        """
        in_flight = self.in_flight
        if self._is_held_up():  # Nothing that is in flight goes before the head is made again.
            in_flight = 0
        if in_flight >= most:
            return None
        if self.sharded:
            return self._next_of_shards(depths)
        if self._exhausted and not self._again:
            return None
        if in_flight >= (max(run_ahead, self.window) if waiting else self.window):
            return None
        held = {worker: len(self._queues[worker]) for worker in self._serving}
        free = [worker for worker in sorted(held) if held[worker] < depths[worker]]
        return (min(free, key=held.__getitem__), self.next_to_put_in) if free else None

    @property
    def is_still(self) -> bool:
        """Whether nothing is made or pinned, and nothing can be handed out."""
        return not self._is_busy() and self.deliverable() is None

    def _is_busy(self) -> bool:
        return any(self._queues.values()) or bool(self._pinning)

    def _is_held_up(self) -> bool:
        """Whether all that is in flight waits behind a batch that was put back."""
        return self.in_order and not self._is_busy() and self.head in self._again

    def whose_turn(self) -> int | None:
        """Of shards, whose batch is the next to assign; None where any worker may make it."""
        if not self.sharded:
            return None
        numbers = [
            (rounds * self.serving + worker, worker)
            for worker, rounds in self._rounds.items()
            if worker not in self._ended
        ]
        return min(numbers)[1] if numbers else None

    def _next_of_shards(self, depths: Mapping[int, int]) -> tuple[int, int] | None:
        held = {worker: len(queue) for worker, queue in self._queues.items()}
        for worker in (*self._pinning.values(), *self._ready.values()):
            if worker >= 0:  # not the sampler's error
                held[worker] += 1
        numbers = [
            (self._rounds[w] * self.serving + w, w)
            for w in self._serving
            if w not in self._ended and held[w] < self.prefetch
        ]
        if not numbers:
            return None
        number, worker = min(numbers)  # In this order, so that the head is always under way.
        return (worker, number) if len(self._queues[worker]) < depths[worker] else None

    def assigned(self, worker: int, number: int) -> None:
        """A worker was sent a batch."""
        if number in self._again:
            self._again.remove(number)
        self._queues[worker].append(number)
        self._next = max(self._next, number + 1)
        self._rounds[worker] += 1

    @property
    def next_to_put_in(self) -> int:
        """The number that is to be assigned, or skipped, next."""
        return min(self._again, default=self._next)

    def skip(self, number: int) -> None:
        """A batch was made and handed out elsewhere: the head, or while none was in flight."""
        assert not self.in_flight or (self.in_order and number == self.head)
        if number in self._again:
            self._again.remove(number)
        self._next = max(self._next, number + 1)
        self.head = number + 1 if self.in_flight else self.next_to_put_in

    @property
    def is_stranded(self) -> bool:
        """Whether the next batch is to be made again, and there is no worker for it."""
        return self.in_order and not self._serving and self.head in self._again

    def put_back(self, number: int) -> None:
        """A batch that was ready is dropped, to be made again before later ones."""
        del self._ready[number]
        self._again.append(number)

    def exhausted(self) -> None:
        """The sampler has no more batches."""
        self._exhausted = True

    def failed_to_plan(self) -> int:
        """The sampler raised in place of the next batch: its number, which is ready now."""
        number, self._next = self._next, self._next + 1
        self._ready[number] = -1
        self._exhausted = True
        return number

    def made(self, worker: int, number: int) -> None:
        """A worker has made a batch, which has to be pinned before it is ready."""
        self._queues[worker].remove(number)
        self._pinning[number] = worker

    def finished(self, worker: int, number: int) -> None:
        """A worker has made a batch, or failed to, or it has been pinned."""
        if self._pinning.pop(number, None) is None:
            self._queues[worker].remove(number)
        self._ready[number] = worker

    def left_out(self, worker: int, number: int) -> None:
        """A batch that a worker was making is given up; when its turn comes nobody gets it."""
        self._queues[worker].remove(number)
        self._ready[number] = -1

    def shard_ended(self, worker: int, number: int) -> None:
        """A worker's iterator had no batch `number`."""
        self._queues[worker].remove(number)
        self._ended[worker] = min(number, self._ended.get(worker, number))

    def deliverable(self) -> int | None:
        """The number of the batch to hand out now, or None."""
        if not self.in_order:
            return next(iter(self._ready), None)
        if self.sharded and (self._ready or len(self._ended) < self.serving):
            while self._was_never(self.head):  # Some number is still to come, so this ends.
                self.head += 1
        return self.head if self.head in self._ready else None

    def _was_never(self, number: int) -> bool:
        end = self._ended.get(number % self.serving)
        return end is not None and number >= end

    def delivered(self, number: int) -> None:
        """A batch was handed out."""
        del self._ready[number]
        if number == self.head:
            self.head += 1

    def done(self) -> bool:
        """Whether every batch of the epoch has been delivered."""
        no_more = len(self._ended) == self.serving if self.sharded else self._exhausted
        return no_more and self.in_flight == 0 and not self._again

    def validate(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        running = [number for queue in self._queues.values() for number in queue]
        running += self._pinning
        known = [*running, *self._ready, *self._again]
        assert len(set(known)) == len(known)
        assert all(number < self._next for number in known)
        if self.in_order and not self.sharded:
            assert self.head <= self._next
            assert len(known) == self._next - self.head
        if self.sharded:
            for worker, queue in self._queues.items():
                assert all(number % self.serving == worker for number in queue)
                assert len(queue) + self.ready_of(worker) <= self.prefetch
