from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.recommend import CountSummary
from stoker.tuning.startup import Starts, arguments_for, remarks

PERSISTENT = (("persistent_workers", "True"),)
EVERY_EPOCH = Starts(num_workers=4, made=1, epochs=5, start_s=1.2, epoch_s=4.0, first_s=0.1)


def rate(workers: int, per_s: float, over_an_epoch: float, first_batch_s: float) -> CountSummary:
    return CountSummary(workers, per_s, over_an_epoch, first_batch_s, None, 0.01, 3, "steady", True)


def test_a_loader_that_is_made_every_epoch() -> None:
    starts = replace(EVERY_EPOCH, made=5, first_s=0.0)
    assert remarks(starts) == (
        "a new loader is made at this line every epoch (5 loaders, 5 epochs): 1.2 s of 4.0 s an "
        "epoch went into starting 4 workers; make it once before the loop, with "
        "persistent_workers=True",
    )
    assert arguments_for(starts) == ()  # at this line it would save nothing


def test_persistent_workers_do_not_help_a_loader_that_is_made_every_epoch() -> None:
    assert len(remarks(replace(EVERY_EPOCH, made=5, persistent=True))) == 1


def test_workers_that_are_started_every_epoch() -> None:
    assert remarks(EVERY_EPOCH) == (
        "4 workers are started anew every epoch: persistent_workers=True would save 1.1 s of "
        "4.0 s an epoch (27 %)",
    )
    assert arguments_for(EVERY_EPOCH) == PERSISTENT


def test_fresh_interpreters_are_told() -> None:
    (told,) = remarks(replace(EVERY_EPOCH, method="spawn"))
    assert "(each a new interpreter that imports the program again: spawn)" in told
    (told,) = remarks(replace(EVERY_EPOCH, method="fork"))
    assert "interpreter" not in told


def test_what_saves_nothing_is_not_advised() -> None:
    for starts in (
        replace(EVERY_EPOCH, num_workers=0),
        replace(EVERY_EPOCH, persistent=True),
        replace(EVERY_EPOCH, epochs=1),
        replace(EVERY_EPOCH, epoch_s=None),
        replace(EVERY_EPOCH, epoch_s=400.0),
        replace(EVERY_EPOCH, first_s=1.2),
    ):
        assert remarks(starts) == ()
        assert arguments_for(starts) == ()


def test_a_line_that_makes_two_loaders_for_many_epochs_makes_none_anew() -> None:
    starts = replace(EVERY_EPOCH, made=2, epochs=10)
    assert arguments_for(starts) == PERSISTENT


def test_short_epochs_want_fewer_workers() -> None:
    rates = [rate(1, 30, 28, 1.0), rate(4, 110, 80, 3.5), rate(32, 400, 9, 107.0)]
    assert remarks(replace(EVERY_EPOCH, epochs=1), rates) == (
        "epochs are short for 32 workers: once they run they give 400 batches/s, but 107.0 s to "
        "the first batch leave 9 over an epoch; 4 workers give 80",
    )


def test_long_epochs_do_not() -> None:
    rates = [rate(1, 30, 29, 1.0), rate(4, 110, 105, 3.5)]
    assert remarks(replace(EVERY_EPOCH, epochs=1), rates) == ()
    assert remarks(replace(EVERY_EPOCH, epochs=1), rates[:1]) == ()


numbers = st.one_of(st.floats(0, 1e9), st.floats())
counts = st.integers(0, 100)


@given(
    st.builds(
        Starts,
        counts,
        counts,
        counts,
        numbers,
        st.one_of(st.none(), numbers),
        st.booleans(),
        st.sampled_from(["", "fork", "spawn"]),
        numbers,
    ),
    st.lists(st.builds(rate, counts, numbers, numbers, numbers), max_size=4),
)
def test_any_numbers_will_do(starts: Starts, rates: list[CountSummary]) -> None:
    assert all(remarks(starts, rates))
    if arguments_for(starts):
        assert starts.num_workers
        assert starts.epochs > 1
