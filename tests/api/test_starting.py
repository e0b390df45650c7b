"""A program that a nursery runs finds what it finds in an interpreter of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import starting

PROBE = """
import gc, json, os, random, signal, sys, tempfile, threading, warnings
names = sorted(globals())
streams = [
    [s.name, s.mode, s.encoding, s.errors, s.line_buffering, type(s.buffer).__name__]
    for s in (sys.stdin, sys.stdout, sys.stderr)
]
handlers = {n.name: repr(signal.getsignal(n)) for n in signal.Signals}
modules = [name for name in sys.modules if name.startswith(("tests", "stoker", "pytest"))]
import torch
from multiprocessing.spawn import get_preparation_data
prepared = get_preparation_data("x")
assert prepared.pop("authkey")
told = dict(
    names=[name for name in names if not name.startswith("__conditional")],
    name=__name__, file=globals().get("__file__"), spec=repr(__spec__ and __spec__.name),
    loader=repr(__loader__).split(" at ")[0], argv=sys.argv, orig=sys.orig_argv, path=sys.path,
    flags=repr(sys.flags), streams=streams, handlers=handlers, modules=modules,
    mask=repr(signal.pthread_sigmask(signal.SIG_BLOCK, ())), folder=os.getcwd(),
    environment=dict(os.environ), leads=[os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
    parent=os.getppid(), descriptors=sorted(os.listdir("/proc/self/fd")),
    threads=[thread.name for thread in threading.enumerate()], options=sys.warnoptions,
    filters=sorted(map(repr, warnings.filters)), temporary=tempfile.gettempdir(),
    prepared=repr(prepared), collects=gc.isenabled(), cpus=sorted(os.sched_getaffinity(0)),
    numbers=[torch.get_num_threads(), torch.get_num_interop_threads()], typed=sys.stdin.read(),
)
print(json.dumps(told), flush=True)
end = sys.argv[-1]
if end == "error": 1 / 0
if end == "interrupt": raise KeyboardInterrupt
if end == "reason": sys.exit("a reason")
if end == "killed": os.kill(os.getpid(), signal.SIGKILL)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")


def found(how: Any, folder: Path, *words: str) -> tuple[int, str, dict[str, Any]]:
    with how(
        [sys.executable, *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=words[-1] == "error",
        env={**os.environ, "PYTHONPATH": "here:/nowhere", "TMPDIR": str(folder)},
    ) as process:  # fmt: skip
        out, err = process.communicate("typed\n")
    return process.returncode, err, json.loads(out)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-c", PROBE, "reason"], 1),
        (["probe.py", "a b", "error"], 1),
        (["-m", "probe", "interrupt"], -signal.SIGINT),
        (["probe.py", "killed"], -signal.SIGKILL),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_it_finds_the_same_and_ends_alike(tmp_path: Path, words: list[str], code: int) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    real = found(subprocess.Popen, tmp_path, *words)
    forked = found(starting.Popen, tmp_path, *words)
    differ = {key: (it, forked[2][key]) for key, it in real[2].items() if it != forked[2][key]}
    assert not differ
    assert forked[:2] == real[:2]
    assert real[0] == code


def test_no_two_programs_have_the_same_chance() -> None:
    source = (
        "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1))"
    )
    words = [sys.executable, "-c", source]
    said = [starting.run(words, capture_output=True, text=True).stdout for _ in range(2)]
    assert all(one != other for one, other in zip(*map(str.split, said), strict=True))


def test_a_signal_finds_it_ready() -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    with starting.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert psutil.Process(process.pid).ppid() == os.getpid()
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT


ASKS = """
import sys
from tests import starting
from tests.leftovers import adopt_orphans
from tests.starting.keeper import standing
adopt_orphans()
starting.run([sys.executable, "-c", ""])
print(*(nursery.pid for nursery in standing()), flush=True)
input()
"""


def test_a_nursery_ends_with_who_asked_though_that_was_killed() -> None:
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", ASKS],
        env={**os.environ, "PYTHONPATH": root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        nursery = psutil.Process(int(process.stdout.readline()))
        process.kill()
    deadline = time.monotonic() + 30
    while nursery.is_running() and nursery.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
