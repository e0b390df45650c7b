"""Two loaders of one line: one change, whatever each of them wants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.tuning.answer import Answer, Site
from stoker.tuning.one_line import answers_of
from stoker.tuning.site_record import Seen, SiteRecord
from tests.unit.tuning.planted import again, own, record, rounds

CODE = "loaders = [DataLoader(data, batch_size=4) for data in (train, test)]"
SOURCE = f"from torch.utils.data import DataLoader\n{CODE}\n"
SITE = Site("/home/me/train.py", 2, "<module>", CODE)


def found(*records: SiteRecord, source: str = SOURCE) -> list[Answer]:
    names = ["train.py:2", *(f"train.py:2 #{at}" for at in range(2, 9))]
    placed = [replace(each, site=SITE) for each in records]
    told = answers_of(
        list(zip(names, placed, strict=False)), read_source=lambda _: source, whole=False
    )
    return [answer for _, answer in told]


def measured(chosen: int, rates: dict[int, tuple[float, ...]], **more: int) -> SiteRecord:
    now = more.pop("own", 0)
    parts: list[list[Seen]] = [own(now, 9.8, 10.0), rounds(rates), again(now, 10.0)]
    return record(*parts, own=now, chosen=chosen, persistent=now > 0, **more)


def test_the_number_that_does_for_both_is_the_one_change() -> None:
    """The second is as fast with one as with four: four are for both, and it is told."""
    first, second = found(
        measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}),
        measured(1, {1: (30.0, 30.2), 4: (29.2, 29.4)}, epoch_batches=10),
    )
    assert first.change == second.change
    assert first.change is not None
    assert first.change.after == CODE.replace("batch_size=4", "batch_size=4, num_workers=4")
    assert first.change.serves == ("train.py:2", "train.py:2 #2")
    assert "num_workers=4  (now num_workers=0) for all 2 loaders" in first.change.text
    told = (
        "train.py:2 #2 alone would be given num_workers=1: 4 give it 3 % less, with 3 more workers"
    )
    assert told in first.change.text
    for answer in (first, second):
        assert answer.advice is not None
        assert answer.advice.num_workers == 4
    assert second.advice is not None
    assert second.advice.batches_per_s == pytest.approx(29.3)
    assert second.best_parts is not None
    assert second.best_parts.num_workers == 4
    assert any(told in each for each in second.remarks)
    assert not any(told in each for each in first.remarks)


def test_where_no_number_does_for_both_the_line_stays() -> None:
    first, second = found(
        measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}),
        measured(1, {1: (30.0, 30.2), 4: (19.2, 19.4)}, epoch_batches=10),
    )
    assert first.change == second.change
    assert first.change is not None
    assert (first.change.before, first.change.after) == ("", "")
    assert (first.change.file, first.change.line) == (SITE.file, 2)
    assert first.change.text == (
        "give each loader of this line a num_workers of its own: 4 for train.py:2 (1,000 batches "
        "of 4), 1 for train.py:2 #2 (10 batches of 4); no number that was measured does for all of "
        "them"
    )
    assert [answer.advice.num_workers for answer in (first, second) if answer.advice] == [4, 1]


def test_a_number_that_one_was_not_measured_with_is_not_given_to_it() -> None:
    first, second = found(
        measured(4, {2: (25.0, 25.2), 4: (39.0, 40.0)}),
        measured(1, {1: (30.0, 30.2), 2: (29.2, 29.4)}),
    )
    assert first.change is not None
    assert first.change.after == ""
    assert first.change == second.change


def test_one_that_has_what_it_wants_is_told_of_the_other() -> None:
    first, second = found(
        measured(2, {2: (40.0, 40.2), 4: (30.0, 30.1)}, own=2),
        measured(4, {2: (20.0, 20.2), 4: (39.0, 40.0)}, own=2),
    )
    assert first.change is None
    assert any("2 for train.py:2 (" in each for each in first.remarks)
    assert second.change is not None
    assert second.change.after == ""


def test_the_same_for_both_is_said_once_for_both() -> None:
    first, second = found(
        measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}),
        measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}),
    )
    assert first.change == second.change
    assert first.change is not None
    assert first.change.serves == ("train.py:2", "train.py:2 #2")
    assert "num_workers=4" in first.change.after


def test_two_calls_in_one_line_are_changed_by_themselves() -> None:
    code = "a, b = DataLoader(one, batch_size=4), DataLoader(two, batch_size=8)"
    source = f"from torch.utils.data import DataLoader\n{code}\n"
    second = measured(1, {1: (30.0, 30.2), 4: (19.2, 19.4)})
    second = replace(second, loader=replace(second.loader, batch_size=8))
    one, two = found(measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}), second, source=source)
    assert one.change is not None
    assert two.change is not None
    assert "batch_size=4, num_workers=4)" in one.change.after
    assert "batch_size=8, num_workers=1)" in two.change.after


def test_a_line_with_one_loader_is_as_it_was() -> None:
    [only] = found(measured(4, {1: (20.0, 20.2), 4: (39.0, 40.0)}))
    assert only.change is not None
    assert only.change.serves == ()


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 4]),
            st.dictionaries(
                st.sampled_from([0, 1, 2, 4]),
                st.tuples(st.floats(1, 100), st.floats(1, 100)),
                min_size=1,
            ),
            st.integers(0, 2),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_no_two_changes_of_a_line_contradict_each_other(
    several: list[tuple[int, dict[int, tuple[float, ...]], int]],
) -> None:
    answers = found(*(measured(n, rates, own=now) for n, rates, now in several))
    texts = {(answer.change.text, answer.change.after) for answer in answers if answer.change}
    rewritten = {after for _, after in texts if after}
    assert len(rewritten) <= 1
    assert len(texts) <= 1 or len({text.partition("  (now")[0] for text, _ in texts}) == 1
    for answer in answers:
        assert answer.advice is not None
        counts = [rate.summary.num_workers for rate in answer.rates]
        assert answer.advice.num_workers in counts
        if answer.change and answer.change.after:
            assert f"num_workers={answer.advice.num_workers}" in answer.change.after
