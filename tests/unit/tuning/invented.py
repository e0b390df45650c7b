"""Invented observations for the pure parts of the tuner."""

from __future__ import annotations

from stoker.tuning.meter import Method, Observation


def observe(
    num_workers: int,
    batches_per_s: float,
    repeat: int = 0,
    *,
    first_batch_s: float = 0.0,
    epoch_s: float | None = None,
    epoch_batches: int | None = None,
    method: Method = "steady",
    persistent: bool = False,
    complete: bool = True,
) -> Observation:
    return Observation(
        num_workers=num_workers,
        batches_per_s=batches_per_s,
        first_batch_s=first_batch_s,
        epoch_s=epoch_s,
        epoch_batches=epoch_batches,
        batches=100,
        measured_s=100 / batches_per_s,
        epochs=1,
        method=method,
        persistent=persistent,
        complete=complete,
        repeat=repeat,
    )


def repeats(rates: dict[int, list[float]]) -> list[Observation]:
    """One observation a rate; place in the list is the round."""
    return [
        observe(count, rate, repeat)
        for count, of_count in rates.items()
        for repeat, rate in enumerate(of_count)
    ]
