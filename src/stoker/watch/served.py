"""What was done for a program's loaders, by the line that made them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from stoker.tuning.answer import Site


@dataclass(frozen=True)
class Served:
    """The loaders that one line made, in one process or in several.

    Attributes:
        site: The line.
        asked: The numbers of workers that the program gave, rising.
        made: How many loaders.
        epochs: Epochs begun.
        batches: Batches handed out.
        seconds: Time inside epochs, added up over processes.
        lost_s: Of that, how long the program waited for a batch, or made it itself.
        start_s: Starting workers: the program's own part, and waiting until one was ready.
        coming_up_s: Of that and of `lost_s`, the waiting.
        starts: How often workers were started where there were none.
        workers: The fewest and the most workers that a loader ended with.
        automatic: Whether that number was chosen and not the program's.
        reason: Why that many, in one sentence.
        fallback: Why PyTorch's own loader was used; empty where Stoker's was.
        processes: In how many processes.
    """

    site: Site
    asked: tuple[int, ...]
    made: int = 1
    epochs: int = 0
    batches: int = 0
    seconds: float = 0.0
    lost_s: float = 0.0
    start_s: float = 0.0
    coming_up_s: float = 0.0
    starts: int = 0
    workers: tuple[int, int] = (0, 0)
    automatic: bool = False
    reason: str = ""
    fallback: str = ""
    processes: int = 1

    @property
    def rate_per_s(self) -> float | None:
        """Batches a second in one process; None when nothing was measured."""
        return self.batches / self.seconds if self.seconds > 0 and self.batches else None

    @property
    def waiting(self) -> float | None:
        """Share of the time that the program waited; None when nothing was measured."""
        return min(1.0, self.lost_s / self.seconds) if self.seconds > 0 else None


@dataclass(frozen=True)
class Outcome:
    """What a run under ``stoker run`` came to.

    Attributes:
        command: The program with its arguments.
        returncode: Its exit code, or minus the signal that ended it.
        elapsed_s: Seconds it took.
        served: Its loaders, the one that cost most waiting first.
        failures: Why Stoker could do nothing in a process; each once.
    """

    command: str
    returncode: int
    elapsed_s: float
    served: tuple[Served, ...]
    failures: tuple[str, ...] = ()


def encode(lines: Iterable[Served]) -> str:
    """As text, for `decode` in another process."""
    return json.dumps([asdict(line) for line in lines])


def decode(text: str) -> list[Served]:
    """What `encode` was given.

    Raises:
        ValueError: It is no such text.
    """
    try:
        return [_served(told) for told in json.loads(text)]
    except (TypeError, KeyError) as error:
        raise ValueError(f"not what was written: {error}") from None


def _served(told: dict[str, Any]) -> Served:
    given = {each.name: told[each.name] for each in fields(Served)}
    fewest, most = given["workers"]
    given |= {"site": Site(**given["site"]), "workers": (fewest, most)}
    return Served(**given | {"asked": tuple(given["asked"])})


def merged(parts: Iterable[Served]) -> tuple[Served, ...]:
    """The same line in several processes once, the one that cost most waiting first."""
    found: dict[tuple[str, int, str, str], Served] = {}
    for part in parts:
        key = (part.site.file, part.site.line, part.site.library, part.fallback)
        before = found.get(key)
        found[key] = part if before is None else together(before, part)
    return tuple(sorted(found.values(), key=lambda line: -line.lost_s))


def together(one: Served, other: Served) -> Served:
    """The loaders of the same line, of two processes or of one, as one.

    One that was never asked for a batch counts only where no other was.
    """
    if not one.epochs or not other.epochs:
        used, unused = (other, one) if other.epochs else (one, other)
        asked = tuple(sorted({*one.asked, *other.asked}))
        both = used.processes + unused.processes
        return replace(used, asked=asked, processes=used.processes if used.epochs else both)
    longer = one if one.seconds >= other.seconds else other
    return replace(
        longer,
        asked=tuple(sorted({*one.asked, *other.asked})),
        made=one.made + other.made,
        epochs=one.epochs + other.epochs,
        batches=one.batches + other.batches,
        seconds=one.seconds + other.seconds,
        lost_s=one.lost_s + other.lost_s,
        start_s=one.start_s + other.start_s,
        coming_up_s=one.coming_up_s + other.coming_up_s,
        starts=one.starts + other.starts,
        workers=(min(one.workers[0], other.workers[0]), max(one.workers[1], other.workers[1])),
        processes=one.processes + other.processes,
    )
