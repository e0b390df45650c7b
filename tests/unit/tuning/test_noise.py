import random
import statistics

import pytest

from stoker.tuning.noise import deviation, doubt, spread


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 9, 15])
def test_deviation_is_right_on_average_for_small_samples(count: int) -> None:
    draw = random.Random(count)
    found = [deviation([draw.gauss(10, 1) for _ in range(count)]) or 0.0 for _ in range(1500)]
    assert statistics.mean(found) == pytest.approx(1.0, rel=0.12)


def test_one_outlier_hardly_moves_the_spread() -> None:
    calm = [100.0, 101.0, 99.0, 100.5, 99.5]
    assert (spread([*calm[:-1], 10.0]) or 1.0) < 0.03


def test_one_value_says_nothing_about_noise() -> None:
    assert spread([5.0]) is None
    assert doubt([5.0]) is None
    assert spread([]) is None


def test_doubt_shrinks_with_repeats() -> None:
    few, many = [1.0, 1.1, 0.9, 1.05], [1.0, 1.1, 0.9, 1.05] * 4
    assert (doubt(many) or 1.0) < (doubt(few) or 0.0)


def test_two_of_three_values_that_lie_together_do_not_hide_the_third() -> None:
    assert (doubt([1.0, 1.001, 0.8]) or 0.0) > 0.1
