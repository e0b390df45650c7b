"""Runs a program, or one loader in a program of our own, with its loaders measured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import StokerError
from stoker.host.cpus import cpu_facts
from stoker.host.memory import memory_facts
from stoker.host.software import software_facts
from stoker.tuning.answer import Answer, Report
from stoker.tuning.findings import answer_of
from stoker.tuning.fresh import program_of
from stoker.tuning.result import Failure
from stoker.tuning.site_record import SiteRecord, from_json
from stoker.tuning.wording import duration
from stoker.watch import launch
from stoker.watch.parts import failures_in
from stoker.watch.program import Program
from stoker.watch.settings import Settings
from stoker.watch.target_program import FAILED

STOP_GRACE_S = 15.0
OVERTIME_S = 30.0
DEFAULT_SECONDS = 120.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is to be measured, and for how long.

    Attributes:
        seconds: Seconds of watching after which the program is stopped in any case.
        steps: Batches after which it is.
        counts: Exactly these numbers of workers; None to search.
        timeout_s: Seconds without a batch after which a setting has failed.
        trace: Whether the whole timeline is wanted.
        cache: Whether the answer may be kept.
        to_stderr: Whether the program's standard output goes to standard error.
    """

    seconds: float | None = None
    steps: int | None = None
    counts: tuple[int, ...] | None = None
    timeout_s: float = 120.0
    trace: bool = False
    cache: bool = True
    to_stderr: bool = False


@dataclass(frozen=True)
class Watched:
    """What came of it: the report, and how the program ended."""

    report: Report
    ended: launch.Ended
    found: tuple[tuple[SiteRecord, Answer], ...]


def watch_program(program: Program, plan: Plan) -> Watched:
    """Run a user's program until its loaders have an answer; blocks.

    Raises:
        StokerError: It could not be started.
    """
    with launch.run_folder() as folder:
        settings = _settings(folder, plan, "the program's own step")
        return _watch(program, settings, plan, program.command, "program")


def watch_target(target: str, request: dict[str, object], plan: Plan, consumer: str) -> Watched:
    """Run one loader with a consumer until it has an answer; blocks.

    Args:
        target: As the user gave it.
        request: For `target_program`: the step and the batch size.
        plan: What is to be measured.
        consumer: The step in plain words.
    """
    argv = (
        sys.executable,
        "-c",
        program_of("stoker.watch.target_program"),
        json.dumps({"target": target, **request}),
    )
    with launch.run_folder() as folder:
        settings = _settings(folder, plan, consumer)
        return _watch(Program((target,), argv), settings, plan, target, "target")


def _settings(folder: str, plan: Plan, consumer: str) -> Settings:
    return Settings(
        "tune",
        folder,
        steps=plan.steps,
        seconds=plan.seconds or DEFAULT_SECONDS,
        counts=plan.counts,
        trace=plan.trace,
        cache=plan.cache,
        timeout_s=plan.timeout_s,
        consumer=consumer,
    )


def _watch(program: Program, settings: Settings, plan: Plan, command: str, kind: str) -> Watched:
    cpus, memory = cpu_facts(), memory_facts().available_bytes
    began = time.monotonic()
    folder = Path(settings.folder)
    with launch.started(program, settings, stdout_to_stderr=plan.to_stderr) as running:
        keeper = _TimeKeeper(folder, running, settings, hangs=kind == "target")
        ended = running.wait(keeper.tick)
    elapsed_s = time.monotonic() - began
    records, stopping = _records(folder)
    found = _answers(records, command if kind == "target" else "", plan)
    failures = _failures(folder, keeper, settings)
    by_itself = not stopping and not keeper.pressed
    report = Report(
        command=command,
        kind="target" if kind == "target" else "program",
        answers=tuple(answer for _, answer in found),
        failures=tuple(failures),
        cpus=cpus,
        memory=memory,
        software=software_facts(),
        elapsed_s=elapsed_s,
        ended=_ended(stopping, keeper, ended),
        exit_code=ended.returncode if by_itself and kind == "program" else None,
    )
    return Watched(report, ended, tuple(found))


def _answers(records: list[SiteRecord], target: str, plan: Plan) -> list[tuple[SiteRecord, Answer]]:
    """One for each line, the one that cost most waiting first."""
    found = []
    for record in records:
        name = target or f"{Path(record.site.file).name}:{record.site.line}"
        answer = answer_of(record, name=name, read_source=_source, whole=plan.trace)
        found.append((record, answer))
    return sorted(found, key=lambda pair: _lost_s(pair[1]), reverse=True)


def _lost_s(answer: Answer) -> float:
    return (answer.waiting or 0.0) * answer.seconds


def _source(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _records(folder: Path) -> tuple[list[SiteRecord], str]:
    """What the process that leads has seen, and why it stopped the program."""
    records: list[SiteRecord] = []
    stopping = ""
    for path in sorted(folder.glob("sites-*.json")):
        try:
            found, told = from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if told["leads"]:
            records += found
            stopping = stopping or told["stopping"]
    return records, stopping


def _failures(folder: Path, keeper: _TimeKeeper, settings: Settings) -> list[Failure]:
    failures = []
    try:
        failures.append(Failure(**json.loads((folder / FAILED).read_text(encoding="utf-8"))))
    except (OSError, ValueError):
        pass
    failures += [
        Failure("raised", None, reason, "watching the program")
        for reason in failures_in(str(folder))
    ]
    if keeper.hung:
        failures.append(
            Failure(
                "hang",
                None,
                f"No batch came within {duration(settings.timeout_s)}.",
                "reading batches",
                "the data set waits for something that does not come",
                "--timeout, if batches may take longer",
            )
        )
    return failures


def _ended(stopping: str, keeper: _TimeKeeper, ended: launch.Ended) -> str:
    if stopping:
        return f"stopped {stopping}" if stopping.startswith("after") else f"stopped: {stopping}"
    if keeper.hung:
        return "stopped: no batch came"
    if keeper.pressed:
        return "stopped: its time was over"
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}"
    return f"ended by itself with exit code {ended.returncode}"


class _TimeKeeper:
    """Ends a program that should have ended by itself."""

    def __init__(
        self, folder: Path, running: launch.Running, settings: Settings, *, hangs: bool
    ) -> None:
        self.hung = self.pressed = False
        self._folder, self._running, self._settings = folder, running, settings
        self._hangs = hangs
        self._began = self._moved = time.monotonic()
        self._stamp: float | None = None

    def tick(self) -> None:
        """A few times a second."""
        if self.pressed or self.hung:
            return
        now = time.monotonic()
        stamp = _newest(self._folder)
        if stamp != self._stamp:
            if self._stamp is None and stamp is not None:
                self._began = now
            self._stamp, self._moved = stamp, now
        if (self._folder / "stopped").exists():
            self._running.stop(STOP_GRACE_S)
            return
        seconds = self._settings.seconds or DEFAULT_SECONDS
        if self._stamp is not None and now - self._began > seconds + OVERTIME_S:
            self.pressed = True
            self._running.stop(0)
        elif self._hangs and now - self._moved > self._settings.timeout_s + STOP_GRACE_S:
            self.hung = True
            self._running.stop(0)


def _newest(folder: Path) -> float | None:
    stamps = []
    for path in folder.glob("sites-*.json"):
        try:
            stamps.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(stamps, default=None)


def no_loader(report: Report) -> StokerError:
    """Nothing could be answered: the program made no loader that was iterated."""
    reasons = "; ".join(failure.what for failure in report.failures)
    return StokerError(
        f"'{report.command}' iterated no DataLoader of PyTorch.",
        doing=f"watching it for {duration(report.elapsed_s)}; it {report.ended}",
        likely=reasons or "it ended before it loaded, or loads in another way",
        change="run it with `python` to see whether it loads at all",
    )
