"""What counts as too many broken samples, and what is told of them."""

from __future__ import annotations

import logging

import pytest

from stoker.errors import TooManyErrors
from stoker.feed.losses import MOST_IN_A_ROW, MOST_LISTED, Losses, Reported
from stoker.order.broken import Broken, Damage


def damage(*indices: int | str, places: int = 4) -> Damage:
    broken = (
        Broken(index, f"ValueError: {index}", "data.py:3, in read", "skipped") for index in indices
    )
    return Damage(places, tuple(broken))


def losses(limit: float | None = None, length: int | None = None) -> Losses:
    made = Losses()
    made.limit, made.length = limit, length
    made.begin_epoch(0)
    return made


def take(made: Losses, batch: int, *indices: int, delivered: int | None = None) -> None:
    """A batch of four; left out where all are broken."""
    whole = len(indices) == 4
    made.take(
        batch,
        damage(*indices),
        left_out=whole,
        delivered=batch if delivered is None else delivered,
    )


def test_each_sample_is_listed_once_and_every_time_is_counted() -> None:
    made = losses()
    for _ in range(3):
        take(made, 5, 17, 18)
        made.begin_epoch(0)
    assert (made.broken, made.skipped, made.skipped_batches) == (6, 6, 0)
    assert [(each.index, each.batch, each.epoch, each.times) for each in made.listed] == [
        (17, 5, 0, 3),
        (18, 5, 0, 3),
    ]
    assert made.listed[0].error == "ValueError: 17"


def test_the_list_is_bounded_and_the_count_is_not() -> None:
    made = losses()
    for index in range(MOST_LISTED + 7):
        take(made, index, index)
    assert made.broken == MOST_LISTED + 7
    assert [each.index for each in made.listed] == list(range(MOST_LISTED))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_one_more_than_the_limit_is_an_error(limit: int) -> None:
    made = losses(limit)
    for batch in range(limit):
        take(made, batch, batch)
    with pytest.raises(TooManyErrors, match=rf"more than max_errors={limit}\b") as caught:
        take(made, 9, 17)
    assert caught.value.errors == limit + 1
    assert "index 17: ValueError: 17 (data.py:3, in read)" in str(caught.value)
    assert "batch 9" in caught.value.doing
    assert made.broken == limit + 1


def test_every_epoch_begins_at_none() -> None:
    made = losses(2)
    for _ in range(5):
        take(made, 0, 1, 2)
        made.begin_epoch(0)
    assert made.broken == 10


def test_a_share_is_of_the_samples_of_an_epoch() -> None:
    made = losses(0.1, length=10)  # 40 samples
    take(made, 0, 1, 2, 3)
    take(made, 1, 4)
    with pytest.raises(TooManyErrors, match=r"max_errors=0.1, a share of 0.1 of about 40 samples"):
        take(made, 2, 5)


def test_a_share_of_an_unknown_number_is_of_those_asked_for_so_far() -> None:
    made = losses(0.01)
    for index in range(10):
        take(made, index, index)
    with pytest.raises(TooManyErrors, match="about 1,000 samples"):
        take(made, 10, 10)
    made.begin_epoch(0)
    for index in range(10, 25):
        take(made, 400, index)
    with pytest.raises(TooManyErrors):
        take(made, 400, 26, 27)


def test_without_a_limit_an_epoch_of_nothing_but_errors_ends() -> None:
    made = losses()
    for batch in range(MOST_IN_A_ROW // 4 - 1):
        take(made, batch, 0, 1, 2, 3, delivered=7)
    with pytest.raises(TooManyErrors, match="1,000 samples in a row"):
        take(made, batch, 0, 1, 2, 3, delivered=7)


def test_a_batch_in_between_begins_the_row_anew() -> None:
    made = losses()
    for batch in range(3 * MOST_IN_A_ROW):
        take(made, batch, 0, 1, 2, 3, delivered=batch // 200)
    for batch in range(2 * MOST_IN_A_ROW):
        take(made, batch, 0, 1, delivered=batch)


def test_a_given_limit_is_the_only_one() -> None:
    made = losses(10**6)
    for batch in range(2 * MOST_IN_A_ROW):
        take(made, batch, 0, 1, 2, 3, delivered=7)


def test_it_is_told_at_the_first_and_at_ten_times_as_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = losses()
    with caplog.at_level(logging.WARNING, "stoker"):
        for index in range(123):
            take(made, index, index)
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(";")[0] for text in told] == [
        "samples that could not be read so far: 1",
        "samples that could not be read so far: 10",
        "samples that could not be read so far: 100",
    ]
    assert "index 9, in batch 9, and was left out: ValueError: 9 (data.py:3, in read)" in told[1]


def test_what_is_reported_again_counts_once() -> None:
    reported = Reported()
    assert not reported
    reported.note(3, damage(1))
    reported.note(3, damage(2))
    assert reported
    assert reported.take(3) == damage(2)
    assert reported.take(3) is None
    reported.note(3, damage(1))
    reported.note(3, None)  # The second time, it could be read.
    assert reported.take(3) is None
    reported.note(4, damage(1))
    reported.clear()
    assert not reported


def test_an_epoch_that_nothing_came_of_ends_with_an_error_once() -> None:
    made = losses()
    take(made, 0, 0, 1, 2, 3, delivered=7)
    made.begin_epoch(7)
    take(made, 0, 0, 1, 2, 3, delivered=7)
    take(made, 1, 4, 5, 6, 7, delivered=7)
    with pytest.raises(TooManyErrors, match="not one sample of this epoch could be read; 8 were"):
        made.end_epoch(7)
    made.end_epoch(7)


@pytest.mark.parametrize("limit", [None, 20])
def test_an_epoch_that_something_came_of_or_that_may_be_lost_ends(limit: int | None) -> None:
    made = losses(limit)
    take(made, 0, 0, 1, 2, 3, delivered=0)
    made.end_epoch(1 if limit is None else 0)
