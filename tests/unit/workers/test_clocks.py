import os
import sys
import threading
from pathlib import Path

import pytest

from stoker.workers import clocks
from stoker.workers.clocks import WaitClock
from tests.unit.host.planting import planted

FILE = "proc/thread-self/schedstat"


def test_the_second_number_in_seconds(tmp_path: Path) -> None:
    clock = WaitClock(planted(tmp_path, {FILE: "5000000000 1500000000 42\n"}))
    assert clock.cpu_wait_s() == 1.5
    (tmp_path / FILE).write_text("6000000000 2500000000 43\n")
    assert clock.cpu_wait_s() == 2.5
    clock.close()


@pytest.mark.parametrize("text", ["", "nonsense", "1 2", "0 0 0\n"])
def test_what_tells_nothing_is_none(tmp_path: Path, text: str) -> None:
    clock = WaitClock(planted(tmp_path, {FILE: text}))
    assert clock.cpu_wait_s() is None
    clock.close()


def test_a_system_without_the_file(tmp_path: Path) -> None:
    clock = WaitClock(tmp_path)
    assert clock.cpu_wait_s() is None
    assert clock.cpu_wait_s() is None
    clock.close()


def test_another_thread_and_a_copy_open_it_anew(tmp_path: Path) -> None:
    clock = WaitClock(planted(tmp_path, {FILE: "1 2 3"}))
    found = []
    clock.cpu_wait_s()
    (tmp_path / FILE).unlink()
    planted(tmp_path, {FILE: "1 4000000000 3"})
    thread = threading.Thread(target=lambda: found.append(clock.cpu_wait_s()))
    thread.start()
    thread.join()
    clock.forget()
    found.append(clock.cpu_wait_s())
    clock.close()
    clock.close()
    assert found == [4.0, 4.0]


@pytest.mark.skipif(sys.platform != "linux", reason="a file of Linux")
def test_this_very_thread() -> None:
    first, second = clocks.cpu_wait_s(), clocks.cpu_wait_s()
    clocks.close()
    if not Path("/", FILE).exists():
        assert first is None
    elif first is not None:
        assert 0 <= first <= (second or 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_another_thread_reads_goes_on(tmp_path: Path) -> None:
    """What the other thread held would be held for ever in the copy."""
    clock = WaitClock(planted(tmp_path, {FILE: "1 2 3"}))
    with clock._lock:
        clock.forget()
        assert clock.cpu_wait_s() is not None
    clock.close()
