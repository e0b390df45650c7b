"""What a loader keeps from one epoch to the next: its numbers, its governor, its workers.

All accounts of a process know of each other, so that loaders share its CPUs and memory.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from stoker.feed.adaptive import AdaptiveFeed
from stoker.feed.feed import Feed
from stoker.feed.iteration import Lasting
from stoker.feed.meter import Meter
from stoker.feed.restarts import Restarts
from stoker.feed.room import Room
from stoker.host.affinity import affinity_finding, worker_finding
from stoker.host.cpus import mask_now
from stoker.host.interrupts import undisturbed
from stoker.host.memory import memory_facts
from stoker.host.ranks import CpuShare, cpu_share
from stoker.order.epoch import EpochPlan
from stoker.transport.board import publish, withdraw
from stoker.tuning.beginnings import began, remarks
from stoker.tuning.decision import Decision
from stoker.tuning.governor import Least, LoaderGovernor
from stoker.tuning.known import Known
from stoker.tuning.memory_watch import MemoryWatch
from stoker.tuning.snapshot import Identity, Now, snapshot
from stoker.tuning.statistics import Statistics, WorkerState
from stoker.tuning.status import encode
from stoker.workers.making import Draws

_log = logging.getLogger("stoker")

TELL_EVERY_S = 0.5
IDLE_S = 5.0
ACTIVE_S = 1.0
_MEMORY_SHARE = 0.25

_ACCOUNTS: dict[int, weakref.ref[Account]] = {}
_KEYS = itertools.count(1)


def _every_account() -> list[Account]:
    """Those that have been used. A weak set must not grow in one thread while another looks."""
    return [account for held in list(_ACCOUNTS.values()) if (account := held()) is not None]


def _end(key: int) -> None:
    _ACCOUNTS.pop(key, None)
    withdraw(key)


class Account:
    """See the module.

    Args:
        memory_limit: What the user has set, in bytes; None: a share of what is available.
        max_restarts: How many workers that died may be replaced in an hour.
        max_errors: How many samples of an epoch, or which share of them, may be broken.

    Attributes:
        draws: What is known about whether samples draw.
        meter: What has happened.
        room: The memory for batches in flight.
        restarts: How many workers that died were replaced, and may be.
        lasting: The base seed of all epochs, where they share one.
        governor: What chooses the number of workers; None where that is given.
        decisions: What was chosen, in order of time.
        automatic: Whether the number of workers is chosen and not given.
    """

    def __init__(
        self,
        memory_limit: int | None,
        max_restarts: int = 0,
        max_errors: int | float | None = None,
    ) -> None:
        self.restarts = Restarts(max_restarts)
        self.draws = Draws()
        self.lasting = Lasting()
        self.meter = Meter()
        self.meter.losses.limit = max_errors
        losses = self.meter.losses
        self._memory = MemoryWatch(self.meter, lambda: losses.length)
        self._memory_limit = memory_limit
        self._share: CpuShare | None = None
        self.room = Room(memory_limit or 0, "memory_limit", strict=memory_limit is not None)
        self.governor: LoaderGovernor | None = None
        self._recalled = False
        self._known: Known | None = None
        self.decisions: list[Decision] = []
        self._spare: AdaptiveFeed | None = None
        self._feed: Callable[[], AdaptiveFeed | Feed | None] = lambda: None
        self._began_at = 0.0
        self._identity = Identity("", None, None)
        self.automatic = False
        self._plan: Callable[[], EpochPlan | None] = lambda: None
        self._warned: set[str] = set()
        self._thread = threading.get_ident()
        self._key = next(_KEYS)
        weakref.finalize(self, undisturbed, _end, self._key)

    @property
    def share(self) -> CpuShare:
        """The CPUs of this process; looked up once."""
        if self._share is None:
            self._share = cpu_share()
        return self._share

    def begin_epoch(self, identity: Identity, *, automatic: bool) -> None:
        """An iterator is about to be made.

        Args:
            identity: What the loader is known by.
            automatic: Whether its number of workers is chosen and not given.
        """
        self._identity = identity
        self.meter.losses.length = identity.length
        self.automatic = automatic
        began(identity.name, self.meter.totals)
        self._thread = threading.get_ident()
        self._began_at = time.perf_counter()
        _ACCOUNTS[self._key] = weakref.ref(self)
        if self._memory_limit is None:
            memory = memory_facts().available_bytes
            live = max(1, sum(1 for other in _every_account() if other is self or other._is_held()))
            part = _MEMORY_SHARE / live / self.share.ranks.value
            self.room.set_limit(int(memory.value * part), f"{part:.0%} of {memory.source}")

    def leave(self) -> None:
        """Another epoch is about to be drawn; the one before may have been left."""
        plan = self._plan()
        if plan is not None:
            plan.leave()

    def begun(self, plan: EpochPlan) -> None:
        """An epoch was drawn."""
        self._plan = weakref.ref(plan)

    def serves(self, feed: AdaptiveFeed | Feed) -> None:
        """The iterator's batches come from there."""
        self._feed = weakref.ref(feed)

    def known(self, loader: Any) -> Known | None:
        """What is known of the loader's work from before; looked up once."""
        if not self._recalled:
            from stoker.tuning.recall import recall

            self._recalled, self._known = True, recall(loader)
        return self._known

    def new_governor(self, least: Least, method: str, known: Known | None = None) -> LoaderGovernor:
        """Makes what chooses the number of workers, which begins with what is known."""
        others = weakref.WeakMethod(self._others_cpus)
        self.governor = LoaderGovernor(
            least,
            self.share,
            lambda: ((held := others()) and held()) or (0.0, 0),
            self.room,
            self.meter,
            self.decisions,
            method,
            known=known,
        )
        return self.governor

    def note_fixed(self, workers: int, reason: str) -> None:
        """The number of workers was chosen for good, without measuring."""
        if not self.decisions:
            self.decisions.append(Decision(workers, workers, reason))
            _log.info("num_workers %d -> %d at batch 0: %s", workers, workers, reason)

    def take_spare(self, likeness: Any) -> AdaptiveFeed | None:
        """The workers of the epoch before, if nobody uses them and they still fit.

        Args:
            likeness: What workers would be made from now, to compare with `made_of`.
        """
        feed, self._spare = self._spare, None
        if feed is not None and feed.made_of != likeness:
            feed.close()
        return feed

    def drop_spare(self) -> None:
        """Ends the workers of the epoch before."""
        feed, self._spare = self._spare, None
        if feed is not None:
            feed.close()

    def take_back(self, persistent: bool, feed: AdaptiveFeed) -> None:
        """An epoch is over, or was left: keeps the workers for the next, without batches."""
        if self._spare is not None or not persistent:
            feed.close()
        else:
            try:
                feed.rest()
            except Exception:  # A worker has died: nobody could catch that here.
                feed.close()
        if self._spare is None:
            self._spare = feed

    def _is_held(self) -> bool:
        return self._feed() is not None

    def _worker_feed(self) -> Feed | None:
        feed = self._feed()
        return feed.feed if isinstance(feed, AdaptiveFeed) else feed

    def _others_cpus(self) -> tuple[float, int]:
        """CPUs that other loaders use which were asked for a batch of late; and how many."""
        now = time.perf_counter()
        used = [
            other.meter.recent.cpu_s / other.meter.recent.seconds
            for other in _every_account()
            if other is not self
            and now - other.meter.left_at < ACTIVE_S
            and other.meter.recent is not None
            and other.meter.recent.seconds > 0
        ]
        return sum(used), len(used)

    def tell(self) -> float:
        """Lets the outside know how it goes, and has idle loaders give their batches back.

        Returns:
            When to do so next, as `time.perf_counter` counts.
        """
        publish(self._key, encode(self.statistics(), self._identity.name, time.time()))
        now = time.perf_counter()
        for other in _every_account():
            asked_at = max(other.meter.left_at, other._began_at)
            if other is not self and now - asked_at > IDLE_S:
                other._give_back()
        return now + TELL_EVERY_S

    def hide(self) -> None:
        """The outside is to see it no more. For finalizers too: it takes no lock."""
        withdraw(self._key)

    def _give_back(self) -> None:
        """Drops batches that wait for a consumer who is elsewhere; they are made again."""
        feed = self._worker_feed()
        if self._thread == threading.get_ident() and feed is not None and not feed.closed:
            feed.put_back()

    def statistics(self) -> Statistics:
        """A snapshot."""
        feed = self._worker_feed()
        if feed is not None and feed.closed:
            feed = None
        workers = self._workers()
        live = [account for account in _every_account() if account._is_held()]
        now = Now(
            workers=workers,
            in_flight=feed.in_flight if feed else 0,
            slot_bytes=feed.slot_bytes if feed else 0,
            automatic=self.automatic,
            peak_workers=self.meter.peak_workers,
            cpus=self.share.cpus.value,
            cpus_source=self.share.cpus.source,
            ranks=self.share.ranks.value,
            live_loaders=len(live),
            all_workers=sum(account._worker_count() for account in live),
            decisions=self.decisions,
            findings=[*remarks(self._identity.name, self.meter), *self._findings()],
            replaced=self.restarts.total,
            worker_memory=self._memory.now(),
        )
        return snapshot(self.meter, self.room, self._identity, now)

    def _findings(self) -> list[str]:
        """What is odd about the CPUs that this process and its workers may run on."""
        feed, mask = self._worker_feed(), mask_now()
        crew = list(feed.crew.men.items()) if feed is not None and not feed.closed else ()
        told = [affinity_finding(), *(worker_finding(n, mask, man.affinity) for n, man in crew)]
        found = [finding for finding in told if finding]
        for finding in found:
            if finding not in self._warned:
                self._warned.add(finding)
                _log.warning("%s", finding)
        return found

    def _worker_count(self) -> int:
        feed = self._worker_feed()
        return 0 if feed is None or feed.closed else feed.crew.staying

    def _workers(self) -> tuple[WorkerState, ...]:
        feed = self._worker_feed()
        if feed is None or feed.closed:
            return ()
        crew = feed.crew
        return tuple(
            WorkerState(n, crew.pid_of(n), crew.state_of(n), man.batches, man.service_s)
            for n, man in list(crew.men.items())
        )
