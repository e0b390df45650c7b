"""What was seen of the loaders that one line of a program made; as it was seen. Pure.

It is written by the process that runs the user's program, and read by the command.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from stoker.feed.window import Window
from stoker.tuning.answer import Site, Span
from stoker.tuning.probing import Setting
from stoker.tuning.result import Failure, LoaderFacts


@dataclass(frozen=True)
class Seen:
    """One measured stretch.

    Attributes:
        setting: How the loader ran.
        stage: What it was measured for, as in `probing`.
        round: Of pairs.
        window: What was seen.
        first_batch_s: From starting the loader to its first batch; None where it ran already.
        memory_bytes: What its workers have for themselves; None when not known.
    """

    setting: Setting
    stage: str
    round: int
    window: Window
    first_batch_s: float | None = None
    memory_bytes: int | None = None


@dataclass
class SiteRecord:
    """See the module.

    Attributes:
        site: The line.
        loader: The loader as its user made it.
        made: Loaders that were made there.
        epochs: Epochs begun.
        ended: Epochs that went to their end.
        batches: Batches handed out.
        seconds: Time that was watched.
        own: The program's own number of workers.
        persistent: Its own setting.
        method: How processes are started.
        chosen: The number that is best as far as is known.
        certain: Whether more measurements would hardly change it.
        reason: The last reason of the search.
        rare: Share of the program's time in which it waits for this line, where that is too
            little to measure another number for; else 0.
        stage: Where the search stands.
        seen: Every measured stretch.
        starts_s: From ``iter(loader)`` to the first batch, for each epoch with the own setting.
        waits: Upper bounds in seconds, and how many waits with the own setting were up to it.
        waits_s: The last waits with the own setting, in order.
        lines: What a sampler counted in the code that loads; see `dearest`.
        spans: The timeline.
        failures: What went wrong while something else than the own setting was tried.
        cpus: CPUs that this process may use, and who says so.
        workers_most: The most workers for other reasons than CPUs, and who says so.
        fingerprint: Says which data set this is; empty when not known.
        machine: Says which machine this is; empty when not known.
        batch_bytes: Size of the largest batch.
        shards: Whether an iterable data set shares itself out among workers; None for others.
        ranks: Processes of the program that run this line.
        beside: Workers of each other loader of the program that ran meanwhile.
        consumer: What used the batches, in plain words.
        live: Whether it is the one being measured.
    """

    site: Site
    loader: LoaderFacts
    made: int = 1
    epochs: int = 0
    ended: int = 0
    batches: int = 0
    seconds: float = 0.0
    own: int = 0
    persistent: bool = False
    method: str = "fork"
    chosen: int = 0
    certain: bool = False
    reason: str = ""
    rare: float = 0.0
    stage: str = "own"
    seen: list[Seen] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    waits: list[tuple[float, int]] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    lines: list[Any] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    cpus: tuple[float, str] = (1.0, "")
    workers_most: tuple[int, str] = (0, "")
    fingerprint: str = ""
    machine: str = ""
    batch_bytes: int = 0
    shards: bool | None = None
    ranks: int = 1
    beside: list[int] = field(default_factory=list)
    consumer: str = "the program's own step"
    live: bool = False


def to_json(records: list[SiteRecord], **more: Any) -> str:
    """Text for the command to read; ``more`` is plain data about the program."""
    return json.dumps({"sites": [asdict(each) for each in records], **more})


def from_json(text: str) -> tuple[list[SiteRecord], dict[str, Any]]:
    """What `to_json` has written."""
    told: dict[str, Any] = json.loads(text)
    return [_record(each) for each in told.pop("sites")], told


def _record(told: dict[str, Any]) -> SiteRecord:
    told["site"] = Site(**told["site"])
    told["loader"] = LoaderFacts(**told["loader"])
    told["seen"] = [_seen(each) for each in told["seen"]]
    told["spans"] = [Span(**each) for each in told["spans"]]
    told["failures"] = [Failure(**each) for each in told["failures"]]
    for name in ("cpus", "workers_most"):
        told[name] = tuple(told[name])
    told["waits"] = [(bound, count) for bound, count in told["waits"]]
    return SiteRecord(**{each.name: told[each.name] for each in fields(SiteRecord)})


def _seen(told: dict[str, Any]) -> Seen:
    setting, window = Setting(**told.pop("setting")), Window(**told.pop("window"))
    return Seen(setting=setting, window=window, **told)
