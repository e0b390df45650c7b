"""Which trial comes next, and when there were enough. Pure.

Trials run in rounds, each count once a round and every second round backwards, so that a
machine which slows down or warms up treats every count alike. After the first rounds only
the counts that the decision hangs on are measured again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stoker.tuning.meter import Observation
from stoker.tuning.recommend import Decision, decide

FEWEST_REPEATS = 3
MOST_REPEATS = 9
ROUNDS_FOR_ALL = 2
BUDGET_S = 300.0


@dataclass(frozen=True)
class Trial:
    """One measurement to make.

    Attributes:
        num_workers: Worker processes to measure with.
        repeat: Its round, from 0; also the seed, so that a round reads the same samples.
    """

    num_workers: int
    repeat: int


def default_counts(cpus: int, *, exhaustive: bool = False) -> list[int]:
    """0, 1, 2, 4 ... up to twice ``cpus``, that value included; or every value up to it."""
    most = 2 * max(1, cpus)
    if exhaustive:
        return list(range(most + 1))
    doubling = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return sorted({0, *doubling, most})


class Search:
    """Proposes trials and takes what they gave.

    Args:
        counts: Worker counts to measure.
        repeats: Trials a count; None to stop when the decision is certain.
        budget_s: Seconds after which no further round is begun once every count had
            ``FEWEST_REPEATS``.
    """

    def __init__(
        self, counts: list[int], *, repeats: int | None = None, budget_s: float = BUDGET_S
    ) -> None:
        self._alive = sorted(set(counts))
        self._exact = repeats
        self._fewest = FEWEST_REPEATS if repeats is None else repeats
        self._budget_s = budget_s
        self._round = -1
        self._queue: deque[Trial] = deque()
        self._failed: list[int] = []
        self._made = 0
        self.observations: list[Observation] = []

    @property
    def planned(self) -> int:
        """Trials that the rounds known so far come to, those already made included."""
        rounds_left = max(0, self._fewest - 1 - self._round)
        ahead = len(self._queue) + rounds_left * len(self._contenders())
        return self._made + ahead

    def next(self, elapsed_s: float) -> Trial | None:
        """The next trial, or None when there were enough.

        Args:
            elapsed_s: Seconds since the search began.
        """
        if len(self._failed) > 1 and not any(seen.complete for seen in self.observations):
            return None
        if not self._queue:
            self._begin_round(elapsed_s)
        if not self._queue:
            return None
        self._made += 1
        return self._queue.popleft()

    def record(self, observation: Observation) -> None:
        """Take what a trial measured; one that was cut short is kept and not repeated."""
        self.observations.append(observation)

    def fail(self, num_workers: int) -> None:
        """A trial at this count failed: it is not tried again."""
        self._failed.append(num_workers)
        self._alive = [count for count in self._alive if count != num_workers]
        self._queue = deque(trial for trial in self._queue if trial.num_workers != num_workers)

    def decision(self) -> Decision | None:
        """The choice among the counts whose trials all ran to their end; None without one."""
        return decide(
            observation
            for observation in self.observations
            if observation.complete and observation.num_workers not in self._failed
        )

    def _begin_round(self, elapsed_s: float) -> None:
        counts = self._next_counts(elapsed_s)
        self._round += 1
        if self._round % 2:
            counts = counts[::-1]
        self._queue.extend(Trial(count, self._round) for count in counts)

    def _next_counts(self, elapsed_s: float) -> list[int]:
        done = self._round + 1
        if done < self._fewest:
            return self._contenders()
        if self._exact is not None or done >= MOST_REPEATS or elapsed_s >= self._budget_s:
            return []
        decision = self.decision()
        return [] if decision is None else self._still(decision.contested)

    def _contenders(self) -> list[int]:
        """All counts in the first rounds; then those not yet out of the running."""
        decision = self.decision()
        if decision is None or self._exact is not None or self._round + 1 < ROUNDS_FOR_ALL:
            return self._alive
        beside = decision.comparisons
        return self._still(frozenset(n for n in beside if not beside[n].hopeless))

    def _still(self, counts: frozenset[int]) -> list[int]:
        return [count for count in self._alive if count in counts]
