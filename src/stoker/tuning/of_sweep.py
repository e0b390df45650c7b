"""The report of a full sweep: what its measurements say, and no more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.tuning.answer import Advice, Answer, Change, Limit, Rate, Report
from stoker.tuning.recommend import CountSummary
from stoker.tuning.result import TuneResult

if TYPE_CHECKING:
    from stoker.host.facts import Fact

CONSUMER = "nothing: batches are dropped"
UNTOLD = "A sweep measures rates, and does not tell what keeps batches from coming faster."
UNMEASURED = "No worker count was measured to the end."


def report_of_sweep(result: TuneResult, memory: Fact[int], consumer: str = CONSUMER) -> Report:
    """A report with one answer.

    Args:
        result: What the sweep found.
        memory: Bytes that were available when it began.
        consumer: What used the batches, in plain words.
    """
    return Report(
        command=result.target,
        kind="target",
        answers=(_answer(result, consumer),),
        failures=result.failures,
        cpus=result.cpus,
        memory=memory,
        software=result.software,
        elapsed_s=result.elapsed_s,
    )


def change_text(result: TuneResult) -> str:
    """The setting to use, and what there is now; empty without a recommendation."""
    found, loader = result.recommendation, result.loader
    if found is None:
        return ""
    change = f"num_workers={found.num_workers}"
    if loader is None:
        return change
    if loader.automatic:
        return f"{change}  (now it is chosen while the loader runs)"
    if loader.num_workers == found.num_workers:
        return f"{change}  (as it is now)"
    return f"{change}  (now {loader.num_workers})"


def _answer(result: TuneResult, consumer: str) -> Answer:
    own = _own(result)
    now = next((each for each in result.counts if each.num_workers == own and each.complete), None)
    return Answer(
        name=result.target,
        loader=result.loader,
        consumer=consumer,
        epochs=sum(each.epochs for each in result.observations),
        batches=sum(each.batches for each in result.observations),
        seconds=sum(each.measured_s for each in result.observations),
        now_per_s=now.batches_per_s if now else None,
        waiting=1.0 if now else None,
        step_s=0.0 if result.counts else None,
        start_s=now.first_batch_s if now else None,
        rates=tuple(Rate(each, 1.0, own=each.num_workers == own) for each in result.counts),
        limit=Limit("unknown", UNTOLD if result.recommendation else UNMEASURED),
        advice=_advice(result, now),
        change=_change(result),
    )


def _own(result: TuneResult) -> int | None:
    """The number that the user's program has; None where that is chosen while it runs."""
    loader = result.loader
    return None if loader is None or loader.automatic else loader.num_workers


def _advice(result: TuneResult, now: CountSummary | None) -> Advice | None:
    """The recommendation; its gain is over a whole epoch, start-up included."""
    found = result.recommendation
    if found is None:
        return None
    chosen = next(each for each in result.counts if each.num_workers == found.num_workers)
    gain = chosen.epoch_batches_per_s / now.epoch_batches_per_s if now else None
    return Advice(found.num_workers, found.batches_per_s, found.reason, found.certain, gain=gain)


def _change(result: TuneResult) -> Change | None:
    found = result.recommendation
    if found is None or found.num_workers == _own(result):
        return None
    return Change(change_text(result))
