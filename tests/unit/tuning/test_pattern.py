from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial

import pytest

from stoker.tuning.pattern import every_nth, remarks
from stoker.tuning.statistics import Statistics
from tests.unit.tuning.invented_statistics import USUAL, invent

LONGEST = 512


def planted(count: int, waits: int, long_s: float, quick_s: float, jitter: float) -> list[float]:
    """One long wait after every `count` - 1 quick ones, each up to `jitter` of itself off."""
    chance = random.Random(count)
    return [
        (quick_s if at % count else long_s) * (1 + chance.uniform(-jitter, jitter))
        for at in range(waits)
    ]


def simulated(count: int, away_s: float, service_s: Callable[[], float]) -> list[float]:
    """The waits of a consumer whose workers each begin a batch as soon as one was handed out."""
    begun = [0.0] * count
    ready: list[tuple[int, float]] = [(at, begun[at] + service_s()) for at in range(count)]
    heapq.heapify(ready)
    now, waits = 0.0, []
    for number in range(LONGEST):
        _, done = heapq.heappop(ready)
        waits.append(max(0.0, done - now))
        now = max(now, done)
        heapq.heappush(ready, (number + count, now + service_s()))
        now += away_s
    return waits


class TestSlowEveryNth:
    @pytest.mark.parametrize("count", [2, 3, 4, 8, 16, 32])
    @pytest.mark.parametrize("jitter", [0.0, 0.2])
    def test_it_is_named_where_it_is(self, count: int, jitter: float) -> None:
        told = every_nth(planted(count, LONGEST, 0.3, 0.0004, jitter), count, 0.005)
        assert told is not None
        assert f"with {count} workers" in told

    def test_it_says_what_it_means_in_numbers(self) -> None:
        assert every_nth(planted(4, 100, 0.3, 0.0004, 0.0), 4, 0.005) == (
            "slow every 4th batch with 4 workers: 24 of 24 waits of about 300 ms came 4 batches "
            "after the one before; the 3 batches between were simply ready (0.4 ms), since the "
            "workers finish together. Loading is the bottleneck (94 % of the time is waiting), or "
            "the training step of 5 ms is tiny beside it; more workers help only while CPUs are "
            "free"
        )

    @pytest.mark.parametrize(
        ("count", "ordinal"), [(2, "2nd"), (3, "3rd"), (11, "11th"), (21, "21st")]
    )
    def test_ordinals(self, count: int, ordinal: str) -> None:
        told = every_nth(planted(count, LONGEST, 0.3, 0.0, 0.0), count, 0.001)
        assert told is not None
        assert told.startswith(f"slow every {ordinal} batch")

    @pytest.mark.parametrize("count", [2, 4, 8])
    def test_workers_that_finish_together_are_recognised(self, count: int) -> None:
        waits = simulated(count, 0.0005, lambda: 0.1)
        assert every_nth(waits, count, 0.0005) is not None

    def test_some_disturbance_is_borne(self) -> None:
        waits = planted(4, 200, 0.3, 0.001, 0.3)
        waits[50] = waits[121] = 0.5
        assert every_nth(waits, 4, 0.005) is not None

    def test_it_may_shift_in_the_middle(self) -> None:
        waits = planted(4, 100, 0.3, 0.001, 0.1) + planted(4, 103, 0.3, 0.001, 0.1)[3:]
        assert every_nth(waits, 4, 0.005) is not None

    @pytest.mark.parametrize("count", [0, 1])
    def test_it_needs_two_workers(self, count: int) -> None:
        assert every_nth([0.3] * 100, count, 0.005) is None

    def test_it_needs_several_cycles(self) -> None:
        assert every_nth(planted(4, 23, 0.3, 0.0, 0.0), 4, 0.005) is None
        assert every_nth(planted(2, 31, 0.3, 0.0, 0.0), 2, 0.005) is None
        assert every_nth([], 4, 0.005) is None

    def test_another_period_is_not_it(self) -> None:
        for period in (2, 3, 5, 8):
            assert every_nth(planted(period, LONGEST, 0.3, 0.0, 0.1), 4, 0.005) is None

    def test_waits_that_are_all_alike_are_not_it(self) -> None:
        assert every_nth([0.1] * 100, 4, 0.005) is None
        assert every_nth([0.0] * 100, 4, 0.0) is None

    def test_it_is_not_named_where_loading_is_no_bottleneck(self) -> None:
        """The same waits, but a step of the consumer beside which they are nothing."""
        waits = planted(4, LONGEST, 0.3, 0.0, 0.0)
        assert every_nth(waits, 4, 0.6) is not None
        assert every_nth(waits, 4, 0.8) is None

    def test_waits_of_the_scheduler_are_not_it(self) -> None:
        assert every_nth(planted(4, LONGEST, 0.0005, 0.0, 0.0), 4, 0.0) is None

    @pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
    @pytest.mark.parametrize(
        "draw",
        [
            lambda chance: chance.expovariate(10.0),
            lambda chance: chance.lognormvariate(-3.0, 2.0),
            lambda chance: chance.uniform(0.0, 0.2),
            lambda chance: 0.3 * (chance.random() < 0.5),
            lambda chance: 0.3 * (chance.random() < 0.1),
            lambda chance: chance.paretovariate(1.0) / 100,
        ],
        ids=["exponential", "lognormal", "uniform", "every other by chance", "rare", "pareto"],
    )
    def test_noise_is_not_it(self, count: int, draw: Callable[[random.Random], float]) -> None:
        for seed in range(100):
            chance = random.Random(seed)
            waits = [draw(chance) for _ in range(chance.randint(32, LONGEST))]
            assert every_nth(waits, count, 0.0) is None, seed

    @pytest.mark.parametrize("count", [2, 4, 8])
    def test_workers_that_do_not_finish_together_are_not_it(self, count: int) -> None:
        for seed in range(20):
            chance = random.Random(seed)
            waits = simulated(count, 0.001, partial(chance.expovariate, 10.0))
            assert every_nth(waits, count, 0.001) is None, seed

    @pytest.mark.parametrize("count", [2, 4, 8])
    def test_loading_that_keeps_up_is_not_it(self, count: int) -> None:
        for seed in range(20):
            chance = random.Random(seed)
            waits = simulated(count, 0.2, partial(chance.uniform, 0.05, 0.25))
            assert every_nth(waits, count, 0.2) is None, seed


class TestRemarks:
    def test_where_nothing_stands_out_there_is_none(self) -> None:
        assert remarks(USUAL) == ()
        assert remarks(Statistics()) == ()

    def test_more_workers_than_batches(self) -> None:
        told = remarks(invent(length=3, num_workers=16))
        assert told == ("3 batches an epoch for 16 workers: 13 have nothing to do",)
        assert remarks(invent(length=1, num_workers=2)) == (
            "1 batch an epoch for 2 workers: 1 has nothing to do",
        )
        assert remarks(invent(length=4, num_workers=4)) == ()
        assert remarks(invent(length=None, num_workers=16)) == ()
        assert remarks(invent(length=1, num_workers=1)) == ()

    def test_nothing_to_do_in_parallel_in_the_main_process(self) -> None:
        told = remarks(
            invent(num_workers=0, workers=(), batch_size=10, service_s=0.0005, starved_s=None)
        )
        assert told == (
            "a sample takes 0.05 ms, a batch of 10 takes 0.5 ms: "
            "nothing for workers to do in parallel",
        )

    def test_nothing_to_do_in_parallel_beside_what_handing_on_takes(self) -> None:
        told = remarks(
            invent(starved_s=None, service_s=0.002, batch_size=40, handling_s=1800 * 0.003)
        )
        assert told == (
            "a sample takes 0.05 ms, a batch of 40 takes 2 ms, no more than the 3 ms of handing it "
            "on from a worker: nothing for workers to do in parallel",
        )

    def test_without_a_batch_size_the_batch_is_told(self) -> None:
        told = remarks(invent(starved_s=None, service_s=0.0004, batch_size=None, handling_s=0.0))
        assert told == ("a batch takes 0.4 ms: nothing for workers to do in parallel",)

    def test_a_quick_sample_in_a_large_batch_is_something_to_do(self) -> None:
        assert remarks(invent(service_s=0.05, batch_size=1000)) == ()

    def test_few_batches_say_nothing_about_their_time(self) -> None:
        assert remarks(invent(service_s=0.0004, made=19)) == ()

    def test_starved_workers(self) -> None:
        told = remarks(invent(starved_s=0.04), live_loaders=2, all_workers=12, ranks=4)
        assert told == (
            "12 workers of 2 loaders, on 4 ranks, share 8 CPUs: "
            "they stood 40 % of their time without one",
        )
        assert remarks(invent(starved_s=0.04, cpus=None), all_workers=4) == (
            "4 workers share the CPUs: they stood 40 % of their time without one",
        )

    @pytest.mark.parametrize("starved_s", [None, 0.0, 0.01])
    def test_many_workers_alone_are_no_reason(self, starved_s: float | None) -> None:
        told = remarks(invent(starved_s=starved_s), live_loaders=9, all_workers=90, ranks=8)
        assert told == ()

    def test_without_workers_nobody_is_starved(self) -> None:
        assert remarks(invent(starved_s=0.04, num_workers=0, workers=())) == ()

    def test_waiting_for_a_turn(self) -> None:
        told = remarks(invent(waited_s=30.0, order_s=12.0))
        assert told == (
            "12.0 s of 30.0 s waiting were for a batch whose successors were ready: "
            "in_order=False hands those out first",
        )
        assert remarks(invent(waited_s=30.0, order_s=1.0)) == ()
        assert remarks(invent(waited_s=3.0, order_s=3.0)) == ()
