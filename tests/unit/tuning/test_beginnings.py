"""Planted totals, and what is said of how epochs begin."""

from __future__ import annotations

import pytest

from stoker.feed.meter import Meter
from stoker.tuning import beginnings
from stoker.tuning.beginnings import began, remarks


@pytest.fixture(autouse=True)
def nothing_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "_BEGAN", {})


def meter(epochs: int, starts: int, start_s: float, all_s: float, method: str = "fork") -> Meter:
    """A loader with two workers; `start_s` and `all_s` are those of one start and one epoch."""
    made = Meter()
    made.peak_workers, made.method = 2, method
    totals = made.totals
    totals.epochs, totals.starts, totals.batches = epochs, starts, 10 * epochs
    totals.start_s = 0.1 * starts
    totals.coming_up_s = (start_s - 0.1) * starts
    totals.waited_s = totals.coming_up_s
    totals.away_s = epochs * all_s - totals.start_s - totals.coming_up_s
    return made


def test_workers_that_are_started_every_epoch() -> None:
    assert remarks("one", meter(6, 6, 8.0, 8.1, "spawn")) == (
        "2 workers are started anew every epoch (each a new interpreter that imports the program "
        "again: spawn): persistent_workers=True would save 8.0 s of 8.1 s an epoch (99 %); "
        'worker_method="fresh" (and no multiprocessing_context) has one for all workers; '
        "fewer workers take less",
    )


def test_workers_that_stay() -> None:
    (told,) = remarks("one", meter(6, 1, 8.0, 2.0))
    assert told == ("1.3 s of 2.0 s an epoch went into starting 2 workers; fewer workers take less")


@pytest.mark.parametrize(
    "of",
    [meter(1, 1, 8.0, 8.1), meter(6, 6, 1.0, 8.0), meter(6, 1, 8.0, 8.0), meter(2, 2, 0.2, 0.3)],
    ids=["one epoch", "a small part", "once in six epochs", "nothing in all"],
)
def test_what_is_not_worth_a_word(of: Meter) -> None:
    assert remarks("one", of) == ()


def test_a_loader_that_is_made_anew_for_each_epoch() -> None:
    for _ in range(3):
        one = meter(1, 1, 2.0, 2.5)
        began("one", one.totals)
        began("another", meter(1, 1, 2.0, 2.5).totals)
    assert remarks("one", one) == (
        "a new loader is made for this data set every epoch (3 loaders, 3 epochs): 2.0 s of 2.5 s "
        "an epoch went into starting 2 workers; make it once before the loop, with "
        "persistent_workers=True; fewer workers take less",
    )


def test_loaders_that_serve_by_turns_have_not_followed_one_another() -> None:
    first, second = meter(1, 1, 2.0, 2.5), meter(1, 1, 2.0, 2.5)
    began("one", first.totals)
    began("one", second.totals)
    first.totals.batches += 1
    assert remarks("one", second) == ()


def test_one_of_many_epochs_is_none_of_a_row() -> None:
    began("one", meter(3, 3, 2.0, 2.5).totals)
    second = meter(1, 1, 2.0, 2.5)
    began("one", second.totals)
    assert remarks("one", second) == ()


def test_what_is_kept_has_a_bound() -> None:
    for name in range(100):
        for _ in range(2 if name else 300):
            began(str(name), Meter().totals)
    assert len(beginnings._BEGAN) == beginnings._MOST_NAMES
    assert max(map(len, beginnings._BEGAN.values())) <= beginnings._MOST_KEPT
