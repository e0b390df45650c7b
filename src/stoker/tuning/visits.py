"""What was measured at each number of workers, and how far it can be trusted. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable

from stoker.feed.window import Window

KEPT, COMPARED = 128, 32
"""Windows kept for a number: more than any decision needs, few enough to follow a drift; and
those of them that say what is usual."""
FAR = 3.5
"""Windows further from the median than so many deviations had the machine to do something else."""
CHANGED, CHANGED_MUCH = 1.7, 2.5
"""Times by which three, or two, windows in a row must differ from the usual to be other work."""
NOTICED = 0.1
"""Share of the time between two batches below which a difference changes nothing."""
SHORT_S, MANY = 1e-9, 10**9
"""No window has more batches or seconds than that, or times that are shorter."""
RARE = 0.2
"""Where more windows than this share are far from the median, that is how the work is."""
WARMING, COOLED = 12, 1.7
"""First windows that may be warming up, and times by which all of them are slower then."""
SIGMA_OVER_MAD = 1.4826


class Visit:
    """The windows seen with one number of workers, and their sums without the odd ones out."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.windows: deque[Window] = deque(maxlen=KEPT)
        self._usual: list[Window] = []
        self._sums: dict[str, float] = {}

    @classmethod
    def of(cls, workers: int, windows: Iterable[Window]) -> Visit:
        """A visit of these windows."""
        visit = cls(workers)
        visit.windows.extend(windows)
        visit._choose()
        return visit

    def add(self, window: Window) -> None:
        """Takes one more measurable window of this number."""
        self.windows.append(window)
        self._choose()

    @property
    def count(self) -> int:
        """Windows that count."""
        return len(self._usual)

    @property
    def seconds(self) -> float:
        """Length of all windows that count."""
        return self._sum("seconds")

    @property
    def batches(self) -> float:
        """Batches handed out in them."""
        return self._sum("batches")

    @property
    def rate_per_s(self) -> float:
        """Batches a second."""
        return self.batches / self.seconds

    @property
    def waiting(self) -> float:
        """Share of the time that the consumer waited, or loaded."""
        return min(1.0, self._sum("waited_s" if self.workers else "busy_s") / self.seconds)

    @property
    def waiting_at_most(self) -> float:
        """That share with one standard error of it."""
        shares = [window.waiting for window in self._usual]
        return self.waiting + _deviation(shares) / math.sqrt(max(1, len(shares) - 1))

    @property
    def service_s(self) -> float:
        """Mean time of making one batch."""
        return self._sum("busy_s") / self._sum("made")

    @property
    def making_s(self) -> float:
        """Mean time of making one batch, without what waited for a CPU."""
        return max(0.0, self._sum("busy_s") - self._sum("starved_s")) / self._sum("made")

    def forget_warming(self) -> None:
        """Forgets first windows that were much slower than the two last: what was touched for
        the first time, or imported, will not be again.
        """
        if not 2 < len(self.windows) < WARMING:
            return
        *first, before, last = self.windows
        if min(map(_service, first)) > COOLED * max(map(_service, (before, last))):
            self.windows = deque([before, last], maxlen=KEPT)
            self._choose()

    @property
    def service_error(self) -> float:
        """Standard error of the service time as a share of it: few batches, or unlike ones."""
        few = 0.3 / math.sqrt(max(1.0, self.batches))
        times = [window.service_s for window in self._usual]
        unlike = _deviation(times) / self.service_s / math.sqrt(max(1, len(times) - 1))
        return max(few, unlike)

    @property
    def batch_spread(self) -> float:
        """Standard deviation of the time of one batch, as a share of it."""
        times = [window.service_s for window in self._usual]
        if len(times) < 2:
            return 0.0
        each = math.sqrt(self.batches / (len(times) - 1))
        return _deviation(times) / self.service_s * each

    @property
    def away_each_s(self) -> float:
        """Mean time of the consumer on one batch."""
        return self._sum("away_s") / self.batches

    @property
    def handling_each_s(self) -> float:
        """Mean time of the main process's own work for one batch."""
        return self._sum("handling_s") / self.batches

    @property
    def busy(self) -> float:
        """Workers that were making a batch, on average."""
        return self._sum("busy_s") / self.seconds

    @property
    def busy_at_most(self) -> float:
        """Workers that make batches, on average, with one and a half standard errors of that."""
        busy = [window.busy_s / window.seconds for window in self._usual]
        return self.busy + 1.5 * _deviation(busy) / math.sqrt(max(1, len(busy) - 1))

    @property
    def cpu(self) -> float:
        """Share of the making that computed, without what waited for a CPU; 0 to 1."""
        busy_s = max(0.0, self._sum("busy_s") - self._sum("starved_s"))
        cpu_s = self._sum("cpu_s")
        return min(1.0, cpu_s / busy_s) if busy_s > 0 else 1.0

    @property
    def starved(self) -> float:
        """Share of the making that waited for a CPU, where the system tells; else 0."""
        return self._sum("starved_s") / self._sum("busy_s")

    @property
    def tells_starving(self) -> bool:
        """Whether the system tells how long workers waited for a CPU."""
        return all(window.starved_s is not None for window in self._usual)

    @property
    def cpus_used(self) -> float:
        """CPUs that making and handling batches kept busy, on average."""
        return (self._sum("cpu_s") + self._sum("handling_s")) / self.seconds

    def deviations(self) -> list[float]:
        """How far each window's rate is from the mean, as a share, for the noise of all."""
        if self.count < 2:
            return []
        mean = self.rate_per_s
        small = math.sqrt(self.count / (self.count - 1))
        return [(window.rate_per_s / mean - 1) * small for window in self._usual]

    def _choose(self) -> None:
        self._usual = usual(list(self.windows)) if self.windows else []
        self._sums = {}

    def _sum(self, name: str) -> float:
        """A field of the windows that count, added up; once for each new window."""
        if name not in self._sums:
            self._sums[name] = math.fsum(getattr(window, name) or 0.0 for window in self._usual)
        return self._sums[name]


def usual(windows: list[Window]) -> list[Window]:
    """Those whose rate is not far from the others': a second of backup is not the work's."""
    rates = [window.rate_per_s for window in windows]
    middle = statistics.median(rates)
    deviation = SIGMA_OVER_MAD * statistics.median(abs(rate - middle) for rate in rates)
    far = FAR * max(deviation, 0.02 * middle)
    near = [window for window in windows if abs(window.rate_per_s - middle) <= far]
    return near if len(near) >= (1 - RARE) * len(windows) else windows


def measurable(window: Window) -> bool:
    """Whether a window says anything: a stretch with batches, and times that can be true."""
    times = [window.seconds, window.waited_s, window.away_s, window.handling_s, window.busy_s]
    times += [window.cpu_s, window.starved_s or 0.0]
    if not all(math.isfinite(each) and 0 <= each < MANY for each in times):
        return False
    counted = 0 < window.batches < MANY and 0 < window.made < MANY and window.workers >= 0
    return counted and window.seconds > SHORT_S and window.busy_s > SHORT_S * window.made


def other_work(settled: Visit | None, windows: list[Window]) -> bool:
    """Whether the last windows agree that a batch or a step takes another time than was usual.

    What was usual is what was seen when the search ended (`settled`), else the windows before.
    Only the same number of workers can be compared: together they are slower than alone.
    """
    return any(
        _moved(settled, windows, last, times) for last, times in ((2, CHANGED_MUCH), (3, CHANGED))
    )


def _moved(settled: Visit | None, windows: list[Window], last: int, times: float) -> bool:
    if len(windows) < last + 4 and not (settled and len(windows) >= last):
        return False
    base = (list(settled.windows) if settled else windows[:-last])[-COMPARED:]
    now = windows[-last:]
    return _differ(base, now, times, _service) or _differ(base, now, times, _away)


def _differ(
    base: list[Window], windows: list[Window], times: float, value: Callable[[Window], float]
) -> bool:
    """Whether a time of a batch is up in all windows, or down in all of them."""
    before = [value(window) for window in base]
    middle = max(1e-9, statistics.median(before))
    now = [value(window) for window in windows]
    every_s = math.fsum(w.seconds for w in base) / math.fsum(w.batches for w in base)
    if min(abs(each - middle) for each in now) < NOTICED * every_s:
        return False
    spread = _deviation([math.log(max(1e-9, each)) for each in before])
    few = 0.5 / math.sqrt(min(window.made for window in windows))
    limit = math.log(times) + 2 * min(1.0, max(few, spread))
    moves = [math.log(max(1e-9, each) / middle) for each in now]
    return min(moves) > limit or max(moves) < -limit


def _deviation(values: list[float]) -> float:
    """Standard deviation; statistics.pstdev is exact and forty times slower."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _service(window: Window) -> float:
    return window.service_s


def _away(window: Window) -> float:
    return window.away_each_s
