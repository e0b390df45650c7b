"""What a foretelling rests on, and what would limit it: in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stoker.tuning.answer import Answer, Limit, Work
from stoker.tuning.foretold import Machine
from stoker.tuning.guesses import SHARED, Guesses
from stoker.tuning.model import COMPUTES
from stoker.tuning.scenario import AHEAD
from stoker.tuning.table import memory
from stoker.tuning.wording import duration, number, percent, workers

FED = 0.05
"""A consumer that waits less is fed."""
ROOM = 0.95
"""More memory would help where the rate is below this share of what twice the workers give."""
FOR_LOADING = 0.5
"""Share of the memory that loading may have: training needs the rest."""
FAR = 0.9
"""A rate that is so far below what CPUs and consumer allow is kept down by something else."""


def assumptions(answer: Answer, work: Work, guessed: Guesses, there: Machine) -> Iterator[str]:
    """Sentences, the weightiest first."""
    yield _speed(there)
    yield _step(work, there)
    yield from _shared(answer, work, guessed)
    if guessed.step_may_compute and guessed.scenarios[0].step_s > 0:
        yield ("Whether the step keeps a CPU busy itself is not known: the range holds both.")
    yield _memory(work)
    yield "Nothing else runs there, and the data set and its transforms are the same."


def _speed(there: Machine) -> str:
    if there.cpu_speed == 1.0:
        return "A CPU there is as fast as one here."
    return f"A CPU there is up to {there.cpu_speed:g} times as fast as one here, or as slow."


def _step(work: Work, there: Machine) -> str:
    if there.step_s is not None:
        return f"The consumer's step takes {duration(there.step_s)} there, as it was given."
    if work.step_s == 0:
        return "The consumer takes no time there either."
    return f"The consumer's step takes {duration(work.step_s)} there, as it was measured here."


def _shared(answer: Answer, work: Work, guessed: Guesses) -> Iterator[str]:
    """What workers share: a ceiling, what slows them down, or nothing that was seen."""
    seen = f"more than {workers(guessed.reach)} at once were never seen here"
    if guessed.reach == 1:
        seen = "more than one worker at once was never seen here"
    if math.isfinite(guessed.ceiling_per_s):
        ceiling = f"{number(guessed.ceiling_per_s)} batches/s"
        if answer.limit.kind == "storage":
            yield f"Storage gives no more there than the {ceiling} that it gave here."
        elif answer.limit.kind == "transport":
            yield f"Bringing batches from workers goes no faster there than {ceiling}, as here."
        else:
            yield (
                f"The rate stopped at {ceiling} here for a reason that is not CPUs; "
                "it stops there too."
            )
    elif guessed.contended:
        yield f"Workers slow each other down there as they did here; {seen}."
    elif work.cpu_s < COMPUTES * work.service_s:
        yield f"What samples wait for gives each worker what it gave here, with any number; {seen}."
    else:
        yield f"Workers do not get in each other's way there; {seen}."


def _memory(work: Work) -> str:
    if work.worker_bytes is None:
        return "What a worker takes of the memory is not known, so memory limits nothing here."
    return (
        f"Half of the memory is for loading; a worker takes {memory(work.worker_bytes)} and a "
        f"batch {memory(work.batch_bytes)}, as here."
    )


def fits(work: Work, memory_bytes: int) -> bool:
    """Whether there is memory for one batch, which even no worker at all takes."""
    return work.batch_bytes <= FOR_LOADING * memory_bytes


def limit_there(
    answer: Answer, guessed: Guesses, work: Work, memory_bytes: int, count: int, most: int
) -> Limit:
    """What would keep batches from coming faster with `count` workers."""
    likely = guessed.scenarios[0]
    rate, waiting = likely.rate_per_s(count), likely.waiting(count)
    if not fits(work, memory_bytes):
        return Limit("memory", _does_not_fit(work, memory_bytes))
    if waiting <= FED:
        room = f" {_no_worker(work, memory_bytes)}" if most == 0 else ""
        told = f"The consumer is fed: it waits {percent(waiting)} of the time.{room}"
        return Limit("consumer", told)
    if most == 0:
        return Limit("memory", _no_worker(work, memory_bytes))
    if count == most and likely.rate_per_s(2 * count + 1) * ROOM > rate:
        return Limit("memory", f"There is memory for {workers(most)} and no more.")
    if count == 0:
        made = duration(likely.main_s)
        return Limit("main process", f"A batch takes {made} there, and workers give no more.")
    served, wanted = likely.served_per_s(count), likely.wanted_per_s
    if rate < FAR * min(served, wanted):
        return _shared_limit(answer, guessed, count)
    if wanted <= served:
        told = f"The main process takes no more than {number(wanted)} batches/s."
        return Limit("main process", told)
    return Limit("cpu", f"All {likely.cpus:g} CPUs are busy.")


def _does_not_fit(work: Work, memory_bytes: int) -> str:
    return (
        f"It does not fit there, not even without workers: a batch takes "
        f"{memory(work.batch_bytes)}, and half of {memory(memory_bytes)} is for loading."
    )


def _no_worker(work: Work, memory_bytes: int) -> str:
    own = f"{memory(work.worker_bytes)} and " if work.worker_bytes else ""
    return (
        f"There is no memory for even one worker, which takes {own}{AHEAD} batches of "
        f"{memory(work.batch_bytes)}: half of {memory(memory_bytes)} is for loading."
    )


def _shared_limit(answer: Answer, guessed: Guesses, count: int) -> Limit:
    if math.isfinite(guessed.ceiling_per_s):
        kind = answer.limit.kind if answer.limit.kind in SHARED else "unknown"
        told = f"What workers share gives {number(guessed.ceiling_per_s)} batches/s and no more."
        return Limit(kind, told)
    if guessed.contended:
        waits = guessed.crowding is not None and guessed.crowding < 0.5
        told = f"Workers slow each other down: more than {count} would give hardly more, or less."
        return Limit("storage" if waits else "unknown", told)
    return Limit("unknown", f"{workers(count)} give the rate that is told.")
