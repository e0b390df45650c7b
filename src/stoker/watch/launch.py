"""Runs a user's program, watched: its streams, signals and exit code pass through.

Guarantees: a signal reaches the program once; the command ends only after the program, with
the same status. Should the command itself be killed, the program goes on and nothing of
Stoker's waits for anybody.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from stoker.errors import ProgramError
from stoker.tuning.answers import FOLDER_VARIABLE
from stoker.watch.program import Program
from stoker.watch.settings import VARIABLE, Settings
from stoker.watch.signals import Watched, end_by, watched
from stoker.watch.tree import Tree

TICK_S = 0.19  # a little less than signals wake us
TERM_S = 3.0
INJECTED = str(Path(__file__).parent / "inject")


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        returncode: Its exit code, or minus the signal that ended it.
        stopped: Whether it had been asked to end by `Running.stop`.
    """

    returncode: int
    stopped: bool


@contextlib.contextmanager
def started(
    program: Program, settings: Settings, *, stdout_to_stderr: bool = False
) -> Iterator[Running]:
    """Start a program; on leaving it has ended. For the main thread.

    Args:
        program: What to start.
        settings: What its processes are told.
        stdout_to_stderr: Whether what it prints goes to standard error, because standard
            output is for something else.

    Raises:
        ProgramError: It could not be started.
    """
    with watched() as signals:
        process = _start(program, settings, signals, stdout_to_stderr)
        running = Running(process, signals, Tree(process.pid, settings.folder))
        try:
            yield running
        except BaseException:
            running.stop(0)
            raise
        finally:
            running.wait()


class Running:
    """A program that was started."""

    def __init__(self, process: subprocess.Popen[bytes], signals: Watched, tree: Tree) -> None:
        self._process = process
        self._signals = signals
        self._tree = tree
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._cleared = False

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self._process.pid

    def wait(self, tick: Callable[[], object] | None = None) -> Ended:
        """Wait for the program to end, and pass signals on meanwhile.

        Args:
            tick: Called about five times a second. It may call `stop`.

        Raises:
            Exception: Whatever `tick` raises; the program is running then.
        """
        tick_at = time.monotonic()
        while self._process.poll() is None:
            number = self._signals.next()
            if number is not None:
                self._process.send_signal(number)
            now = time.monotonic()
            if now >= tick_at and tick is not None:
                tick_at = now + TICK_S
                tick()
            self._press(now)
        stopped = self._term_at is not None
        if stopped and not self._cleared:
            self._tree.end()
            self._cleared = True
        return Ended(self._process.returncode, stopped)

    def stop(self, grace_s: float) -> None:
        """Have the program end: by itself within `grace_s`, else by SIGTERM, else by SIGKILL.

        Returns at once; `wait` does it. No process of the program is left then.
        """
        if self._term_at is None:
            self._tree.look()
            self._term_at = time.monotonic() + grace_s

    def _press(self, now: float) -> None:
        if self._term_at is None:
            return
        self._tree.look()
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._tree.kill()
        elif now >= self._term_at:
            self._process.terminate()
            self._kill_at = now + TERM_S


def end_like(ended: Ended) -> NoReturn:
    """End this process as the program ended: a shell sees no difference."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if ended.returncode < 0:
        end_by(-ended.returncode)
        sys.exit(128 - ended.returncode)
    sys.exit(ended.returncode)


def _start(
    program: Program, settings: Settings, signals: Watched, stdout_to_stderr: bool
) -> subprocess.Popen[bytes]:
    before = signals.in_the_child
    try:
        return subprocess.Popen(
            program.argv,
            env=_environment(settings),
            stdout=_standard_error() if stdout_to_stderr else None,
            close_fds=False,  # a shell's <(command) is a descriptor
            preexec_fn=before,
        )
    except OSError as error:
        raise ProgramError(
            f"'{program.argv[0]}' could not be started: {error.strerror or error}.",
            doing=f"running '{program.command}'",
            change="name a Python script, or a file that this system can execute",
        ) from None


def _standard_error() -> int:
    """Where it is closed, what goes there is lost, as everything that is written to it."""
    return subprocess.DEVNULL if sys.stderr is None else 2


def _environment(settings: Settings) -> dict[str, str]:
    told = dict(os.environ)
    path = told.get("PYTHONPATH", "")
    if path.split(os.pathsep)[0] != INJECTED:
        told["PYTHONPATH"] = f"{INJECTED}{os.pathsep}{path}" if path else INJECTED
    told[VARIABLE] = replace(settings, command=os.getpid()).encode()
    if settings.mode == "tune":
        told[FOLDER_VARIABLE] = "0"  # what was answered before is not to help
    return told
