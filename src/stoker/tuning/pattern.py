"""What the waits of a loader and its totals say in words. Pure.

Every remark rests on numbers that are in it, and is made only where they are large enough
to matter; the thresholds below are what "enough" means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from stoker.tuning.statistics import Statistics
from stoker.tuning.wording import count_of, duration, percent, workers

LEAST_SHARE = 0.1  # of the time: waiting that is less is no bottleneck
LEAST_LONG_S = 0.001  # shorter waits are the scheduler's and not the loader's
LEAST_CYCLES = 6  # of N waits each
LEAST_CYCLES_OF_FEW = 16  # with 2 or 3 workers, where chance makes the pattern more easily
REGULAR = 0.75  # of the long waits come N after the one before; of noise less than 0.26 do
QUICK = 0.25  # of a long wait: the most that the waits between are in the median
LEAST_MADE = 20  # batches that a mean rests on
STARVED = 0.15  # of the workers' time
IN_ORDER = 0.2  # of the waiting
SMALL_BATCH_S = 0.001  # two processes pass a batch on in some tenths of a millisecond


def every_nth(waits_s: Sequence[float], num_workers: int, away_each_s: float) -> str | None:
    """Names the pattern "slow every N-th batch with N workers", where it is there.

    N workers that start together finish together: one long wait, then N-1 batches that are
    ready. It is named only where waiting takes a notable share of the time.

    Args:
        waits_s: The consumer's waits in seconds, in order of delivery and all with this
            number of workers; the last few hundred.
        num_workers: How many workers made these batches.
        away_each_s: Mean seconds of the consumer's own step between two batches.

    Returns:
        A sentence with the numbers and what they mean, or None.
    """
    least = LEAST_CYCLES_OF_FEW if num_workers <= 3 else LEAST_CYCLES
    if num_workers < 2 or len(waits_s) < least * num_workers:
        return None
    waiting = sum(waits_s) / (sum(waits_s) + len(waits_s) * max(away_each_s, 0.0) or 1.0)
    ranked = sorted(waits_s, reverse=True)
    long_s = median(ranked[: len(waits_s) // num_workers])
    if waiting < LEAST_SHARE or long_s < LEAST_LONG_S:
        return None
    slow = [at for at, wait_s in enumerate(waits_s) if wait_s > long_s / 2]
    quick_s = median([wait_s for wait_s in waits_s if wait_s <= long_s / 2] or [long_s])
    gaps = [after - before for before, after in pairwise(slow)]
    regular = gaps.count(num_workers)
    if quick_s > QUICK * long_s or regular < max(REGULAR * len(gaps), least - 2):
        return None
    return _sentence(num_workers, regular, len(gaps), long_s, quick_s, waiting, away_each_s)


def _sentence(
    count: int,
    regular: int,
    gaps: int,
    long_s: float,
    quick_s: float,
    waiting: float,
    away_each_s: float,
) -> str:
    between = "batch between was" if count == 2 else f"{count - 1} batches between were"
    return (
        f"slow every {_ordinal(count)} batch with {workers(count)}: {regular} of {gaps} waits "
        f"of about {duration(long_s)} came {count} batches after the one before; the {between} "
        f"simply ready ({duration(quick_s)}), since the workers finish together. Loading is "
        f"the bottleneck ({percent(waiting)} of the time is waiting), or the training step of "
        f"{duration(away_each_s)} is tiny beside it; more workers help only while CPUs are free"
    )


def _ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{'th' if count % 100 in (11, 12, 13) else ending}"


def remarks(
    statistics: Statistics, *, live_loaders: int = 1, all_workers: int = 0, ranks: int = 1
) -> tuple[str, ...]:
    """What stands out in a loader's totals, a sentence each.

    Args:
        statistics: The totals.
        live_loaders: Loaders with workers in this process and its ranks.
        all_workers: Workers of all of these.
        ranks: Processes of the training run that share this machine's CPUs.
    """
    return (
        *_more_workers_than_batches(statistics),
        *_nothing_to_do(statistics),
        *_starved(statistics, live_loaders, all_workers, ranks),
        *_out_of_turn(statistics),
        *_given_up(statistics),
    )


def _given_up(told: Statistics) -> Iterator[str]:
    if told.timed_out:
        yield (
            f"{count_of(told.timed_out, 'batch')} did not come within timeout=; "
            f"{told.left_out:,} of them left out, the others made again (on_timeout=)"
        )


def _more_workers_than_batches(told: Statistics) -> Iterator[str]:
    if told.length is not None and told.num_workers > max(told.length, 1):
        spare = told.num_workers - told.length
        has = "has" if spare == 1 else "have"
        yield (
            f"{count_of(told.length, 'batch')} an epoch for {workers(told.num_workers)}: "
            f"{spare} {has} nothing to do"
        )


def _nothing_to_do(told: Statistics) -> Iterator[str]:
    """Where making a batch is no more than passing it between processes."""
    if told.service_s is None or told.made < LEAST_MADE or not told.batches:
        return
    handling_s = told.handling_s / told.batches
    if told.num_workers and told.service_s <= handling_s:
        beside = f", no more than the {duration(handling_s)} of handing it on from a worker"
    elif told.service_s < SMALL_BATCH_S:
        beside = ""
    else:
        return
    if told.batch_size:
        sample_s = told.service_s / told.batch_size
        head = f"a sample takes {duration(sample_s)}, a batch of {told.batch_size} takes"
    else:
        head = "a batch takes"
    yield f"{head} {duration(told.service_s)}{beside}: nothing for workers to do in parallel"


def _starved(told: Statistics, loaders: int, all_workers: int, ranks: int) -> Iterator[str]:
    if not told.starved_s or not told.service_s or told.made < LEAST_MADE:
        return
    count = max(all_workers, told.num_workers)
    yield from starved(count, told.starved_s / told.service_s, told.cpus, loaders, ranks)


def starved(
    count: int, share: float, cpus: float | None, loaders: int = 1, ranks: int = 1
) -> Iterator[str]:
    """Whether workers are too many for the CPUs, with the measured reason.

    Args:
        count: Workers of all live loaders, on all ranks.
        share: Of the time of making a batch, how long a worker was ready without a CPU.
        cpus: CPUs that they may use; None when not known.
        loaders: Live loaders.
        ranks: Processes of the training run that share the CPUs.
    """
    if share < STARVED or not count:
        return
    of = f" of {loaders} loaders" if loaders > 1 else ""
    on = f", on {ranks} ranks," if ranks > 1 else ""
    names = "the CPUs" if cpus is None else f"{cpus:g} CPU{'' if cpus == 1 else 's'}"
    shares = "shares" if count == 1 else "share"
    yield (
        f"{workers(count)}{of}{on} {shares} {names}: "
        f"they stood {percent(min(1.0, share))} of their time without one"
    )


def _out_of_turn(told: Statistics) -> Iterator[str]:
    notable = told.seconds > 0 and told.waited_s / told.seconds >= LEAST_SHARE
    if notable and told.order_s >= IN_ORDER * told.waited_s:
        yield (
            f"{duration(told.order_s)} of {duration(told.waited_s)} waiting were for a batch "
            f"whose successors were ready: in_order=False hands those out first"
        )
