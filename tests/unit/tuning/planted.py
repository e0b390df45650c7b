"""Records of what was seen of a line, as a run of ``stoker tune`` would have written them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.feed.window import Window
from stoker.tuning.answer import Answer, Site
from stoker.tuning.findings import answer_of
from stoker.tuning.probing import Setting
from stoker.tuning.result import LoaderFacts
from stoker.tuning.site_record import Seen, SiteRecord

SITE = Site("/home/me/train.py", 2, "<module>", "loader = DataLoader(data, batch_size=4)")
SOURCE = "from torch.utils.data import DataLoader\nloader = DataLoader(data, batch_size=4)\n"
FACTS = LoaderFacts("torch.utils.data.DataLoader", 0, 4, 1000, False, "2.13.0")
BATCHES = 50


def window(
    workers: int,
    per_s: float,
    *,
    service_s: float = 0.1,
    cpu: float = 0.02,
    step_s: float = 0.001,
    starved_s: float = 0.0,
    handling_s: float = 0.0002,
) -> Window:
    """A window of 50 batches at this rate, made in `service_s` each; `cpu` of that computing."""
    seconds = BATCHES / per_s
    away_s = min(BATCHES * step_s, seconds)
    handled_s = BATCHES * handling_s if workers else 0.0
    busy_s = BATCHES * service_s if workers else max(0.0, seconds - away_s)
    waited_s = max(0.0, seconds - away_s - handled_s) if workers else 0.0
    return Window(
        workers=workers,
        batches=BATCHES,
        seconds=seconds,
        waited_s=waited_s,
        away_s=away_s,
        handling_s=handled_s,
        made=BATCHES,
        busy_s=busy_s,
        cpu_s=cpu * busy_s,
        starved_s=BATCHES * starved_s,
        order_s=0.0,
        batch_bytes=64,
    )


def seen(
    setting: int | Setting,
    per_s: float,
    *,
    stage: str = "search",
    round: int = 0,
    first_batch_s: float | None = None,
    memory_bytes: int | None = None,
    whole: bool = False,
    **more: Any,
) -> Seen:
    """One stretch."""
    setting = Setting(setting) if isinstance(setting, int) else setting
    found = replace(window(setting.workers, per_s, **more), whole=whole)
    return Seen(setting, stage, round, found, first_batch_s, memory_bytes)


def rounds(rates: dict[int, tuple[float, ...]], **more: Any) -> list[Seen]:
    """Stretches of several numbers in turn: round by round the rates of each."""
    count = len(next(iter(rates.values())))
    return [
        seen(workers, rates[workers][at], stage="confirm", round=at, **more)
        for at in range(count)
        for workers in rates
    ]


def extras(rates: dict[Setting, tuple[float, float]]) -> list[Seen]:
    """Two turns of settings other than the number, as the prober has them: in one round."""
    return [
        seen(setting, pair[at], stage="extras", round=2)
        for at in range(2)
        for setting, pair in rates.items()
    ]


def own(workers: int, *rates: float, **more: Any) -> list[Seen]:
    """What is measured first: the program's own number."""
    return [seen(workers, per_s, stage="own", **more) for per_s in rates]


def again(workers: int, *rates: float, **more: Any) -> list[Seen]:
    """What is measured of it last, in the rounds of what was found."""
    return [seen(workers, per_s, stage="again", round=at, **more) for at, per_s in enumerate(rates)]


def replays(*rates: float) -> list[Seen]:
    """Batches that were ready."""
    return [seen(0, per_s, stage="replay") for per_s in rates]


def record(*parts: list[Seen], **more: Any) -> SiteRecord:
    """A record of a loader that was watched for three epochs."""
    number = more.get("own", 0)
    facts = replace(
        FACTS,
        num_workers=number,
        automatic=more.pop("automatic", False),
        epoch_batches=more.pop("epoch_batches", 1000),
        persistent_workers=more.get("persistent", False),
    )
    given: dict[str, Any] = {
        "loader": facts,
        "epochs": 3,
        "batches": 3000,
        "seconds": 20.0,
        "chosen": number,
        "certain": True,
        "stage": "done",
        "seen": [each for part in parts for each in part],
        "cpus": (8.0, "affinity"),
        "workers_most": (32, "the most worth trying on 8 CPUs"),
        **more,
    }
    return SiteRecord(SITE, **given)


def answer(*parts: list[Seen], **more: Any) -> Answer:
    """What is answered about such a record."""
    whole = more.pop("whole", False)
    made = record(*parts, **more)
    return answer_of(made, name="train.py:2", read_source=lambda file: SOURCE, whole=whole)
