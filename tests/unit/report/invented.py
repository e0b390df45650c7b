"""An invented result of ``stoker tune``."""

from __future__ import annotations

from stoker.host.cpus import CpuFacts, Fact
from stoker.host.software import SoftwareFacts
from stoker.tuning.meter import Observation
from stoker.tuning.reason import reason
from stoker.tuning.recommend import decide, summarise
from stoker.tuning.result import Failure, LoaderFacts, Recommendation, TuneResult
from tests.unit.tuning.invented import repeats

CPUS = CpuFacts(
    usable=Fact(2, "affinity; no cgroup quota"),
    machine=Fact(8, "os.cpu_count"),
    affinity=Fact(2, "os.sched_getaffinity"),
    quota=Fact(None, "no cgroup sets a CPU quota"),
    override=Fact(None, "unset"),
)
LOADER = LoaderFacts("torch.utils.data.DataLoader", 4, 64, 938, False, "2.13.0")
RATES = {0: [430.0, 440.0, 425.0], 2: [812.0, 810.0, 815.0], 4: [800.0, 790.0, 805.0]}


def invent(
    observations: list[Observation] | None = None, failures: tuple[Failure, ...] = ()
) -> TuneResult:
    observations = repeats(RATES) if observations is None else observations
    whole = [each for each in observations if each.complete]
    decision = decide(whole)
    found = None
    if decision is not None:
        chosen = {each.num_workers: each for each in summarise(whole)}[decision.chosen]
        told = reason(decision, summarise(whole))
        found = Recommendation(decision.chosen, chosen.batches_per_s, told, not decision.contested)
    return TuneResult(
        target="mnist.py:loader",
        loader=LOADER,
        counts=tuple(summarise(observations)),
        observations=tuple(observations),
        recommendation=found,
        failures=failures,
        cpus=CPUS,
        software=SoftwareFacts("3.11.7", "Linux"),
        elapsed_s=12.5,
    )
