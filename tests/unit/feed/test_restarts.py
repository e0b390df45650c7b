"""How often dead workers are replaced, and who is to blame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.feed.restarts import Blame, Restarts, Verdict


def test_no_more_than_the_limit_in_any_hour() -> None:
    restarts = Restarts(3)
    assert [restarts.take(at) for at in (0, 10, 20, 30, 3599)] == [True, True, True, False, False]
    assert restarts.take(3600)  # The first is an hour ago.
    assert not restarts.take(3601)
    assert restarts.used(3601) == 3
    assert restarts.total == 4


@given(limit=st.integers(0, 4), steps=st.lists(st.floats(0, 2000), max_size=40))
def test_whenever_they_die_no_hour_has_more(limit: int, steps: list[float]) -> None:
    restarts, now, taken = Restarts(limit), 0.0, []
    for step in steps:
        now += step
        recent = sum(1 for at in taken if now - at < 3600)
        assert restarts.take(now) == (recent < limit)
        if recent < limit:
            taken.append(now)
    assert restarts.total == len(taken)


def died(blame: Blame, batch: int | None, *, starting: bool = False) -> Verdict | None:
    return blame.died(0.0, batch, starting=starting)


def test_the_second_worker_that_dies_at_a_batch_is_the_last() -> None:
    blame = Blame(Restarts(100))
    assert died(blame, 7) is None
    assert died(blame, 8) is None
    assert blame.is_suspect(7)
    assert not blame.is_suspect(9)
    assert died(blame, 7) is Verdict.BATCH


def test_a_batch_that_was_made_after_all_is_not_to_blame_any_more() -> None:
    blame = Blame(Restarts(100))
    died(blame, 7)
    blame.answered(7)
    assert not blame.suspects
    assert died(blame, 7) is None


def test_another_epoch_has_other_batches() -> None:
    blame = Blame(Restarts(100))
    died(blame, 7)
    blame.begin_epoch()
    assert died(blame, 7) is None


def test_idle_workers_blame_no_batch() -> None:
    blame = Blame(Restarts(100))
    assert [died(blame, None) for _ in range(10)] == [None] * 10
    assert not blame.suspects


def test_ten_that_never_come_up_are_enough() -> None:
    blame = Blame(Restarts(100))
    for _ in range(9):
        assert died(blame, None, starting=True) is None
    assert died(blame, None, starting=True) is Verdict.START


def test_one_that_comes_up_between_is_a_good_sign() -> None:
    blame = Blame(Restarts(100))
    for number in range(50):
        assert died(blame, None, starting=True) is None
        if number % 9 == 8:
            blame.came_up()


def test_a_start_blames_no_batch() -> None:
    blame = Blame(Restarts(100))
    died(blame, 3, starting=True)
    assert not blame.suspects


def test_a_limit_of_zero_replaces_nobody() -> None:
    assert died(Blame(Restarts(0)), 3) is Verdict.SPENT
    assert died(Blame(Restarts(0)), None, starting=True) is Verdict.SPENT


def test_loaders_have_epochs_and_feeds_but_one_account() -> None:
    restarts = Restarts(2)
    assert died(Blame(restarts), 1) is None
    assert died(Blame(restarts), 1) is None
    assert died(Blame(restarts), 2) is Verdict.SPENT
