"""Programs in processes of their own, for faults that end a process."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import stoker
from tests import starting

PATIENCE_S = 30.0
WITHIN_S = 1.0
"""How long an ending may take."""

PREAMBLE = """
import os, signal, sys, threading, time
import torch
import stoker
from torch.utils.data import Dataset

def say(text):
    os.write(1, (text + "\\n").encode())

class Numbers(Dataset):
    shape = (3,)
    def __init__(self, length=100):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return torch.full(self.shape, float(index))

class Stuck(Numbers):
    # Sample `at` never comes; it says so.
    def __init__(self, at, length=100):
        super().__init__(length)
        self.at = at
    def __getitem__(self, index):
        if index == self.at:
            say(f"stuck {os.getpid()}")
            time.sleep(600)
        return super().__getitem__(index)
"""


@dataclass
class Program:
    """A running program; `lines` is what it has said so far."""

    process: subprocess.Popen[str]
    lines: list[str]

    def wait_for(self, word: str) -> str:
        """Reads its output up to the line that begins with a word; returns the rest of it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(word):
                return line[len(word) :].strip()
        error = self.process.communicate(timeout=PATIENCE_S)[1]
        raise AssertionError(f"the program ended without {word!r}:\n{error}")

    def interrupt(self) -> None:
        """What a terminal does on Ctrl-C: SIGINT to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, float]:
        """Waits for its end: exit code, what it wrote to stderr, and how long that took."""
        started = time.monotonic()
        out, error = self.process.communicate(timeout=PATIENCE_S)
        self.lines += out.splitlines()
        return self.process.returncode, error, time.monotonic() - started


@contextmanager
def program(folder: Path, source: str) -> Iterator[Program]:
    """Starts a program, as the leader of a process group, and ends it in any case."""
    path = folder / "program.py"
    path.write_text(PREAMBLE + textwrap.dedent(source))
    places = [str(Path(stoker.__file__).parents[1]), str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONWARNINGS": "ignore"}
    process = starting.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        cwd=folder,
    )
    try:
        yield Program(process, [])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@functools.cache
def program_within_s() -> float:
    """The second, and what the interpreter and torch take to unload here: a second where busy."""
    source = 'list(stoker.DataLoader(Numbers(3))); say("ready")'
    with tempfile.TemporaryDirectory() as folder, program(Path(folder), source) as running:
        running.wait_for("ready")
        return WITHIN_S + running.end()[2]


def run(folder: Path, source: str) -> tuple[int, list[str], str]:
    """Runs a program to its end: exit code, lines of stdout, stderr."""
    with program(folder, source) as started:
        code, error, _ = started.end()
        return code, started.lines, error


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter while it is being waited for
        return True
    return state in "ZX"


def are_gone(pids: list[int], within_s: float) -> bool:
    """Waits until processes have ended, so long at most."""
    deadline = time.monotonic() + within_s
    while not all(map(is_gone, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
