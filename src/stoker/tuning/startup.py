"""What starting workers costs, epoch for epoch, and what would save it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stoker.tuning.recommend import CountSummary
from stoker.tuning.wording import count_of, duration, number, percent, workers

WORTH = 0.02
"""Of an epoch: a start that takes less is not worth a word, nor an argument."""
CLEARLY = 1.05
"""Rates that differ by less are told as the same."""
LARGE = 0.2
"""Of all epochs: a running loader says nothing of a start that takes less."""
LEAST_S = 0.5
"""In all, likewise."""
_FRESH = {"spawn", "forkserver"}


@dataclass(frozen=True)
class Starts:
    """How a loader's epochs begin, with one setting.

    Attributes:
        num_workers: Its number of workers.
        made: Loaders that were made at this line.
        epochs: Epochs begun, of all of these.
        start_s: From ``iter(loader)`` to the first batch, on average.
        epoch_s: A whole epoch, start included; None when not known.
        persistent: Whether workers stay from epoch to epoch.
        method: How worker processes come up: "fork", "spawn", "forkserver"; "" when not known.
        first_s: Of `start_s`, what the first batch takes with workers that are up.
        where: Where its loaders are made, in words.
    """

    num_workers: int
    made: int
    epochs: int
    start_s: float
    epoch_s: float | None
    persistent: bool = False
    method: str = ""
    first_s: float = 0.0
    where: str = "at this line"

    @property
    def starting_s(self) -> float:
        """What workers that are up already would save in an epoch."""
        return max(0.0, self.start_s - max(0.0, self.first_s)) if self.num_workers else 0.0

    @property
    def share(self) -> float:
        """`starting_s` of an epoch, at most 1; 0 where an epoch's length is not known."""
        if self.epoch_s is None or not self.epoch_s > 0:
            return 0.0
        return min(1.0, self.starting_s / self.epoch_s)

    @property
    def made_anew(self) -> bool:
        """Whether each epoch has a loader of its own, which nothing can keep workers for."""
        return self.made > 1 and self.epochs <= self.made

    @property
    def matters(self) -> bool:
        return self.epochs > 1 and self.share >= WORTH


def remarks(starts: Starts, rates: Sequence[CountSummary] = ()) -> tuple[str, ...]:
    """What stands out about how epochs begin, a sentence each.

    Args:
        starts: How they begin with the program's own setting.
        rates: What was measured, over whole epochs and without their start.
    """
    told = (*_anew(starts), *_each_epoch(starts))
    return (*told, *_fewer(starts, rates))


def is_large(starting_s: float, seconds: float, epochs: int) -> bool:
    """Whether starting workers takes so much of several epochs that it is worth a word at once.

    Args:
        starting_s: What it took, in seconds.
        seconds: What the epochs took, with that.
        epochs: How many they are.
    """
    return epochs > 1 and starting_s >= max(LEAST_S, LARGE * seconds)


def while_running(starts: Starts) -> str:
    """What a running loader says of epochs that begin with a long start.

    Args:
        starts: How its epochs begin.
    """
    told = remarks(starts) or (
        f"{_cost(starts)} an epoch went into starting {workers(starts.num_workers)}"
        f"{_fresh(starts)}",
    )
    fresh = 'worker_method="fresh" (and no multiprocessing_context) has one for all workers'
    less = [fresh] if starts.method in _FRESH else []
    if starts.num_workers > 1:
        less.append("fewer workers take less")
    return "; ".join((*told, *less))


def arguments_for(starts: Starts) -> tuple[tuple[str, str], ...]:
    """Arguments that save the start of workers, for `Advice.arguments`.

    Args:
        starts: How epochs begin with the recommended number of workers.
    """
    if starts.persistent or starts.made_anew or not starts.matters:
        return ()
    return (("persistent_workers", "True"),)


def _anew(starts: Starts) -> Iterator[str]:
    if not (starts.made_anew and starts.matters):
        return
    yield (
        f"a new loader is made {starts.where} every epoch ({count_of(starts.made, 'loader')}, "
        f"{count_of(starts.epochs, 'epoch')}): {_cost(starts)} an epoch went into starting "
        f"{workers(starts.num_workers)}{_fresh(starts)}; make it once before the loop, with "
        f"persistent_workers=True"
    )


def _each_epoch(starts: Starts) -> Iterator[str]:
    if starts.made_anew or starts.persistent or not starts.matters:
        return
    yield (
        f"{workers(starts.num_workers)} {_verb(starts)} started anew every epoch{_fresh(starts)}: "
        f"persistent_workers=True would save {_cost(starts)} an epoch "
        f"({percent(starts.share)})"
    )


def _verb(starts: Starts) -> str:
    return "is" if starts.num_workers == 1 else "are"


def _cost(starts: Starts) -> str:
    return f"{duration(starts.starting_s)} of {duration(starts.epoch_s or 0.0)}"


def _fresh(starts: Starts) -> str:
    if starts.method not in _FRESH:
        return ""
    one = "" if starts.num_workers == 1 else "each "
    return f" ({one}a new interpreter that imports the program again: {starts.method})"


def _fewer(starts: Starts, rates: Sequence[CountSummary]) -> Iterator[str]:
    """Where the most workers are the fastest once they run, and fewer over an epoch."""
    told = [rate for rate in rates if rate.batches_per_s > 0 and rate.epoch_batches_per_s > 0]
    if starts.persistent or len(told) < 2:
        return
    running = max(told, key=lambda rate: (rate.batches_per_s, -rate.num_workers))
    whole = max(told, key=lambda rate: (rate.epoch_batches_per_s, -rate.num_workers))
    if whole.num_workers >= running.num_workers:
        return
    if whole.epoch_batches_per_s < running.epoch_batches_per_s * CLEARLY:
        return
    yield (
        f"epochs are short for {workers(running.num_workers)}: once they run they give "
        f"{number(running.batches_per_s)} batches/s, but {duration(running.first_batch_s)} to "
        f"the first batch leave {number(running.epoch_batches_per_s)} over an epoch; "
        f"{workers(whole.num_workers)} {_give(whole)} {number(whole.epoch_batches_per_s)}"
    )


def _give(rate: CountSummary) -> str:
    return "gives" if rate.num_workers == 1 else "give"
