import pytest

from stoker.tuning import wording


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (812.4, "812"), (43.21, "43.2"), (0.05123, "0.0512")]
)
def test_number(value: float, text: str) -> None:
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(300, "300.0 s"), (1.23, "1.2 s"), (0.048, "48 ms"), (5e-5, "0.05 ms")]
)
def test_duration(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0.031, "3 %"), (0.0042, "0.4 %"), (0.0, "0.0 %")])
def test_percent(share: float, text: str) -> None:
    assert wording.percent(share) == text


def test_counts() -> None:
    assert [wording.workers(count) for count in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
    assert wording.count_of(1, "batch") == "1 batch"
    assert wording.count_of(1200, "batch") == "1,200 batches"


@pytest.mark.parametrize(
    ("text", "told"),
    [("two are enough", "Two are enough."), ("num_workers=2 is", "num_workers=2 is."), ("", "")],
)
def test_a_sentence_has_a_capital_and_one_full_stop(text: str, told: str) -> None:
    assert wording.sentence(text) == told
    assert wording.sentence(told) == told
