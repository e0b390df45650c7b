import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.model import MOSTLY, Curve, Point, curves, keeping_busy, keeping_fed


def points(curve: Curve, counts: list[int], noise: float = 0.0, seed: int = 0) -> list[Point]:
    draw = random.Random(seed)
    rates = [curve.rate_per_s(count) * math.exp(draw.gauss(0, noise)) for count in counts]
    return [Point(n, rate, max(0.01, noise)) for n, rate in zip(counts, rates, strict=True)]


@pytest.mark.parametrize(
    ("service_s", "cycle_s", "fewest"),
    [(0.041, 0.0051, 8), (0.004, 0.02, 1), (0.32, 0.02, 16), (0.0402, 0.02, 2), (0.01, 0.0, 10**6)],
)
def test_workers_that_keep_the_consumer_fed(service_s: float, cycle_s: float, fewest: int) -> None:
    assert keeping_fed(service_s, cycle_s) == fewest


@pytest.mark.parametrize(
    ("cpus", "cpu", "most"),
    [
        (2, 1.0, 2),
        (2, 0.97, 2),
        (2, 0.93, 3),
        (2.5, 1.0, 3),
        (0.5, 1.0, 1),
        (2, 0.01, 200),
        (8, 0.5, 16),
    ],
)
def test_workers_that_cpus_can_serve(cpus: float, cpu: float, most: int) -> None:
    assert keeping_busy(cpus, cpu) == most


def test_what_nearly_always_computes_can_be_taken_to_compute_always() -> None:
    assert keeping_busy(2, 0.93, MOSTLY) == 2


@pytest.mark.parametrize(
    "true",
    [
        Curve(0.02),
        Curve(0.02, queueing_s=0.002),
        Curve(0.02, bending_s=0.02 / 196),
        Curve(0.02, ceiling_per_s=300),
    ],
)
def test_exact_points_give_the_curve_they_lie_on(true: Curve) -> None:
    found = curves(points(true, [1, 4, 9, 16, 24]))[0]
    for count in range(1, 25):
        assert found.rate_per_s(count) == pytest.approx(true.rate_per_s(count), rel=0.03)


def test_noise_hardly_moves_the_best_number() -> None:
    true = Curve(0.03, bending_s=0.03 / 196)
    for seed in range(30):
        found = curves(points(true, [1, 7, 11, 24], 0.02, seed))[0]
        best = max(range(1, 25), key=found.rate_per_s)
        assert true.rate_per_s(best) >= 0.95 * true.rate_per_s(14)


def test_a_ceiling_is_told_from_contention() -> None:
    found = curves(points(Curve(0.02, ceiling_per_s=300), [1, 6, 9, 24]))
    assert math.isfinite(found[0].ceiling_per_s)
    assert found[0].fewest(24, math.inf) <= 9


def test_one_point_is_taken_to_grow_with_the_workers() -> None:
    [only] = curves([Point(4, 100.0, 0.02)])
    assert only.rate_per_s(8) == pytest.approx(200)


def test_nothing_measured_explains_nothing() -> None:
    assert curves([]) == []


def test_the_fewest_are_enough_for_the_consumer() -> None:
    curve = Curve(0.04)
    assert curve.fewest(64, 100) == 4
    assert curve.fewest(3, 100) == 3


COUNTS = st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True)


@given(COUNTS, st.lists(st.floats(1e-3, 1e6), min_size=6, max_size=6), st.floats(0.01, 0.5))
def test_any_rates_give_curves_that_never_speed_up_a_worker(
    counts: list[int], rates: list[float], error: float
) -> None:
    measured = [Point(n, rate, error) for n, rate in zip(sorted(counts), rates, strict=False)]
    for curve in curves(measured):
        each = [curve.rate_per_s(count) / count for count in (1, 2, 5, 20, 100)]
        assert all(more <= fewer * (1 + 1e-9) for fewer, more in pairwise(each))
        assert 1 <= curve.fewest(64, math.inf) <= 64
