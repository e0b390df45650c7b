"""When a worker that has made nothing yet is looked at, and given up."""

from __future__ import annotations

import pytest

from stoker.feed.patience import Stage
from stoker.feed.plight import Condition, Plight, likely, may_miss_threads
from stoker.feed.probation import Probation


def walked(probation: Probation, usual_s: float, until_s: float) -> list[tuple[float, Stage]]:
    """Every stage that comes up, with the seconds after the first batch was given."""
    seen, now = [], 100.0
    while now <= 100.0 + until_s:
        stage = probation.due(1, 100.0, now, usual_s)
        if stage is not Stage.NOTHING:
            seen.append((now - 100.0, stage))
        assert probation.next_at() > now
        now = probation.next_at()
    return seen


def test_a_first_look_is_compared_with_those_that_follow() -> None:
    assert walked(Probation(), 0.01, 20) == [
        (5, Stage.LOOK),
        (10, Stage.END),
        (15, Stage.END),
        (20, Stage.END),
    ]


def test_long_batches_are_given_a_hundred_times_as_long() -> None:
    assert walked(Probation(), 2.0, 200) == [(100, Stage.LOOK), (200, Stage.END)]


def test_there_is_no_end_without_a_look_even_after_a_stop() -> None:
    probation = Probation()
    assert probation.due(1, 100.0, 5000.0, 0.01) is Stage.LOOK
    assert probation.due(1, 100.0, 5001.0, 0.01) is Stage.NOTHING
    assert probation.due(1, 100.0, 5005.0, 0.01) is Stage.END


def test_another_worker_and_another_batch_begin_anew() -> None:
    probation = Probation()
    assert probation.due(1, 100.0, 105.0, 0.01) is Stage.LOOK
    assert probation.due(2, 100.0, 110.0, 0.01) is Stage.LOOK
    assert probation.due(2, 109.0, 110.0, 0.01) is Stage.NOTHING


@pytest.mark.parametrize(
    ("condition", "after_s", "over"),
    [
        ("stuck", 10, True),
        ("slow", 59, False),
        ("slow", 60, True),
        ("disk", 10, False),
        ("crowded", 10, False),
        ("stopped", 3600, False),
    ],
)
def test_one_that_works_is_given_six_times_as_long(
    condition: Condition, after_s: float, over: bool
) -> None:
    probation = Probation()
    probation.due(1, 100.0, 100.0, 0.01)
    assert probation.is_over(condition, 100.0 + after_s) is over


def plight(condition: Condition, lost: tuple[str, ...] | None) -> Plight:
    return Plight(3, 7, 0, None, 1.0, condition, "", "", lost)


def test_threads_that_a_copy_has_not_are_the_likely_cause() -> None:
    assert "('nativelib-0') (worker 3)" in likely(plight("stuck", ("nativelib-0",)))
    assert likely(plight("stuck", tuple("abcdefg"))).count("'") == 10
    for none in (plight("stuck", ()), plight("stuck", None), plight("slow", ("nativelib-0",))):
        assert "nativelib" not in likely(none)
        assert "threads" not in likely(none)


def test_fresh_workers_are_advised_where_a_copy_is_stuck() -> None:
    assert may_miss_threads(plight("stuck", ()))
    for no in (None, plight("stuck", None), plight("slow", ("nativelib-0",))):
        assert not may_miss_threads(no)
