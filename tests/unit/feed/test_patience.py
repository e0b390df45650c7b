"""When a wait is looked at, told of, and ended."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stoker.feed.patience import FIRST_S, LEAST_S, Patience, Stage


def walked(patience: Patience, asked: float, usual_s: float | None, until_s: float) -> list[object]:
    """Every stage that comes up in a wait, with the seconds after which it does."""
    seen: list[object] = []
    now = asked + patience.first_look_s
    while now <= asked + until_s:
        stage = patience.due(asked, now, usual_s)
        if stage is not Stage.NOTHING:
            seen.append((round(now - asked, 3), stage))
        if stage is Stage.END:
            break
        assert patience.next_at() > now
        now = patience.next_at()
    return seen


def test_without_a_time_out_it_is_told_at_growing_distances() -> None:
    assert walked(Patience(0), 100.0, 0.1, 300) == [
        (15, Stage.LOOK),
        (30, Stage.TELL),
        (60, Stage.TELL),
        (120, Stage.TELL),
        (240, Stage.TELL),
    ]


def test_a_slow_data_set_gets_more_time() -> None:
    assert walked(Patience(0), 0.0, 20.0, 500) == [
        (100, Stage.LOOK),
        (200, Stage.TELL),
        (400, Stage.TELL),
    ]


def test_so_does_one_that_nothing_is_known_of() -> None:
    assert walked(Patience(0), 0.0, None, 70) == [
        (FIRST_S / 2, Stage.LOOK),
        (FIRST_S, Stage.TELL),
    ]


def test_a_time_out_ends_it() -> None:
    assert walked(Patience(5), 0.0, 0.1, 70) == [(2.5, Stage.LOOK), (5, Stage.END)]


def test_a_long_time_out_is_preceded_by_what_is_told_without_one() -> None:
    assert walked(Patience(100), 0.0, 0.1, 500) == [
        (15, Stage.LOOK),
        (30, Stage.TELL),
        (60, Stage.TELL),
        (100, Stage.END),
    ]


def test_another_wait_begins_at_nothing() -> None:
    patience = Patience(5)
    walked(patience, 0.0, 0.1, 70)
    assert walked(patience, 50.0, 0.1, 70) == [(2.5, Stage.LOOK), (5, Stage.END)]


def test_after_something_was_done_the_wait_begins_anew() -> None:
    patience = Patience(5)
    walked(patience, 0.0, 0.1, 70)
    patience.begin_anew(5.0)
    assert patience.next_at() == 7.5
    assert patience.due(0.0, 7.5, 0.1) is Stage.LOOK
    assert patience.due(0.0, 9.0, 0.1) is Stage.NOTHING
    assert patience.due(0.0, 10.0, 0.1) is Stage.END


def test_who_comes_back_late_looks_first() -> None:
    """The process was stopped, or had no CPU: that is nobody's hang."""
    patience = Patience(5)
    assert patience.due(0.0, 60.0, 0.1) is Stage.LOOK
    assert patience.due(0.0, 62.0, 0.1) is Stage.NOTHING
    assert patience.next_at() == 62.5
    assert patience.due(0.0, 62.5, 0.1) is Stage.END


@given(
    timeout_s=st.one_of(st.just(0.0), st.floats(0.01, 1e4)),
    usual_s=st.one_of(st.none(), st.floats(0, 1e3)),
    asked=st.floats(0, 1e6),
)
def test_a_wait_ends_at_the_time_out_and_is_told_of_never_too_soon(
    timeout_s: float, usual_s: float | None, asked: float
) -> None:
    stages = walked(Patience(timeout_s), asked, usual_s, 2e4)
    told = [at for at, stage in stages if stage is Stage.TELL]  # type: ignore[misc]
    assert all(at >= LEAST_S * 0.99 for at in told)
    assert all(later >= 1.9 * sooner for sooner, later in itertools.pairwise(told))
    ended = [at for at, stage in stages if stage is Stage.END]  # type: ignore[misc]
    assert len(ended) == bool(timeout_s)
    assert all(timeout_s * 0.99 - 0.01 <= at <= timeout_s * 1.01 + 0.01 for at in ended)
