"""How many processes train together on this node, and the CPUs that one of them has.

A launcher either lets its ranks share the CPUs or binds each to some of its own. Which of
the two it did is not asked of its options: every rank's own mask is read, and a CPU that
n ranks may run on counts as 1/n of one. Where the others' masks cannot be seen, the CPUs
are taken to be shared, so that the answer is rather too small than too large.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.host import slurm
from stoker.host.cpus import OVERRIDE_VARIABLE, CpuFacts, cpu_facts
from stoker.host.facts import Fact
from stoker.host.siblings import masks_of_ranks

LEAST_SHARE_CPUS = 0.01  # so that nobody divides by nothing; no real quota is as small

# torchrun's: docs.pytorch.org, "torchrun", environment variables.
_TORCHRUN = ("LOCAL_WORLD_SIZE", "LOCAL_RANK")
_TORCHRUN_MARK = "TORCHELASTIC_RUN_ID"
# (how many on this node, which of them this is) by the launchers' documentation: Open MPI,
# MVAPICH2, MPICH and Intel MPI (Hydra), Cray PALS, PMI, IBM jsrun, Horovod, DeepSpeed.
_MPI = (
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID"),
    ("PMI_LOCAL_SIZE", "PMI_LOCAL_RANK"),
    ("JSM_NAMESPACE_LOCAL_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
    ("HOROVOD_LOCAL_SIZE", "HOROVOD_LOCAL_RANK"),
    ("LOCAL_SIZE", "LOCAL_RANK"),
)
_SLURM_RANK = "SLURM_LOCALID"


@dataclass(frozen=True)
class CpuShare:
    """What this process's loaders may count on.

    Attributes:
        ranks: Processes of this training on this node, this one included; 1 if none is known.
        cpus: CPUs for all loaders of this process together; may be a fraction. What comes
            from a quota bounds work, not waiting.
    """

    ranks: Fact[int]
    cpus: Fact[float]


@dataclass(frozen=True)
class _Ranks:
    """Ranks as the launchers count them.

    Attributes:
        total: On this node.
        beside: Started by the innermost launcher: the processes next to this one.
        mark: Variable that only the ranks of that launcher have, not the launcher itself.
        tasks: Slurm tasks among which `total` divides; None where another launcher counts.
    """

    total: Fact[int]
    beside: int
    mark: str
    tasks: int | None


def cpu_share(
    facts: CpuFacts | None = None,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
) -> CpuShare:
    """The CPUs that one rank has of those this process may use.

    Args:
        facts: What `cpu_facts` found; read when None.
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.
        environ: The environment; this process's when None.
    """
    environ = os.environ if environ is None else environ
    facts = cpu_facts(root, environ) if facts is None else facts
    ranks, override = _ranks(environ), facts.override
    if override.value is not None and override.source == OVERRIDE_VARIABLE:
        return CpuShare(ranks.total, Fact(float(override.value), OVERRIDE_VARIABLE))
    usable = Fact(float(facts.usable.value), facts.usable.source)
    shares = [_of_mask(facts, ranks, root, environ), _of_slurm(ranks, environ), usable]
    if facts.quota.value is not None:
        source = _divided(f"cgroup quota of {facts.quota.value:g} CPUs", ranks.total.value)
        shares.append(Fact(facts.quota.value / ranks.total.value, source))
    least = min((share for share in shares if share is not None), key=lambda share: share.value)
    return CpuShare(ranks.total, Fact(max(least.value, LEAST_SHARE_CPUS), least.source))


def ranks_on_node(environ: Mapping[str, str] | None = None) -> int:
    """Processes of this training on this node, by what the launchers say; reads no file."""
    return _ranks(os.environ if environ is None else environ).total.value


def _ranks(environ: Mapping[str, str]) -> _Ranks:
    outer, own = _outer_ranks(environ), slurm.positive(environ, _TORCHRUN[0])
    if own is None:
        return outer
    if _TORCHRUN_MARK in environ:  # torchrun is a task of the outer launcher; its ranks share it
        total = own * outer.total.value
        source = _TORCHRUN[0] if total == own else f"{_TORCHRUN[0]} × {outer.total.source}"
        return _Ranks(Fact(total, source), own, _TORCHRUN[1], outer.tasks)
    if own <= outer.total.value:  # a script has exported what the outer launcher says
        return outer
    return _Ranks(Fact(own, _TORCHRUN[0]), own, _TORCHRUN[1], outer.tasks)


def _outer_ranks(environ: Mapping[str, str]) -> _Ranks:
    tasks, (size, mark) = slurm.tasks_on_node(environ), _first(environ)
    if size.value > tasks.value:  # mpirun in a batch script, or in one task of Slurm's
        return _Ranks(size, size.value, mark, None)
    total = tasks if tasks.value > 1 else size
    return _Ranks(total, tasks.value, _SLURM_RANK, tasks.value)


def _first(environ: Mapping[str, str]) -> tuple[Fact[int], str]:
    for size, rank in _MPI:
        count = slurm.positive(environ, size)
        if count is not None and (size != "LOCAL_SIZE" or rank in environ):
            return Fact(count, size), rank
    return Fact(1, "no launcher is known"), ""


def _of_mask(facts: CpuFacts, ranks: _Ranks, root: Path, environ: Mapping[str, str]) -> Fact[float]:
    """The CPUs of the mask, each divided by the ranks that may run on it."""
    if ranks.beside == 1:
        return Fact(float(_visible(facts)), "affinity")
    masks = masks_of_ranks(ranks.mark, ranks.beside, root)
    if masks is not None:
        own, others = masks
        share = sum(1 / (1 + sum(cpu in other for other in others)) for cpu in own)
        bound = share == len(own)
        source = "bound to CPUs of its own" if bound else f"shared with {len(others)} ranks"
        return Fact(min(share, float(_visible(facts))), f"affinity; {source}")
    lent = _lent_to_tasks(environ) if ranks.mark == _SLURM_RANK else 0
    fair = max(_visible(facts), lent) / ranks.beside
    return Fact(min(float(_visible(facts)), fair), _divided("affinity", ranks.beside))


def _lent_to_tasks(environ: Mapping[str, str]) -> int:
    """CPUs of all tasks of a Slurm step on this node; 0 when not known."""
    lent = slurm.cpus_on_node(environ).value
    each, tasks = slurm.cpus_per_task(environ).value, slurm.tasks_on_node(environ).value
    return lent or (each or 0) * tasks


def _visible(facts: CpuFacts) -> int:
    """CPUs that may run this process at all; a quota is none of it."""
    return facts.machine.value if facts.affinity.value is None else facts.affinity.value


def _of_slurm(ranks: _Ranks, environ: Mapping[str, str]) -> Fact[float] | None:
    asked, lent = slurm.cpus_per_task(environ), slurm.cpus_on_node(environ)
    if asked.value is not None and ranks.tasks is not None:
        inside = ranks.total.value // ranks.tasks
        return Fact(asked.value / inside, _divided(asked.source, inside))
    if lent.value is not None:
        return Fact(lent.value / ranks.total.value, _divided(lent.source, ranks.total.value))
    return None


def _divided(source: str, ranks: int) -> str:
    return source if ranks == 1 else f"{source}, for {ranks} ranks"
