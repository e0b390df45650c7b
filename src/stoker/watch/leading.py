"""How several processes of one program try the same setting at the same batch.

The first process that loads leads. What it decides it writes down, for a batch of the site that
no process has reached: ranks that wait for each other in every step are never more than one
batch apart. Processes that do not wait for each other follow when they get there.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from stoker.tuning.probing import Ask, Setting

_LOOK_EVERY_S = 0.25
AHEAD = 2
"""Batches between a decision and its effect."""


class Leading:
    """One process's part in it.

    Args:
        folder: Of this run; all processes of the program share it.

    Attributes:
        leads: Whether this process decides.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._commands = self._folder / "commands.jsonl"
        self._asks: dict[str, list[tuple[int, Ask]]] = {}
        self._cuts: dict[str, int] = {}
        self._stop: tuple[str, int, str] | None = None
        self._offset = 0
        self._together = False
        self._look_s = 0.0
        self.leads = self._first()

    @property
    def followers(self) -> int:
        """Processes that follow."""
        return sum(1 for _ in self._folder.glob("follower-*"))

    @property
    def together(self) -> bool:
        """Whether what this process decides must wait for others."""
        now = perf_counter()
        if not self._together and _is_a_rank():
            self._together = True  # though the others may not have come to their loaders yet
        if not self._together and now >= self._look_s:
            self._look_s = now + _LOOK_EVERY_S
            self._together = int(os.environ.get("WORLD_SIZE") or 1) > 1 or self.followers > 0
        return self._together

    def asks(self, site: str, at: int, ask: Ask) -> None:
        """The leader will measure this from its batch ``at`` on."""
        self._write(
            site=site,
            at=at,
            stage=ask.stage,
            round=ask.round,
            setting=vars(ask.setting),
        )

    def cuts(self, site: str, at: int) -> None:
        """The leader will end its epoch before its batch ``at``."""
        self._write(site=site, at=at, cut=True)

    def stops(self, site: str, at: int, why: str) -> None:
        """The leader will stop before its batch ``at``."""
        self._write(site=site, at=at, stop=why)

    def ask_for(self, site: str, at: int) -> Ask | None:
        """For a follower: what the leader measures at this batch; None where it said nothing."""
        planned = self._asks.get(site, [])
        while len(planned) > 1 and planned[1][0] <= at:
            planned.pop(0)
        return planned[0][1] if planned and planned[0][0] <= at else None

    def is_cut(self, site: str, at: int) -> bool:
        """For a follower: whether the epoch ends before this batch."""
        if self._cuts.get(site, at + 1) > at:
            return False
        del self._cuts[site]
        return True

    def told_to_stop(self, site: str, at: int) -> str:
        """For a follower: why it is to stop before this batch; empty where it is not."""
        if self._stop is None:
            return ""
        where, when, why = self._stop
        return why if where != site or at >= when else ""

    def follow(self) -> None:
        """For a follower: reads what is new; a fraction of a microsecond where nothing is."""
        if self.leads:
            return
        try:
            if os.stat(self._commands).st_size <= self._offset:
                return
            with open(self._commands, "rb") as stream:
                stream.seek(self._offset)
                lines = stream.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if line.endswith(b"\n"):
                self._offset += len(line)
                self._take(json.loads(line))

    def _take(self, told: dict[str, Any]) -> None:
        site, at = told["site"], told["at"]
        if told.get("stop"):
            self._stop = site, at, told["stop"]
        elif told.get("cut"):
            self._cuts[site] = at
        else:
            ask = Ask(told["stage"], Setting(**told["setting"]), 10**9, 1e9, told["round"], True)
            self._asks.setdefault(site, []).append((at, ask))

    def _write(self, **told: Any) -> None:
        try:
            with open(self._commands, "ab") as stream:
                stream.write(json.dumps(told).encode() + b"\n")
        except OSError:  # the run is over
            pass

    def _first(self) -> bool:
        if os.environ.get("LOCAL_RANK", "0") != "0":  # the first one may have loaders of its own
            self._follows()
            return False
        try:
            os.close(os.open(self._folder / "leader", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return True
        except FileExistsError:
            self._follows()
            return False
        except OSError:  # the run is over
            return True

    def _follows(self) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"follower-{os.getpid()}").touch()


def _is_a_rank() -> bool:
    """Whether this process has joined a group of several; PyTorch alone knows of spawned ones."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return bool(distributed.get_world_size() > 1)
