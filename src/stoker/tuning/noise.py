"""What repeats of one measurement say about its doubt. Pure.

Medians and median absolute deviations, since a machine that does something else for a
second makes outliers and not a wider bell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MAD_TO_SIGMA = 1.4826
MEDIAN_OVER_MEAN = 1.2533
# Croux and Rousseeuw, "Time-efficient algorithms for two highly robust estimators of
# scale" (1992): by how much the deviation of a small sample comes out too small.
SMALL_SAMPLE = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}

# Mean range of samples from a bell, in standard deviations.
RANGE_IN_SIGMAS = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326}


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation by the median absolute deviation; None for fewer than two values."""
    count = len(values)
    if count < 2:
        return None
    middle = statistics.median(values)
    mad = statistics.median(abs(value - middle) for value in values)
    return mad * MAD_TO_SIGMA * SMALL_SAMPLE.get(count, count / (count - 0.8))


def spread(values: Sequence[float]) -> float | None:
    """Deviation as a share of the median: 0.03 is 3 %; None for fewer than two values."""
    sigma = deviation(values)
    middle = statistics.median(values) if values else 0.0
    return None if sigma is None or middle <= 0 else sigma / middle


def doubt(values: Sequence[float]) -> float | None:
    """Two standard errors of the median; None for fewer than two values.

    With up to five values, two of them often lie together by chance, and the deviation from
    the median then sees no noise at all. There the range counts where it says more: too much
    doubt only asks for another repeat.
    """
    sigma = deviation(values)
    if sigma is None:
        return None
    count = len(values)
    if count in RANGE_IN_SIGMAS:
        sigma = max(sigma, (max(values) - min(values)) / RANGE_IN_SIGMAS[count])
    return 2 * MEDIAN_OVER_MEAN * sigma / math.sqrt(count)
