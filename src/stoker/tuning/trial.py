"""Runs one trial in a fresh interpreter and brings back what it measured.

Guarantees: returns within the time limit after the last batch, and whatever happened, no
process of the trial's group is alive afterwards. What was measured before a failure comes
back with it. Assumes that one trial runs at a time.

    start --> loaded --> progress ... --> observed --> exit
      |          |           |
      +----------+-----------+--> failed | exit without a word | nothing within the limit

Three threads feed one queue, so that the main thread waits for everything at once: lines
of the channel, and the end of the process. The end is seen without reaping it
(``WNOWAIT``): as long as it is not reaped its number can't be given to a stranger, so the
group of that number may be killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from stoker.tuning.fresh import program_of
from stoker.tuning.guardian import Guardian
from stoker.tuning.meter import Observation, Plan
from stoker.tuning.result import Failure, LoaderFacts, Outcome
from stoker.tuning.search import Trial
from stoker.tuning.stacks import shortened
from stoker.tuning.wording import count_of, duration, workers

GRACE_S = 5.0
STACK_S = 0.1
MOST_STACKS = 4
KEPT_LINES = 200
SHOWN_LINES = 20

START = program_of("stoker.tuning.trial_process")

Progress = Callable[[int, "Observation | None"], None]


@dataclass(frozen=True)
class TrialRunner:
    """Runs the trials of one target.

    Attributes:
        target: As given by the user.
        plan: How long each trial measures.
        timeout_s: Seconds without a batch after which a trial counts as hung.
        guardian: Ends a trial when this process dies.
        step: A function that is called with each batch, as a target names it; empty for none.
        step_ms: Milliseconds that the consumer takes for a batch where there is none.
        batch_size: For a target that is a data set; None where nobody has said.
    """

    target: str
    plan: Plan
    timeout_s: float
    guardian: Guardian
    step: str = ""
    step_ms: float = 0.0
    batch_size: int | None = None

    def __call__(self, trial: Trial, progress: Progress) -> Outcome:
        """Run one trial; blocks until it has ended and nothing of it is left.

        Args:
            trial: What to measure.
            progress: Called in this thread with the batches so far and what they say.
        """
        request = {
            "target": self.target,
            "num_workers": trial.num_workers,
            "seed": trial.repeat,
            "batches": self.plan.batches,
            "seconds": self.plan.seconds,
            "batch_size": self.batch_size,
            "step": self.step,
            "step_ms": self.step_ms,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", START, json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running = _Running(process, trial, self.guardian)
        try:
            self.guardian.watch(process.pid)
            running.start()
            return running.follow(self.timeout_s, progress)
        finally:
            running.end()


@dataclass
class _Running:
    """One trial's process and what it has said so far."""

    process: subprocess.Popen[bytes]
    trial: Trial
    guardian: Guardian
    events: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)
    written: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    threads: list[threading.Thread] = field(default_factory=list)
    loader: LoaderFacts | None = None
    latest: Observation | None = None
    batches: int | None = None

    def start(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        for work in (
            (_read_events, self.process.stdout, self.events.put),
            (_read_text, self.process.stderr, self.written.append),
            (_await_exit, self.process, self.events.put),
        ):
            thread = threading.Thread(target=work[0], args=work[1:], daemon=True)
            self.threads.append(thread)
            thread.start()

    def follow(self, timeout_s: float, progress: Progress) -> Outcome:
        while True:
            try:
                line = self.events.get(timeout=timeout_s)
            except queue.Empty:
                return self._hung(timeout_s)
            if line is None:
                return self._ended()
            outcome = self._take(line)
            if outcome is not None:
                self._let_it_exit()
                return outcome
            progress(self.batches or 0, self.latest)

    def _take(self, line: str) -> Outcome | None:
        """Take one event; the outcome when it was the last."""
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "loaded":
            self.loader, self.batches = LoaderFacts(**event["loader"]), 0
            return None
        observed = event.get("observation")
        observation = self._stamped(observed) if observed else None
        if event["event"] == "progress":
            self.batches, self.latest = event["batches"], observation
            return None
        failure = Failure(**event["failure"]) if event["event"] == "failed" else None
        return Outcome(observation, failure, self.loader)

    def _stamped(self, observed: dict[str, Any]) -> Observation:
        return Observation(**{**observed, "repeat": self.trial.repeat})

    def _let_it_exit(self) -> None:
        """Its loader may still be ending its workers; what does not end is killed later."""
        until = time.monotonic() + GRACE_S
        with contextlib.suppress(queue.Empty):
            while self.events.get(timeout=max(0.0, until - time.monotonic())) is not None:
                pass

    def _ended(self) -> Outcome:
        """The process is gone without a last word; lines may still be on their way."""
        code = self._kill_and_reap()
        self._join_readers()
        while not self.events.empty():
            line = self.events.get()
            outcome = self._take(line) if line is not None else None
            if outcome is not None:
                return outcome
        last = self.written[-1] if self.written else ""
        if code == 1 and ": " in last:  # an exception got past everything there
            return self._failed("died", f"The trial's process ended by {last}")
        return self._failed("died", f"The trial's process {_how_it_ended(code)}.")

    def _hung(self, timeout_s: float) -> Outcome:
        what = f"No batch came within {duration(timeout_s)}."
        if self.loader is None:
            what = f"The target was not loaded within {duration(timeout_s)}."
        if hasattr(signal, "SIGUSR1"):  # faulthandler in the process writes its stacks
            for pid in [self.process.pid, *_children(self.process.pid)[:MOST_STACKS]]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
                time.sleep(STACK_S)  # one after the other, else they mix line by line
        return self._failed("hang", what)

    def _failed(self, kind: Any, what: str) -> Outcome:
        doing = "loading the target"
        if self.loader is not None:
            doing = f"reading batches with {workers(self.trial.num_workers)}"
            doing += f", after at least {count_of(self.batches or 0, 'batch')}"
        detail = shortened(self.written, 2 * SHOWN_LINES if kind == "hang" else SHOWN_LINES)
        change = "give more time with --timeout SECONDS" if kind == "hang" else ""
        failure = Failure(
            kind,
            self.trial.num_workers,
            what,
            doing,
            change=change,
            detail=detail,
            batches=self.batches,
        )
        return Outcome(self.latest, failure, self.loader)

    def end(self) -> None:
        """Leave nothing behind; may be called in any state."""
        self._kill_and_reap()
        self._join_readers()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None and not any(thread.is_alive() for thread in self.threads):
                stream.close()

    def _kill_and_reap(self) -> int:
        """In the order that never hits a stranger: the number is given up last."""
        if self.process.returncode is None:
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
            self.guardian.watch(0)
        return self.process.wait()

    def _join_readers(self) -> None:
        """Only a process that left its group can still hold the pipes: it is not waited for."""
        for thread in self.threads:
            thread.join(timeout=1.0)


def _read_events(stream: IO[bytes], put: Callable[[str], None]) -> None:
    for line in stream:
        if line.endswith(b"\n"):  # else its writer was killed in the middle of it
            put(line.decode())


def _read_text(stream: IO[bytes], put: Callable[[str], None]) -> None:
    for line in stream:
        put(line.decode("utf-8", errors="replace").rstrip())


def _await_exit(process: subprocess.Popen[bytes], put: Callable[[None], None]) -> None:
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
    put(None)


def _children(pid: int) -> list[int]:
    """Its child processes where the system lists them: Linux."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
