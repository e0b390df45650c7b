"""What a trial and a whole run of ``stoker tune`` give: plain, frozen records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stoker.tuning.meter import Observation
from stoker.tuning.recommend import CountSummary

if TYPE_CHECKING:  # reading the facts is not pure, holding them is
    from stoker.host.cpus import CpuFacts
    from stoker.host.software import SoftwareFacts

FailureKind = Literal["target", "raised", "died", "empty", "hang", "interrupted"]


@dataclass(frozen=True)
class LoaderFacts:
    """The loader as its user made it.

    Attributes:
        kind: Full name of its class.
        num_workers: Its own number of workers.
        batch_size: Samples a batch; None with a batch sampler or without batching.
        epoch_batches: ``len(loader)``; None where it has none.
        persistent_workers: Its own setting.
        torch: Version of torch that ran it.
        automatic: Whether it chooses that number itself.
        iterable: Whether its data set is iterated and not indexed.
    """

    kind: str
    num_workers: int
    batch_size: int | None
    epoch_batches: int | None
    persistent_workers: bool
    torch: str
    automatic: bool = False
    iterable: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a trial gave no whole measurement, in the four parts of every Stoker error.

    Attributes:
        kind: "target": there is no loader to measure. "raised": the user's code did.
            "died": the trial's process did. "empty": no batch in an epoch. "hang": no batch
            in time. "interrupted": by Ctrl-C or a signal.
        num_workers: The count being measured; None when none was.
        what: What happened.
        doing: What was being done.
        likely: The likely cause; may be empty.
        change: What changes it; may be empty.
        detail: The end of the user's traceback or of what the process wrote; may be empty.
        batches: Batches that had come before; None before the loader was made.
    """

    kind: FailureKind
    num_workers: int | None
    what: str
    doing: str = ""
    likely: str = ""
    change: str = ""
    detail: str = ""
    batches: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What one trial gave: a measurement, a failure, or a measurement cut short by one."""

    observation: Observation | None = None
    failure: Failure | None = None
    loader: LoaderFacts | None = None


@dataclass(frozen=True)
class Recommendation:
    """The answer.

    Attributes:
        num_workers: The fewest workers within noise of the best.
        batches_per_s: What they gave.
        reason: Why, in one sentence.
        certain: False when more repeats might change it.
    """

    num_workers: int
    batches_per_s: float
    reason: str
    certain: bool


@dataclass(frozen=True)
class TuneResult:
    """Everything a run of ``stoker tune`` found.

    Attributes:
        target: As given on the command line.
        loader: The loader as its user made it; None when it could not be made.
        counts: One summary for each worker count that gave a measurement.
        observations: Every measurement behind them.
        recommendation: None when no count was measured to the end.
        failures: What went wrong, in order.
        cpus: The CPUs of this process.
        software: Versions.
        elapsed_s: Seconds the whole run took.
    """

    target: str
    loader: LoaderFacts | None
    counts: tuple[CountSummary, ...]
    observations: tuple[Observation, ...]
    recommendation: Recommendation | None
    failures: tuple[Failure, ...]
    cpus: CpuFacts
    software: SoftwareFacts
    elapsed_s: float
