"""What was seen of a loader for a short while: the evidence every decision rests on. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """A stretch of a running epoch in which nothing was changed.

    A window begins when the effect of an earlier change is over: new workers have answered,
    and what was made before has been handed out. Times are wall-clock seconds of the whole
    window unless they say otherwise. ``waited_s + away_s + handling_s`` is about ``seconds``.

    Attributes:
        workers: Worker processes that served during the window; 0 in the main process.
        batches: Batches handed out.
        seconds: Length of the window.
        waited_s: The consumer waited for a batch that was not ready. With 0 workers: 0.
        away_s: The consumer's own time between two batches (its training step).
        handling_s: The main process's own work in ``next``: opening batches, sending tasks.
            With 0 workers: 0.
        made: Batches that workers finished, or the main process with 0 workers.
        busy_s: What making them took, added up over workers (a batch that took 3 s in each of
            two workers is 6 s), or over the main process with 0 workers.
        cpu_s: CPU time of that, added up; less than `busy_s` where samples wait.
        starved_s: Of `busy_s`, how long workers were ready to run and had no CPU; None where
            the system does not tell.
        order_s: Of `waited_s`, how long a later batch was ready and had to wait its turn.
        batch_bytes: Size of the largest batch seen so far, in bytes.
        whole: Whether it is whole epochs with the start of their workers: such a rate is not
            comparable with that of a stretch within an epoch.
    """

    workers: int
    batches: int
    seconds: float
    waited_s: float
    away_s: float
    handling_s: float
    made: int
    busy_s: float
    cpu_s: float
    starved_s: float | None
    order_s: float
    batch_bytes: int
    whole: bool = False

    @property
    def rate_per_s(self) -> float:
        """Batches a second."""
        return self.batches / self.seconds

    @property
    def waiting(self) -> float:
        """Share of the window that the consumer spent without being fed: waiting, or loading."""
        lost_s = self.busy_s if self.workers == 0 else self.waited_s
        return min(1.0, lost_s / self.seconds)

    @property
    def service_s(self) -> float:
        """Mean time of making one batch."""
        return self.busy_s / self.made if self.made else 0.0

    @property
    def away_each_s(self) -> float:
        """Mean time the consumer spends on one batch."""
        return self.away_s / self.batches if self.batches else 0.0
