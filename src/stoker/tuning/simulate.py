"""What the same work would want on a machine that one does not have. Pure.

The rates that were measured are freed of the limits of the machine they were measured on
(`evidence`), and explained by curves. Every explanation that fits, moved by the doubt of what
was measured, is a `Scenario` on the other machine; the range of doubt is what they say together.

What this cannot foretell: contention that begins only beyond what was measured. Two workers on
two CPUs say nothing about a disk, a lock or a memory bus that twenty-four of them will share,
and a consumer that was always fed has hidden how fast workers can be. The assumptions say how
many were seen at once.
"""

from __future__ import annotations

import shlex

from stoker.errors import StokerError
from stoker.tuning.answer import Answer, Work
from stoker.tuning.assumed import FOR_LOADING, assumptions, fits, limit_there
from stoker.tuning.foretold import Foretold, Machine, Range, Row
from stoker.tuning.guesses import Guesses, guesses
from stoker.tuning.model import ENOUGH, MOST, MOSTLY, keeping_busy, keeping_fed
from stoker.tuning.scenario import AHEAD, Scenario

NUMBER, RATE = 0.04, 0.02
"""No number of workers is foretold better than to 4 %, and no rate better than to 2 %."""
GOOD = 0.95
"""A number is good from 95 % of the best rate on."""


class NotMeasured(StokerError):
    """An answer that says too little to foretell anything from."""


def foretell(answer: Answer, cpus_here: float, there: Machine) -> Foretold:
    """What the work of `answer` would want on the machine `there`.

    Args:
        answer: What was measured.
        cpus_here: CPUs that it was measured with.
        there: The other machine.

    Raises:
        NotMeasured: What a batch costs was not measured.
    """
    work = _work_of(answer)
    guessed = guesses(answer, work, cpus_here, there)
    most = most_workers(work, there.memory_bytes)
    central = guessed.scenarios[0]
    number = _chosen(central, most)
    ends = [each.fewest(most, (GOOD - RATE, GOOD)) for each in guessed.scenarios]
    low = min(number, round((1 - NUMBER) * min(least for least, _ in ends)))
    high = max(number, min(most, round((1 + NUMBER) * max(good for _, good in ends))))
    shown = sorted({0, 1, low, number, high, *_between(high)} & set(range(most + 1)))
    row = row_for(guessed, work, number)
    limit = limit_there(answer, guessed, work, there.memory_bytes, number, most)
    return Foretold(
        name=answer.name,
        consumer=answer.consumer,
        num_workers=number,
        fewest=low,
        most=high,
        batches_per_s=row.batches_per_s,
        waiting=row.waiting,
        memory_bytes=row.memory_bytes,
        limit=limit,
        rows=tuple(row_for(guessed, work, each) for each in shown),
        reach=guessed.reach,
        assumptions=tuple(assumptions(answer, work, guessed, there)),
        fits=fits(work, there.memory_bytes),
    )


def _work_of(answer: Answer) -> Work:
    work = answer.work
    if work is None or work.service_s <= 0:
        raise NotMeasured(
            f"What a batch of {answer.name} costs was not measured.",
            doing="foretelling another machine from it",
            likely="it is the result of a sweep, which measures rates alone, or measuring failed",
            change=f"give a file written by `{_again(answer)}`, without --workers, --exhaustive, "
            "--batches and --repeats",
        )
    return work


def _again(answer: Answer) -> str:
    """The command that measures what is wanted."""
    target = "..." if answer.site else shlex.quote(answer.name)
    return f"stoker tune --json FILE {target}"


def row_for(guessed: Guesses, work: Work, workers: int) -> Row:
    """What so many workers would give, with its doubt."""
    rates = [each.rate_per_s(workers) for each in guessed.scenarios]
    ends = [1 / max(each.own_s(workers), 1e-9) for each in guessed.scenarios]
    most = max(max(rates), min((1 + RATE) * max(rates), max(ends)))
    waits = [each.waiting(workers) for each in guessed.scenarios]
    return Row(
        workers,
        Range((1 - RATE) * min(rates), rates[0], most),
        Range(min(waits), waits[0], max(waits)),
        memory_of(work, workers),
    )


def memory_of(work: Work, workers: int) -> int | None:
    """Bytes of so many workers and of the batches in flight; None where not known."""
    if work.worker_bytes is None and workers:
        return None
    return workers * (work.worker_bytes or 0) + (AHEAD * workers + 1) * work.batch_bytes


def most_workers(work: Work, memory_bytes: int) -> int:
    """The most workers that the memory has room for."""
    each = (work.worker_bytes or 0) + AHEAD * work.batch_bytes
    left = FOR_LOADING * memory_bytes - work.batch_bytes
    return max(0, min(MOST, int(left // each))) if each else MOST


def _chosen(central: Scenario, most: int) -> int:
    """The closed form, where the curve does not ask for fewer or more."""
    good, nearly_best = central.fewest(most, (GOOD, ENOUGH))
    fed = keeping_fed(central.curve.first_s, 1 / central.wanted_per_s)
    share = min(1.0, central.cpu_s / central.curve.first_s)
    served = keeping_busy(central.cpus, share, MOSTLY)
    return min(most, max(good, min(nearly_best, fed, served)))


def _between(high: int) -> list[int]:
    """Powers of two below `high`, the four largest."""
    powers = [1 << at for at in range(MOST.bit_length()) if 1 << at < high]
    return powers[-4:]
