"""Which programs are tuned, how each is started, and which counts its sweep tries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.auto.consumers import CONSUMERS
from benchmarks.works import WORKS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "scripts"
ON_CPUS = (0, 1, 2, 3, 4)
WAITING = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
QUICK = (0, 1, 2)
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")


@dataclass(frozen=True)
class Program:
    """A script as its user would start it, long enough for a sweep.

    Attributes:
        name: its file in ``examples/scripts``, without ``.py``.
        arguments: those of the script.
        starter: what ``stoker tune`` is given before the file.
        environment: variables that it reads its options from.
        counts: numbers of workers that the sweep measures, ascending.
    """

    name: str
    arguments: Sequence[str] = ()
    starter: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    counts: Sequence[int] = ON_CPUS

    def command(self) -> list[str]:
        """What follows the options of ``stoker tune``."""
        return [*self.starter, str(FOLDER / f"{self.name}.py"), *self.arguments]


@dataclass(frozen=True)
class WorkProgram(Program):
    """A work with a consumer, in the loop of `benchmarks.scripts.work`."""

    def command(self) -> list[str]:
        return ["-m", "benchmarks.scripts.work", *self.name.split()]


_ALL = (
    Program("plain_loop", ("--epochs", "100", "--limit", "9600")),
    Program("no_guard", ("200",)),
    Program("notebook", environment={"EPOCHS": "200"}, counts=WAITING),
    Program("lightning_module", ("--max_epochs", "300")),
    Program("hf_trainer", ("--max_steps", "20000")),
    Program("accelerate_loop", ("--num_epochs", "1000")),
    Program("torchrun_ddp", ("--total_epochs", "500"), starter=RANKS),
    Program("iterable_shards", ("--epochs", "300")),
    Program("gan", ("--n_epochs", "300")),
    Program("validation", ("--epochs", "300")),
)

PROGRAMS: dict[str, Program] = {program.name: program for program in _ALL}
"""By name. All of them are stopped when they have an answer, long before their own end."""

WORK_PROGRAMS: dict[str, Program] = {
    name: WorkProgram(
        name,
        environment={"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        counts=WAITING if work in ("waiting", "uneven") else ON_CPUS,
    )
    for work in WORKS
    for consumer in CONSUMERS
    for name in (f"{work} {consumer}",)
}
"""The works of the other benchmarks with each consumer, as programs, by name."""
