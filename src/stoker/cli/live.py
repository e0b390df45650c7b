"""Looks at running loaders again and again, and shows what it sees."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator

import psutil
from rich.console import Console, RenderableType
from rich.live import Live

from stoker.cli.output import ReaderLeft, accept_any_text, write_stream
from stoker.errors import StokerError
from stoker.report.top import LoaderView, ProcessView, top_json, top_text
from stoker.transport.board import Seen, read_boards
from stoker.tuning.statistics import WorkerState
from stoker.tuning.status import LoaderStatus, decode, pace

BETWEEN_S = 0.2  # two looks that CPU use is taken between
LATELY_S = 2.0  # the least that a pace is taken over


def watch(pid: int | None, interval_s: float, once: bool, as_json: bool) -> int:
    """Show loaders until Ctrl-C, or once; returns the exit code.

    Raises:
        StokerError: The process `pid` can't be shown, or the output not be written.
        KeyboardInterrupt: Ctrl-C.
    """
    accept_any_text()
    watcher = _Watcher(pid)
    first = watcher.look()
    if pid is not None and not first:
        raise _why_not(pid)
    if once or not (as_json or sys.stdout.isatty()):
        time.sleep(BETWEEN_S)
        _print(watcher.look() or first, as_json)
    elif as_json:
        _stream(watcher, interval_s)
    else:
        with _ended_by_signals(), Live(auto_refresh=False, console=_console()) as live:
            _repeat(watcher, interval_s, lambda s: live.update(_text(s), refresh=True))
    return 0


class _Watcher:
    """Remembers of earlier looks what rates are made of."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self._told: dict[tuple[int, int], list[LoaderStatus]] = {}
        self._workers: dict[int, psutil.Process] = {}

    def look(self) -> list[ProcessView]:
        """What runs now."""
        return [view for seen in read_boards(self.pid) if (view := self._process(seen)).loaders]

    def _process(self, seen: Seen) -> ProcessView:
        loaders = [
            self._loader(seen.pid, key, status)
            for key, text in seen.texts.items()
            if (status := decode(text)) is not None
        ]
        return ProcessView(seen.pid, _command(seen.pid), tuple(loaders))

    def _loader(self, pid: int, key: int, status: LoaderStatus) -> LoaderView:
        told = self._told.setdefault((pid, key), [])
        while len(told) > 1 and told[1].at_s <= status.at_s - LATELY_S:
            told.pop(0)
        before = told[0] if told and told[0].at_s <= status.at_s - LATELY_S else None
        if not told or told[-1].at_s < status.at_s:
            told.append(status)
        used = {each.number: self._cpu(pid, each) for each in status.statistics.workers}
        known = {number: share for number, share in used.items() if share is not None}
        return LoaderView(status, pace(before, status), known)

    def _cpu(self, parent: int, worker: WorkerState) -> float | None:
        """CPU use of a worker in percent; None at the first look and where it can't be told."""
        if worker.pid is None:
            return None
        with contextlib.suppress(psutil.Error, OSError):
            known = self._workers.get(worker.pid)
            if known is not None and known.is_running():
                return float(known.cpu_percent())
            found = psutil.Process(worker.pid)
            # Of a container's process, workers have pids that are others' out here.
            if any(above.pid == parent for above in found.parents()):
                found.cpu_percent()
                self._workers[worker.pid] = found
        return None


def _command(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ""
    return shlex.join([os.path.basename(words[0]), *words[1:]]) if words else ""


def _repeat(
    watcher: _Watcher, interval_s: float, show: Callable[[list[ProcessView]], None]
) -> None:
    """Until Ctrl-C, or the one process that is looked at has ended."""
    while watcher.pid is None or psutil.pid_exists(watcher.pid):
        show(watcher.look())
        time.sleep(interval_s)


def _stream(watcher: _Watcher, interval_s: float) -> None:
    """Lines of JSON until Ctrl-C, or until their reader leaves."""
    with contextlib.suppress(ReaderLeft):
        _repeat(watcher, interval_s, lambda seen: _print(seen, as_json=True))


def _print(seen: list[ProcessView], as_json: bool) -> None:
    if as_json:
        return write_stream(sys.stdout, top_json(seen, time.time()))
    console = _console()
    with console.capture() as capture:
        console.print(_text(seen))
    lines = (line.rstrip() for line in capture.get().splitlines())
    write_stream(sys.stdout, "\n".join(lines) + "\n")


def _console() -> Console:
    return Console(highlight=False)


def _text(seen: list[ProcessView]) -> RenderableType:
    return top_text(seen, time.time())


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM leaves the terminal as it was."""

    def stop(signum: int, _frame: object) -> None:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _why_not(pid: int) -> StokerError:
    if not psutil.pid_exists(pid):
        return StokerError(f"There is no process {pid}.", change="leave out PID to see all")
    with contextlib.suppress(psutil.Error, OSError, AttributeError):
        if psutil.Process(pid).uids().effective != os.geteuid() != 0:
            return StokerError(
                f"Process {pid} belongs to another user.",
                likely="a process shows its loaders to its own user only",
                change="run stoker top as that user",
            )
    return StokerError(
        f"Process {pid} runs no Stoker loader now.",
        likely="it is another program, its loader has ended, or none of its epochs has begun",
        change="leave out PID to see all",
    )
