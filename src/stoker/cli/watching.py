"""Runs a program, or one loader in a program of our own, with its loaders measured."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stoker.cli.endings import Ending, failures_of
from stoker.cli.seeing import records_in, shown
from stoker.cli.timekeeper import DEFAULT_SECONDS, TimeKeeper
from stoker.host.cpus import cpu_facts
from stoker.host.memory import memory_facts
from stoker.host.software import software_facts
from stoker.tuning.answer import Answer, Report
from stoker.tuning.fresh import program_of
from stoker.tuning.one_line import answers_of
from stoker.tuning.site_record import SiteRecord
from stoker.watch import launch
from stoker.watch.folder import run_folder
from stoker.watch.program import Program
from stoker.watch.settings import Settings

Kind = Literal["target", "program"]


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
    """What came of it: the report, how the program ended, and what the answers rest on."""

    report: Report
    ending: Ending
    found: tuple[tuple[SiteRecord, Answer], ...]


def watch_program(program: Program, plan: Plan) -> Watched:
    """Run a user's program until its loaders have an answer; blocks.

    Raises:
        StokerError: It could not be started.
    """
    with run_folder() as folder:
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
    with run_folder() as folder:
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


def _watch(program: Program, settings: Settings, plan: Plan, command: str, kind: Kind) -> Watched:
    cpus, memory = cpu_facts(), memory_facts().available_bytes
    began = time.monotonic()
    folder = Path(settings.folder)
    is_target = kind == "target"
    with launch.started(program, settings, stdout_to_stderr=plan.to_stderr) as running:
        with shown(wanted=is_target) as show:
            keeper = TimeKeeper(folder, running, settings, hangs=is_target, show=show)
            ended = running.wait(keeper.tick)
        if ended.returncode < 0:
            _clear(running)
    elapsed_s = time.monotonic() - began
    records, stopping = records_in(folder)
    ending = Ending(ended, stopping, keeper.hung, keeper.pressed, is_target)
    found = _answers(records, command if is_target else "", plan)
    report = Report(
        command=command,
        kind=kind,
        answers=tuple(answer for _, answer in found),
        failures=tuple(failures_of(folder, ending, settings.timeout_s)),
        cpus=cpus,
        memory=memory,
        software=software_facts(),
        elapsed_s=elapsed_s,
        ended="" if is_target else ending.text(),
        exit_code=ended.returncode if ending.by_itself and not is_target else None,
    )
    return Watched(report, ending, tuple(found))


def _clear(running: launch.Running) -> None:
    """A program that a signal has ended takes its workers along."""
    running.stop(0)
    running.wait()


def _answers(records: list[SiteRecord], target: str, plan: Plan) -> list[tuple[SiteRecord, Answer]]:
    """One for each line, the one that cost most waiting first."""
    named: dict[str, int] = {}
    several = []
    for record in records:
        name = target or f"{Path(record.site.file).name}:{record.site.line}"
        named[name] = named.get(name, 0) + 1
        if named[name] > 1:  # one line may make loaders for several data sets
            name = f"{name} #{named[name]}"
        several.append((name, record))
    found = answers_of(several, read_source=_source, whole=plan.trace)
    return sorted(found, key=lambda pair: _lost_s(pair[1]), reverse=True)


def _lost_s(answer: Answer) -> float:
    return (answer.waiting or 0.0) * answer.seconds


def _source(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
