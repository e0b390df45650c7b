"""What Slurm says about the CPUs of this task, from the variables it sets.

Meanings are those of the manual pages sbatch(1) and srun(1), "OUTPUT ENVIRONMENT
VARIABLES". Only srun sets the ``SLURM_STEP_`` ones: in a batch script that calls Python
itself, ``SLURM_NTASKS_PER_NODE`` counts tasks which nobody has started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stoker.host.facts import Fact

_PER_TASK = "SLURM_CPUS_PER_TASK"
_ON_NODE = "SLURM_CPUS_ON_NODE"
_COUNTS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def positive(environ: Mapping[str, str], name: str) -> int | None:
    """The whole number of at least 1 that a variable holds; None otherwise."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) >= 1 else None


def in_step(environ: Mapping[str, str]) -> bool:
    """Whether srun has started this process or one above it."""
    return "SLURM_STEP_ID" in environ or "SLURM_STEP_TASKS_PER_NODE" in environ


def tasks_on_node(environ: Mapping[str, str]) -> Fact[int]:
    """Tasks of this Slurm step on this node, this one included; 1 outside of a step."""
    if not in_step(environ):
        return Fact(1, "no Slurm step")
    name = "SLURM_STEP_TASKS_PER_NODE"
    count = _of_this_node(environ, name)
    if count is None:
        name = "SLURM_NTASKS_PER_NODE"
        count = positive(environ, name)
    return Fact(1, "a Slurm step without a number of tasks") if count is None else Fact(count, name)


def cpus_on_node(environ: Mapping[str, str]) -> Fact[int | None]:
    """CPUs of this job, or step, on this node; None outside of Slurm."""
    count = positive(environ, _ON_NODE)
    if count is not None:
        return Fact(count, _ON_NODE)
    name = "SLURM_JOB_CPUS_PER_NODE"
    count = _of_this_node(environ, name)
    return Fact(count, name) if count is not None else Fact(None, "Slurm names no CPUs")


def cpus_per_task(environ: Mapping[str, str]) -> Fact[int | None]:
    """CPUs asked for each task of the step; None when not asked, or outside of a step."""
    count = positive(environ, _PER_TASK) if in_step(environ) else None
    return Fact(count, _PER_TASK if count else "no CPUs per task of a Slurm step")


def cpus_of_task(environ: Mapping[str, str]) -> Fact[int | None]:
    """The most CPUs that this Slurm task may use, by request or by what the node lends."""
    asked = cpus_per_task(environ)
    return asked if asked.value is not None else cpus_on_node(environ)


def _of_this_node(environ: Mapping[str, str], name: str) -> int | None:
    """This node's number out of a list like ``8(x2),4``: nodes 0 and 1 have 8, node 2 has 4."""
    counts: list[int] = []
    for part in environ.get(name, "").split(","):
        match = _COUNTS.fullmatch(part.strip())
        if match is None:
            return None
        counts += [int(match[1])] * min(int(match[2] or 1), 1 << 16)
    node = environ.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) < len(counts):
        return counts[int(node)]
    return counts[0] if len(set(counts)) == 1 else None
