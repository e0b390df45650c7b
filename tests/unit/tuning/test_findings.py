"""Planted records of what was seen, and what is answered about them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.answer import Answer, Rate
from stoker.tuning.findings import answer_of
from stoker.tuning.probing import Setting
from stoker.tuning.result import Failure
from stoker.tuning.site_record import Seen
from tests.unit.tuning.planted import again, answer, extras, own, record, replays, rounds, seen

SEARCHED = [seen(1, 10.0), seen(2, 19.5), seen(4, 38.0)]
STOKERS, AHEAD = Setting(4, "stoker"), Setting(4, "torch", 4)


def reason_of(found: Answer) -> str:
    assert found.advice is not None
    return found.advice.reason


def rate_of(found: Answer, count: int) -> Rate:
    [rate] = [each for each in found.rates if each.summary.num_workers == count]
    return rate


class TestTheNumber:
    def test_nothing_to_gain(self) -> None:
        found = answer(
            own(0, 9.9, 10.0, step_s=0.099),
            [seen(1, 10.05, step_s=0.099)],
            rounds({0: (10.0, 9.9), 1: (10.0, 10.0)}, step_s=0.099),
            replays(10.1, 10.1),
        )
        assert found.nothing_to_gain
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (0, 1.0)
        assert found.limit.kind == "consumer"
        assert found.bound_per_s == 10.1
        assert found.most_gain is not None
        assert 1 < found.most_gain < 1.03

    def test_more_workers(self) -> None:
        found = answer(
            own(0, 9.8, 10.0),
            SEARCHED,
            rounds({4: (38.0, 40.0, 39.0), 5: (38.5, 40.0, 39.2)}),
            again(0, 9.9),
            chosen=4,
        )
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.batches_per_s) == (4, 39.0)
        assert found.advice.gain == pytest.approx(3.9, abs=0.1)
        assert found.advice.certain
        assert found.change is not None
        assert "num_workers=4" in found.change.after
        told = reason_of(found)
        assert told.startswith("4 workers: 39 batches/s, 3.8 times the 9.9 of now with 0; ")
        assert "5 workers gave 39.2" in told
        assert "more round by round, which is within the noise" in told

    def test_fewer_workers_that_do_as_well(self) -> None:
        found = answer(
            own(8, 50.0, 50.5),
            [seen(2, 50.0)],
            rounds({2: (50.0, 51.0, 50.2), 8: (50.4, 50.6, 50.3)}),
            own=8,
            chosen=2,
            persistent=True,
        )
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (2, 1.0)
        assert "within the noise of the 50.4 of now with 8" in reason_of(found)
        assert found.change is not None
        assert found.change.text.startswith("num_workers=2")

    def test_a_gain_within_noise_is_none(self) -> None:
        """Twelve per cent more, of rates that vary by thirty."""
        found = answer(
            own(2, 40.0),
            rounds({2: (40.0, 50.0, 40.0), 4: (56.0, 40.0, 44.8)}),
            own=2,
            chosen=4,
            persistent=True,
        )
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (2, 1.0)
        assert found.change is None

    def test_a_small_gain_that_every_round_shows_is_one(self) -> None:
        found = answer(
            own(2, 40.0),
            rounds({2: (40.0, 50.0, 45.0), 4: (44.0, 55.0, 49.5)}),
            own=2,
            chosen=4,
            persistent=True,
        )
        assert found.advice is not None
        assert found.advice.num_workers == 4
        assert found.advice.gain == pytest.approx(1.1)
        assert ", 1.1 times the 45 of now with 2" in reason_of(found)

    def test_a_single_look_proves_no_small_gain(self) -> None:
        found = answer(own(2, 40.0), [seen(4, 42.0)], own=2, chosen=4, persistent=True)
        assert found.advice is not None
        assert found.advice.num_workers == 2

    def test_only_its_own_was_measured(self) -> None:
        found = answer(own(2, 20.0, 20.0), own=2, certain=False)
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (2, 1.0)
        assert not found.advice.certain
        assert reason_of(found) == (
            "2 workers: 20 batches/s; no other number was measured; the consumer waits 98 % of the "
            "time."
        )
        assert found.now_per_s == pytest.approx(20)
        assert found.bound_per_s is None
        assert found.most_gain is None

    def test_nothing_was_measured(self) -> None:
        found = answer(chosen=3, batches=0)
        assert found.advice is None
        assert found.change is None
        assert found.work is None
        assert (found.now_per_s, found.waiting, found.step_s) == (None, None, None)
        assert found.limit.sentence == (
            "nothing was measured to the end, so no limit can be named: no batch was handed out"
        )

    def test_what_there_was_is_told_where_it_was_too_short(self) -> None:
        found = answer(chosen=2, own=2, batches=27, epochs=1, seconds=0.2)
        assert found.limit.sentence == (
            "nothing was measured to the end, so no limit can be named: 27 batches in 1 epoch "
            "were handed out, in 200 ms, and one look takes at least 2 batches and 250 ms once 2 "
            "workers have begun, an answer several looks. Let it read for longer: more epochs, "
            "or a longer --budget"
        )

    def test_a_number_that_was_not_measured_is_not_recommended(self) -> None:
        found = answer(own(0, 10.0), [seen(4, 40.0)], chosen=7)
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.certain) == (4, False)

    def test_a_loader_that_chooses_itself_has_no_rate_of_now(self) -> None:
        found = answer(own(0, 10.0), [seen(4, 40.0)], chosen=4, automatic=True)
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (4, None)
        assert (found.now_per_s, found.waiting, found.parts) == (None, None, None)
        assert found.step_s is not None
        assert not any(rate.own for rate in found.rates)
        assert "of now" not in reason_of(found)
        assert found.change is None

    def test_the_most_that_was_tried_is_told(self) -> None:
        found = answer(
            own(0, 10.0),
            SEARCHED,
            rounds({2: (19.0, 20.0), 4: (38.0, 39.0)}),
            chosen=4,
            workers_most=(4, "memory: 1.0 GB are left (/proc/meminfo)"),
        )
        assert "it is the most that was tried (memory: 1.0 GB are left" in reason_of(found)
        assert found.limit.kind == "memory"
        level = answer(own(0, 10.0), rounds({2: (38.0, 39.0), 4: (38.0, 39.0)}), chosen=4)
        assert "the most that was tried" not in reason_of(level)

    def test_now_is_what_it_gives_once_the_program_has_warmed_up(self) -> None:
        """The first seconds at a third of the rate: with two workers nothing is to be gained."""
        found = answer(
            own(2, 12.0, 14.0, service_s=0.3),
            rounds({3: (39.0, 40.0), 4: (40.0, 40.2)}),
            again(2, 39.5, 39.0),
            own=2,
            chosen=3,
            persistent=True,
        )
        assert found.advice is not None
        assert (found.advice.num_workers, found.advice.gain) == (2, 1.0)
        assert found.advice.certain
        assert found.change is None
        assert found.now_per_s == pytest.approx(39.25)
        assert found.parts is not None
        assert found.parts.service_s == pytest.approx(0.1)

    def test_where_now_was_seen_only_while_warming_up_the_gain_is_not_certain(self) -> None:
        found = answer(own(2, 12.0, 14.0), rounds({3: (39.0, 40.0)}), own=2, chosen=3)
        assert found.advice is not None
        assert not found.advice.certain
        [told] = [each for each in found.remarks if "the program's beginning" in each]
        assert told.startswith("the rate of now is of 7.7 s at the program's beginning")
        later = answer(own(2, 12.0), rounds({3: (39.0, 40.0)}), again(2, 12.5), own=2, chosen=3)
        assert later.advice is not None
        assert later.advice.certain
        assert not any("the program's beginning" in each for each in later.remarks)

    def test_a_look_is_not_told_as_an_equal(self) -> None:
        found = answer(own(0, 10.0, 10.1), SEARCHED, chosen=4)
        told = reason_of(found)
        assert "about 3.8 times the 10 of now with 0" in told
        assert "a look at 2 workers gave about 19.5" in told
        assert "noise" not in told


class TestStarts:
    def test_short_epochs_that_start_workers_are_told_to_keep_them(self) -> None:
        """0.4 s of an epoch of 0.9 s."""
        found = answer(
            own(4, 22.0, 22.4, whole=True, first_batch_s=0.5),
            [seen(2, 18.0, whole=True, first_batch_s=0.4)],
            own=4,
            chosen=4,
            starts_s=[0.5, 0.5, 0.5],
            epoch_batches=20,
        )
        assert found.advice is not None
        assert found.advice.arguments == (("persistent_workers", "True"),)
        assert found.advice.gain == pytest.approx(1 / (1 - 0.4 / 0.9), abs=0.02)
        assert found.change is not None
        assert "persistent_workers=True" in found.change.after
        assert any("4 workers are started anew every epoch" in told for told in found.remarks)
        assert found.limit.kind != "start"
        assert rate_of(found, 4).summary.method == "epochs"

    def test_fewer_are_better_over_the_only_epoch(self) -> None:
        """Four give 40 once they run, and take two seconds of it."""
        found = answer(
            own(0, 10.0),
            [seen(2, 20.0, first_batch_s=0.1), seen(4, 40.0, first_batch_s=2.0)],
            chosen=4,
            epochs=1,
            epoch_batches=30,
        )
        assert found.advice is not None
        assert found.advice.num_workers == 2
        told = reason_of(found)
        assert told.startswith("2 workers: 20 batches/s, about 1.9 times the 10 of now with 0; ")
        assert "a look at 4 workers gave about 11 over an epoch" in told
        assert not found.advice.certain
        assert found.advice.gain == pytest.approx(30 / (0.1 + 29 / 20) / 10, rel=0.01)

    def test_a_long_epoch_pays_for_its_start(self) -> None:
        found = answer(
            own(0, 10.0),
            [seen(2, 20.0, first_batch_s=0.1), seen(4, 40.0, first_batch_s=2.0)],
            chosen=4,
            epochs=1,
            epoch_batches=100_000,
        )
        assert found.advice is not None
        assert found.advice.num_workers == 4

    def test_workers_that_stay_start_once(self) -> None:
        found = answer(
            own(4, 40.0, first_batch_s=2.0),
            own=4,
            chosen=4,
            epochs=5,
            persistent=True,
            starts_s=[2.0, 0.1, 0.1],
            epoch_batches=60,
        )
        assert found.advice is not None
        assert found.advice.arguments == ()
        assert not any("started anew" in told for told in found.remarks)

    def test_loaders_made_anew_for_every_epoch(self) -> None:
        found = answer(
            own(4, 22.0, 22.4, whole=True, first_batch_s=0.5),
            own=4,
            chosen=4,
            made=6,
            epochs=6,
            starts_s=[0.5] * 6,
            epoch_batches=20,
        )
        assert found.advice is not None
        assert found.advice.arguments == ()
        assert any("a new loader is made at this line every epoch" in t for t in found.remarks)


class TestOtherSettings:
    def test_stokers_loader_that_is_faster_is_told_as_a_way(self) -> None:
        found = answer(
            own(0, 10.0),
            rounds({4: (38.0, 39.0), 5: (38.5, 39.2)}),
            extras({Setting(4): (30.0, 31.0), STOKERS: (60.0, 62.0)}),
            chosen=4,
        )
        [told] = [each for each in found.remarks if "Stoker" in each or "stoker" in each]
        assert told == (
            "`from stoker import DataLoader` in place of PyTorch's gives 61 batches/s with "
            "4 workers, 2.0 times what PyTorch's gives with as many"
        )
        assert found.advice is not None
        assert found.advice.num_workers == 4
        assert [(r.summary.num_workers, r.engine) for r in found.rates][1:3] == [
            (4, "torch"),
            (4, "stoker"),
        ]

    def test_stokers_loader_that_is_as_fast_is_told_with_both_rates(self) -> None:
        found = answer(
            rounds({4: (38.0, 39.0), 5: (38.5, 39.2)}),
            extras({Setting(4): (38.0, 39.0), STOKERS: (38.2, 38.9)}),
            chosen=4,
            automatic=True,
        )
        [told] = [each for each in found.remarks if "Stoker's loader" in each]
        assert "Stoker's loader with 4 workers gave 38.5 batches/s, PyTorch's 38.5" in told
        assert told.endswith("within the noise")

    def test_more_in_advance(self) -> None:
        found = answer(
            own(4, 20.0),
            extras({Setting(4): (20.0, 21.0), AHEAD: (30.0, 31.0)}),
            own=4,
            chosen=4,
            persistent=True,
        )
        assert found.advice is not None
        assert found.advice.arguments == (("prefetch_factor", "4"),)
        assert found.advice.gain == pytest.approx(1.49, abs=0.02)
        assert found.change is not None
        assert "prefetch_factor=4" in found.change.text

    def test_more_in_advance_that_brings_nothing(self) -> None:
        found = answer(
            own(4, 20.0),
            extras({Setting(4): (20.0, 30.0), AHEAD: (30.0, 20.0)}),
            own=4,
            chosen=4,
            persistent=True,
        )
        assert found.advice is not None
        assert found.advice.arguments == ()
        assert found.change is None


class TestRemarks:
    def test_an_iterable_that_does_not_share_itself_out(self) -> None:
        refused = Failure(
            "raised",
            2,
            "2 workers would change what is read: each reads all of it",
            "trying 2 workers in the running program",
        )
        found = answer(own(1, 10.0), own=1, shards=False, failures=[refused])
        [told] = found.remarks
        assert "get_worker_info" in told

    def test_what_failed_is_told_once(self) -> None:
        failed = Failure("raised", 8, "ValueError: too many", "trying 8 workers")
        found = answer(own(0, 10.0), failures=[failed, failed])
        assert found.remarks == ("trying 8 workers failed: ValueError: too many",)

    def test_slow_every_nth_batch(self) -> None:
        found = answer(own(4, 20.0), own=4, waits_s=[0.2, 0.0001, 0.0001, 0.0001] * 40)
        assert any("slow every 4th batch with 4 workers" in told for told in found.remarks)


class TestRates:
    def test_in_turn_counts_more_than_looks(self) -> None:
        found = answer(own(0, 10.0), [seen(4, 90.0)], rounds({4: (40.0, 41.0)}), chosen=4)
        summary = rate_of(found, 4).summary
        assert summary.batches_per_s == pytest.approx(40.5)
        assert summary.repeats == 2
        assert summary.method == "steady"

    def test_one_window_has_no_spread(self) -> None:
        assert rate_of(answer(own(0, 10.0)), 0).summary.spread is None

    def test_ready_batches_are_never_slower_than_real_ones(self) -> None:
        found = answer(own(0, 10.0), [seen(2, 30.0)], replays(20.0, 21.0, 22.0), chosen=2)
        assert found.bound_per_s == pytest.approx(30)

    def test_a_stretch_that_tells_nothing_is_left_out(self) -> None:
        empty = seen(2, 20.0)
        empty = replace(empty, window=replace(empty.window, batches=0, made=0, busy_s=0.0))
        found = answer(own(0, 10.0), [empty], chosen=2)
        assert [rate.summary.num_workers for rate in found.rates] == [0]

    def test_ready_batches_are_no_setting(self) -> None:
        found = answer(own(0, 10.0), replays(100.0, 120.0))
        assert len(found.rates) == 1
        assert found.bound_per_s == pytest.approx(110)
        assert found.most_gain == pytest.approx(11)


def test_source_that_cannot_be_read_gives_the_text_alone() -> None:
    made = record(own(0, 10.0), [seen(4, 40.0)], chosen=4)
    found = answer_of(made, name="train.py:2", read_source=lambda file: "", whole=False)
    assert found.change is not None
    assert found.change.text.startswith("num_workers=4")
    assert found.change.after == ""


SETTINGS = st.builds(
    Setting,
    st.integers(0, 5),
    st.sampled_from(["torch", "torch", "stoker"]),
    st.sampled_from([None, None, 4]),
)
STRETCHES = st.builds(
    lambda setting, per_s, stage, turn, first_s, whole, step_s: seen(
        setting,
        per_s,
        stage=stage,
        round=turn,
        first_batch_s=first_s,
        memory_bytes=turn * 1000,
        whole=whole,
        step_s=step_s,
    ),
    SETTINGS,
    st.floats(0.01, 1e6),
    st.sampled_from(["own", "search", "confirm", "again", "extras", "replay"]),
    st.integers(0, 3),
    st.none() | st.floats(0, 100),
    st.booleans(),
    st.floats(0, 1),
)


@given(
    st.lists(STRETCHES, max_size=12),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([None, 0, 1, 8, 1000]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_whatever_was_seen_the_answer_rests_on_it(
    stretches: list[Seen],
    now: int,
    chosen: int,
    length: int | None,
    epochs: int,
    made: int,
    automatic: bool,
) -> None:
    found = answer(
        stretches,
        own=now,
        chosen=chosen,
        epoch_batches=length,
        epochs=epochs,
        made=made,
        automatic=automatic,
    )
    assert len(found.rates) <= len(stretches)
    plain = [r for r in found.rates if r.engine == "torch" and r.prefetch_factor is None]
    assert (found.advice is None) == (not plain)
    if found.advice is None:
        return
    [rate] = [r for r in plain if r.summary.num_workers == found.advice.num_workers]
    assert found.advice.batches_per_s == rate.summary.batches_per_s
    assert found.advice.reason.startswith(
        "1 worker: " if rate.summary.num_workers == 1 else f"{rate.summary.num_workers} workers: "
    )
    assert (found.advice.gain is None) == (found.now_per_s is None)
    if rate.own and not found.advice.arguments:
        assert found.advice.gain == 1.0
