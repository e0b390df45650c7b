"""What ``stoker tune`` does once its command line is understood: measure, show, write."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import IO

from rich.console import Console

from stoker.cli.deliver import Outputs, told_if_failed, write_files
from stoker.cli.output import write_stream
from stoker.cli.progress import shown
from stoker.host.cpus import cpu_facts
from stoker.host.facts import Fact
from stoker.host.memory import memory_facts
from stoker.host.software import software_facts
from stoker.report.chart import rate_chart
from stoker.report.terminal import (
    failure_text,
    footnotes,
    grouped,
    heading,
    tune_table,
    verdict,
)
from stoker.tuning.guardian import Guardian
from stoker.tuning.meter import Plan
from stoker.tuning.of_sweep import CONSUMER, report_of_sweep
from stoker.tuning.result import TuneResult
from stoker.tuning.search import Search, default_counts
from stoker.tuning.sweep import Sweep
from stoker.tuning.trial import TrialRunner


@dataclass(frozen=True)
class SweepRequest:
    """What was asked on the command line; None where nothing was."""

    target: str
    workers: list[int] | None
    exhaustive: bool
    batches: int | None
    seconds: float | None
    repeats: int | None
    timeout_s: float
    outputs: Outputs
    step: str = ""
    step_ms: float = 0.0
    consumer: str = CONSUMER
    batch_size: int | None = None


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end; handled as Ctrl-C is."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def run_sweep(request: SweepRequest) -> int:
    """Measure, print and write; returns the exit code."""
    memory = memory_facts().available_bytes
    result, signum = _measure(request)
    written = _deliver(result, memory, request)
    if signum:
        return 128 + signum
    return 0 if written and not result.failures else 1


def _measure(request: SweepRequest) -> tuple[TuneResult, int]:
    """The result, and the signal that ended it early or 0."""
    cpus, signum = cpu_facts(), 0
    counts = request.workers
    if counts is None:
        counts = default_counts(cpus.usable.value, exhaustive=request.exhaustive)
    search = Search(counts, repeats=request.repeats)
    plan = Plan(request.batches, request.seconds)
    with Guardian() as guardian, shown() as show:
        runner = TrialRunner(
            request.target,
            plan,
            request.timeout_s,
            guardian,
            request.step,
            request.step_ms,
            request.batch_size,
        )
        sweep = Sweep(search, runner, time.monotonic, show)
        try:
            with _signals_as_interrupts():
                sweep.run()
        except KeyboardInterrupt as stop:
            signum = stop.signum if isinstance(stop, Stopped) else signal.SIGINT
            sweep.interrupted(f"Interrupted by {signal.Signals(signum).name}.")
    return sweep.result(request.target, cpus, software_facts()), signum


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end the sweep as Ctrl-C does: with what was measured so far."""

    def stop(signum: int, _frame: FrameType | None) -> None:
        raise Stopped(signum)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {
        number: signal.signal(number, stop) for number in map(signal.Signals.__getitem__, names)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _deliver(result: TuneResult, memory: Fact[int], request: SweepRequest) -> bool:
    """Everything that can be written is; whether all of it was."""
    outputs = request.outputs
    report_to = sys.stderr if outputs.on_stdout else sys.stdout
    shown = [partial(_print_report, result, report_to), partial(_print_failures, result)]
    done = [told_if_failed(write) for write in shown]
    return write_files(report_of_sweep(result, memory, request.consumer), outputs) and all(done)


def _print_report(result: TuneResult, stream: IO[str]) -> None:
    """Heading, table, chart and verdict; nothing when nothing was measured."""
    if not result.counts:
        return
    console = Console(file=stream, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(heading(result), markup=False)
        console.print(tune_table(result, console))
        for note in footnotes(result):
            console.print(note, markup=False)
    parts = [capture.get()]
    if console.encoding.startswith("utf"):
        parts.append(rate_chart(result.counts, console.width))
    parts.append(f"\n{verdict(result)}")
    write_stream(stream, "\n".join(part for part in parts if part) + "\n")


def _print_failures(result: TuneResult) -> None:
    for failure in grouped(result.failures):
        write_stream(sys.stderr, f"Error: {failure_text(failure)}\n")
