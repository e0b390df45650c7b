import pytest

from stoker.tuning.meter import Observation
from stoker.tuning.reason import reason
from stoker.tuning.recommend import decide, summarise
from tests.unit.tuning.invented import observe, repeats


def say(observations: list[Observation]) -> str:
    decision = decide(observations)
    assert decision is not None
    text = reason(decision, summarise(observations))
    assert text.endswith(".")
    assert "\n" not in text
    return text


def steadily(rates: dict[int, float]) -> list[Observation]:
    wobble = (1.0, 1.001, 0.999)
    return repeats({count: [rate * each for each in wobble] for count, rate in rates.items()})


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        (
            {0: 430, 1: 455, 2: 812, 4: 790},
            "2 workers: 812 batches/s, 1.9 times the rate of 0; 4 workers gave 3 % less.",
        ),
        (
            {0: 430, 2: 812, 4: 820},
            "2 workers: 812 batches/s, 1.9 times the rate of 0; "
            "4 workers gave 1 % more, too little to matter.",
        ),
        (
            {0: 20_000, 1: 3_000, 2: 4_000},
            "0 workers: 20,000 batches/s, work per batch is 0.05 ms, less than moving it between "
            "processes (0.25 ms a batch with 2); 2 workers gave 80 % less.",
        ),
        (
            {0: 100, 2: 80},
            "0 workers: 100 batches/s, 10 ms a batch in the main process; "
            "2 workers gave 20 % less.",
        ),
        (
            {0: 100, 2: 101},
            "0 workers: 100 batches/s, and all counts are within 2 % of each other; "
            "2 workers gave 1 % more, too little to matter.",
        ),
        ({3: 100}, "3 workers: 100 batches/s; no other count was measured to the end."),
        ({1: 50, 4: 100}, "4 workers: 100 batches/s, 2.0 times the rate of 1."),
    ],
)
def test_sentence(rates: dict[int, float], text: str) -> None:
    assert say(steadily(rates)) == text


def test_noise_is_named_where_it_hides_the_difference() -> None:
    text = say(repeats({0: [100.0, 96.0, 104.0], 2: [100.0, 106.0, 98.0]}))
    assert text.startswith("0 workers: 100 batches/s, and no count differs by more than the noise")


def test_moving_is_not_blamed_where_one_cpu_could_explain_it() -> None:
    """Made and moved by turns on one CPU, half the rate proves nothing about moving."""
    assert "moving" not in say(steadily({0: 100, 1: 55}))


def test_starting_up_is_blamed_where_it_took_the_gain() -> None:
    observations = [
        observe(count, rate, repeat, first_batch_s=first, epoch_s=epoch, epoch_batches=100)
        for count, rate, first, epoch in ((0, 100.0, 0.01, 1.0), (2, 180.0, 1.2, 1.75))
        for repeat in range(3)
    ]
    text = say(observations)
    assert text.startswith("0 workers: 100 batches/s")
    assert "once running, 2 workers gave 80 % more" in text
    assert "of an epoch of 1.8 s 1.2 s goes by before the first batch" in text


def test_too_short_an_epoch_is_blamed_where_it_is_all_start_up() -> None:
    observations = [
        observe(0, 1000.0, repeat, first_batch_s=0.001, epoch_s=0.003, epoch_batches=3)
        for repeat in range(3)
    ]
    observations += [
        observe(2, 50.0, repeat, first_batch_s=0.05, epoch_s=0.06, epoch_batches=3, method="epochs")
        for repeat in range(3)
    ]
    assert "an epoch is too short to pay for starting workers" in say(observations)
