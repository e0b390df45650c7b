"""What a loader keeps from one epoch to the next, and what loaders know of each other."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from stoker.feed.adaptive import AdaptiveFeed
from stoker.host.facts import Fact
from stoker.host.memory import MemoryFacts
from stoker.host.ranks import CpuShare
from stoker.tuning import account
from stoker.tuning.account import Account
from stoker.tuning.governor import Least
from stoker.tuning.snapshot import Identity

IDENTITY = Identity("Planted, 8 samples", 2, 4)


class Workers:
    """Stands for an `AdaptiveFeed`, of which an account only needs this."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closed = False

    def rest(self) -> None:
        self.calls.append("rest")

    def close(self) -> None:
        self.calls.append("close")

    def put_back(self) -> None:
        self.calls.append("put back")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A machine, no other loader, and nobody outside who is told."""
    memory = Fact(1 << 30, "planted memory")
    share = CpuShare(Fact(1, "planted"), Fact(4.0, "planted CPUs"))
    published: list[bytes] = []
    monkeypatch.setattr(
        account, "memory_facts", lambda: MemoryFacts(memory, memory, Fact(None, "none"))
    )
    monkeypatch.setattr(account, "cpu_share", lambda: share)
    monkeypatch.setattr(account, "_ACCOUNTS", {})
    monkeypatch.setattr(account, "publish", lambda key, data: published.append(data))
    return published


def take_back(kept: Account, feed: Any, likeness: Any, *, persistent: bool = True) -> None:
    feed.made_of = likeness
    kept.take_back(persistent, feed)


def test_there_is_nothing_to_go_on_with_at_first() -> None:
    assert Account(None).take_spare("same") is None


def test_workers_are_kept_for_the_next_epoch() -> None:
    kept, feed = Account(None), Workers()
    take_back(kept, feed, "same")
    assert feed.calls == ["rest"]
    taken: Any = kept.take_spare("same")
    assert taken is feed
    assert feed.calls == ["rest"]
    assert kept.take_spare("same") is None, "two iterators at once do not share workers"


def test_workers_of_another_data_set_are_closed_and_their_number_is_kept() -> None:
    kept, feed = Account(None), Workers()
    take_back(kept, feed, "before")
    taken: Any = kept.take_spare("after")
    assert taken is feed
    assert feed.calls == ["rest", "close"]


def test_workers_that_are_not_to_persist_are_closed() -> None:
    kept, feed = Account(None), Workers()
    take_back(kept, feed, "same", persistent=False)
    assert feed.calls == ["close"]
    taken: Any = kept.take_spare("same")
    assert taken is feed


def test_of_two_iterators_the_second_to_end_is_closed() -> None:
    kept, first, second = Account(None), Workers(), Workers()
    take_back(kept, first, "same")
    take_back(kept, second, "same")
    assert (first.calls, second.calls) == (["rest"], ["close"])
    taken: Any = kept.take_spare("same")
    assert taken is first


def test_a_limit_that_was_set_stays() -> None:
    kept = Account(12_345)
    kept.begin_epoch(IDENTITY, automatic=True)
    assert (kept.room.limit_bytes, kept.room.source) == (12_345, "memory_limit")
    assert kept.room.strict


def serves(kept: Account) -> Workers:
    feed: Any = Workers()
    kept.serves(feed)
    return feed  # type: ignore[no-any-return]


def test_a_default_limit_is_divided_among_the_live() -> None:
    one, two, idle = Account(None), Account(None), Account(None)
    one.begin_epoch(IDENTITY, automatic=True)
    assert one.room.limit_bytes == 1 << 28
    assert not one.room.strict
    held = serves(one)
    idle.begin_epoch(IDENTITY, automatic=True)
    two.begin_epoch(IDENTITY, automatic=True)
    assert two.room.limit_bytes == 1 << 27
    assert two.room.source == "12% of planted memory"
    del held
    two.begin_epoch(IDENTITY, automatic=True)
    assert two.room.limit_bytes == 1 << 28


def used_of_late(kept: Account, monkeypatch: pytest.MonkeyPatch, now: float, cpus: float) -> None:
    kept.begin_epoch(IDENTITY, automatic=True)
    kept.meter.left_at = now
    kept.meter.open_window()
    kept.meter.totals.away_s += 2.0
    kept.meter.totals.cpu_s += 2.0 * cpus
    kept.meter.close_window(workers=1)


def test_cpus_that_others_use_of_late_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = Account(None), Account(None), Account(None)
    monkeypatch.setattr(account.time, "perf_counter", lambda: 50.0)
    one.begin_epoch(IDENTITY, automatic=True)
    assert one._others_cpus() == (0, 0)
    used_of_late(two, monkeypatch, 49.5, 1.5)
    used_of_late(three, monkeypatch, 49.9, 0.25)
    assert one._others_cpus() == (1.75, 2)
    assert two._others_cpus() == (0.25, 1)
    monkeypatch.setattr(account.time, "perf_counter", lambda: 50.8)
    assert one._others_cpus() == (0.25, 1)
    governor = one.new_governor(Least(0, ""), "fork")
    assert governor._cpus()[0] == 3.75
    assert one.governor is governor


def adaptive(feed: Workers) -> AdaptiveFeed:
    made = AdaptiveFeed.__new__(AdaptiveFeed)
    made._feed = feed  # type: ignore[assignment]
    return made


def telling(monkeypatch: pytest.MonkeyPatch, idle_s: float) -> tuple[Account, Account, Workers]:
    """One that tells, and another whose last batch was asked for so long ago."""
    monkeypatch.setattr(account.time, "perf_counter", lambda: 100.0 - idle_s)
    monkeypatch.setattr(Account, "statistics", lambda self: None)
    monkeypatch.setattr(account, "encode", lambda *_: b"")
    one, other = Account(None), Account(None)
    one.begin_epoch(IDENTITY, automatic=True)
    other.begin_epoch(IDENTITY, automatic=True)
    other.meter.left_at = 100.0 - idle_s
    feed = serves(other)
    monkeypatch.setattr(account.time, "perf_counter", lambda: 100.0)
    return one, other, feed


def test_telling_has_idle_ones_give_back(
    monkeypatch: pytest.MonkeyPatch, planted: list[bytes]
) -> None:
    one, _, feed = telling(monkeypatch, account.IDLE_S + 0.1)
    own = serves(one)
    assert one.tell() == 100.0 + account.TELL_EVERY_S
    assert feed.calls == ["put back"]
    assert own.calls == []
    assert len(planted) == 1


def test_one_that_was_asked_lately_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, feed = telling(monkeypatch, account.IDLE_S - 0.1)
    one.tell()
    assert feed.calls == []


def test_one_that_is_closed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, feed = telling(monkeypatch, 60)
    feed.closed = True
    one.tell()
    assert feed.calls == []


def test_one_of_another_thread_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, feed = telling(monkeypatch, 60)
    monkeypatch.setattr(account.time, "perf_counter", lambda: 40.0)
    begin = functools.partial(other.begin_epoch, IDENTITY, automatic=True)
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    monkeypatch.setattr(account.time, "perf_counter", lambda: 100.0)
    one.tell()
    assert feed.calls == []
    monkeypatch.setattr(account.time, "perf_counter", lambda: 40.0)
    begin()
    monkeypatch.setattr(account.time, "perf_counter", lambda: 100.0)
    one.tell()
    assert feed.calls == ["put back"]


def test_an_automatic_ones_workers_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, _ = telling(monkeypatch, 60)
    feed = Workers()
    around = adaptive(feed)
    other.serves(around)
    one.tell()
    assert feed.calls == ["put back"]


def test_an_account_that_has_seen_nothing_has_statistics() -> None:
    told = Account(None).statistics()
    assert (told.batches, told.num_workers, told.automatic) == (0, 0, False)
    assert told.workers == ()
    assert str(told)


def test_the_cpus_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    share = CpuShare(Fact(1, "planted"), Fact(4.0, "planted"))
    monkeypatch.setattr(account, "cpu_share", lambda: looks.append(1) or share)
    kept = Account(None)
    for _ in range(3):
        assert kept.share is share
    assert looks == [1]


def test_what_was_chosen_is_kept_from_one_governor_to_the_next() -> None:
    kept = Account(None)
    kept.new_governor(Least(0, ""), "fork").refused("one")
    kept.new_governor(Least(0, ""), "fork").refused("two")
    reasons = [decision.reason for decision in kept.statistics().decisions]
    assert reasons == ["no workers: one", "no workers: two"]


def test_what_is_fixed_is_said_once() -> None:
    kept = Account(None)
    for _ in range(3):
        kept.note_fixed(1, "an iterable data set")
    (decision,) = kept.statistics().decisions
    assert (decision.before, decision.workers, decision.reason) == (1, 1, "an iterable data set")


def test_an_affinity_that_shrank_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(account, "affinity_finding", lambda: "planted: 1 of 8 CPUs")
    kept = Account(None)
    assert [kept.statistics().remarks for _ in range(2)] == [("planted: 1 of 8 CPUs",)] * 2
    assert caplog.messages == ["planted: 1 of 8 CPUs"]
