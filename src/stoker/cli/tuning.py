"""What ``stoker tune`` does once its command line is understood: which way to measure."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from stoker.cli.deliver import Outputs, show, told_if_failed, write_files
from stoker.cli.endings import no_loader
from stoker.cli.output import accept_any_text, write_stream
from stoker.cli.sweep import SweepRequest, run_sweep
from stoker.cli.timekeeper import DEFAULT_SECONDS
from stoker.cli.watching import Plan, Watched, watch_program, watch_target
from stoker.host.cpus import cpu_facts
from stoker.tuning.answers import remember
from stoker.tuning.named import STEP, is_target, parse
from stoker.tuning.of_sweep import CONSUMER
from stoker.tuning.search import default_counts
from stoker.tuning.wording import count_of, duration
from stoker.watch import launch
from stoker.watch.program import Program


@dataclass(frozen=True)
class Request:
    """What was asked on the command line; None where nothing was."""

    words: tuple[str, ...]
    budget: float | None
    seconds: float | None
    steps: int | None
    step_ms: float | None
    step: str | None
    batch_size: int | None
    workers: list[int] | None
    exhaustive: bool
    batches: int | None
    repeats: int | None
    timeout_s: float
    cache: bool
    outputs: Outputs

    @property
    def most_s(self) -> float | None:
        """How long to measure at most, where it is not trial by trial."""
        return self.seconds if self.budget is None else self.budget

    @property
    def sweeps(self) -> bool:
        """Whether every count is measured in fresh processes."""
        asked = self.workers is not None or self.exhaustive
        return asked or self.batches is not None or self.repeats is not None


def run_and_report(request: Request) -> int:
    """Measure, print and write; returns the exit code.

    Raises:
        StokerError: There is nothing to measure, or the result can't be written; as far as it
            can be found out before anything is measured.
    """
    accept_any_text()
    request.outputs.check()
    if not is_target(request.words[0]):
        return _tune_program(request)
    parse(request.words[0])
    if len(request.words) > 1:
        raise click.UsageError(f"A target takes no arguments: {' '.join(request.words[1:])}")
    if request.step is not None and request.step_ms is not None:
        raise click.UsageError("--step and --step-ms exclude each other.")
    if request.step is not None:
        parse(request.step, STEP)
    if request.sweeps:
        return _sweep(request)
    _refuse("is for a program: --budget says how long a target is measured", steps=request.steps)
    return _tune_target(request)


def _refuse(why: str, **options: object) -> None:
    """Refuse each of these options that was given.

    Raises:
        click.UsageError: One was.
    """
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}.")


def _sweep(request: Request) -> int:
    bounded = "is not for --workers and --exhaustive: --batches, --seconds and --repeats bound them"
    _refuse(bounded, budget=request.budget, steps=request.steps)
    _refuse("is not for a sweep: it has no timeline", trace=request.outputs.trace)
    return run_sweep(
        SweepRequest(
            request.words[0],
            request.workers,
            request.exhaustive,
            request.batches,
            request.seconds,
            request.repeats,
            request.timeout_s,
            request.outputs,
            request.step or "",
            request.step_ms or 0.0,
            _consumer(request),
            request.batch_size,
        )
    )


def _consumer(request: Request) -> str:
    """What a target's batches are used by, in plain words."""
    if request.step is not None:
        return f"the step {request.step}"
    return f"a step of {duration(request.step_ms / 1e3)}" if request.step_ms else CONSUMER


def _tune_target(request: Request) -> int:
    asked = {
        "step": request.step or "",
        "step_ms": request.step_ms or 0.0,
        "batch_size": request.batch_size,
    }
    watched = watch_target(
        request.words[0], asked, _plan(request, to_stderr=True), _consumer(request)
    )
    return _told(watched, request)


def _tune_program(request: Request) -> int:
    _refuse(
        "is for a target: a program has its own step", step_ms=request.step_ms, step=request.step
    )
    _refuse("is for a target that is a data set", batch_size=request.batch_size)
    _refuse("is for a target", batches=request.batches, repeats=request.repeats)
    program = Program.of(request.words)
    told_if_failed(lambda: write_stream(sys.stderr, _to_begin_with(program, request)))
    watched = watch_program(program, _plan(request, to_stderr=request.outputs.on_stdout))
    code = _told(watched, request)
    if watched.report.exit_code:
        launch.end_like(watched.ending.ended)
    return code


def _to_begin_with(program: Program, request: Request) -> str:
    """That the program will be stopped: whoever expects it to train should know."""
    most = f"{request.most_s or DEFAULT_SECONDS:g} s"
    if request.steps is not None:
        most = f"{count_of(request.steps, 'batch')}, {most}"
    told = "it is stopped when its loaders have an answer"
    return f"stoker: watching {program.command}; {told} (at most {most})\n"


def _plan(request: Request, *, to_stderr: bool) -> Plan:
    counts = request.workers
    if counts is None and request.exhaustive:
        counts = default_counts(cpu_facts().usable.value, exhaustive=True)
    return Plan(
        seconds=request.most_s,
        steps=request.steps,
        counts=tuple(counts) if counts is not None else None,
        timeout_s=request.timeout_s,
        trace=request.outputs.trace is not None,
        cache=request.cache,
        to_stderr=to_stderr,
    )


def _told(watched: Watched, request: Request) -> int:
    """Writes and prints; the exit code that this command has of its own."""
    report = watched.report
    if request.cache:
        _keep(watched)
    written = write_files(report, request.outputs)
    if not report.answers and report.kind == "program":
        if report.exit_code:
            text = f"Error: {no_loader(report, _options_among(request.words))}\n"
            told_if_failed(lambda: write_stream(sys.stderr, text))
            return 1
        raise no_loader(report)
    shown = show(report, request.outputs)
    if watched.ending.interrupted_by:
        return 128 + watched.ending.interrupted_by
    answered = any(each.advice for each in report.answers)
    failed = bool(report.failures) or (report.kind == "target" and _failed(watched))
    return 0 if shown and written and answered and not failed else 1


def _options_among(words: tuple[str, ...]) -> list[str]:
    """Of a program's arguments those that this command has an option for, each once."""
    params = click.get_current_context().command.params
    ours = {name for each in params for name in each.opts if name.startswith("--")}
    names = dict.fromkeys(word.partition("=")[0] for word in words[1:])
    return [name for name in names if name in ours]


def _failed(watched: Watched) -> bool:
    """Whether a setting that was tried made the loader fail."""
    return any(record.failures for record, _ in watched.found)


def _keep(watched: Watched) -> None:
    """Keep the answers that are certain, for ``num_workers="auto"`` to begin with."""
    for record, answer in watched.found:
        if answer.advice is not None and answer.advice.certain:
            remember(record.fingerprint, answer, machine=record.machine, start_method=record.method)
