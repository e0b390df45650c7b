"""What every Python process of a watched program is told, through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

VARIABLE = "STOKER_WATCH"


@dataclass(frozen=True)
class Settings:
    """How a program is watched.

    Attributes:
        mode: "tune": its loaders are measured. "run": Stoker serves them.
        folder: A temporary folder of this run; what processes tell is written there.
        workers: For "run". "auto": loaders choose their number; "keep": the program's numbers.
        steps: For "tune". Steps of a loader after which it is measured enough; None: until the
            answer is certain.
        seconds: The same in seconds.
        counts: Exactly these numbers of workers are to be measured; None: as found best.
        trace: Whether single events are kept for a timeline.
        cache: Whether answers of earlier runs may be used and kept.
        timeout_s: Seconds without a batch after which a setting that is tried has failed.
        consumer: What uses the batches, in plain words.
        command: Process id of the command that started the program; 0 where there is none.
    """

    mode: Literal["tune", "run"]
    folder: str
    workers: Literal["auto", "keep"] = "auto"
    steps: int | None = None
    seconds: float | None = None
    counts: tuple[int, ...] | None = None
    trace: bool = False
    cache: bool = True
    timeout_s: float = 120.0
    consumer: str = "the program's own step"
    command: int = 0

    def encode(self) -> str:
        """For the environment variable `VARIABLE`."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Settings:
        """What `encode` has made.

        Raises:
            ValueError: It is no such text.
            TypeError: It is of another version.
        """
        given = json.loads(text)
        if given.get("counts") is not None:
            given["counts"] = tuple(given["counts"])
        return cls(**given)

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Settings | None:
        """Those of this process; None where the program is not watched."""
        text = environment.get(VARIABLE)
        return None if not text else cls.decode(text)
