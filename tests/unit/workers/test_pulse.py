"""Signs of life of another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from stoker.workers.pulse import Pulse, pulse

LOOP = "import sys\nprint(flush=True)\nwhile True: pass"


def felt(pid: int) -> Pulse:
    found = pulse(pid)
    assert found is not None
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stops a process")
def test_a_busy_a_stopped_and_a_dead_process() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", LOOP], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline, first = time.monotonic() + 20, felt(process.pid)
        while felt(process.pid).cpu_s < first.cpu_s + 0.05:
            assert time.monotonic() < deadline
        os.kill(process.pid, signal.SIGSTOP)
        while felt(process.pid).state != "stopped":
            assert time.monotonic() < deadline
        process.kill()
    assert pulse(process.pid) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses a shell")
def test_what_a_process_has_started_counts_with_it() -> None:
    command = f"{sys.executable} -S -c '{LOOP}'; true"
    with subprocess.Popen(
        ["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        deadline, first = time.monotonic() + 20, felt(shell.pid)
        while felt(shell.pid).cpu_s < first.cpu_s + 0.05:
            assert time.monotonic() < deadline
        os.killpg(shell.pid, signal.SIGKILL)
