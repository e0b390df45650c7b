"""Slow or stuck: what is concluded from a worker's signs of life, and how it is told."""

from __future__ import annotations

import pytest

from stoker.feed.plight import Condition, Plight, diagnose, likely, told
from stoker.workers.pulse import Pulse

AT_REST = Pulse("sleeping", 3.0, 1_000_000, 0.5)


@pytest.mark.parametrize(
    ("after", "condition", "words"),
    [
        (AT_REST, "stuck", "0.00 s of CPU in the last 10 s"),
        (AT_REST._replace(cpu_s=12.5), "slow", "9.50 s of CPU in the last 10 s"),
        (AT_REST._replace(io_bytes=13_000_000), "slow", "12 MB read and written"),
        (AT_REST._replace(state="disk-sleep"), "disk", "disk or a network file system"),
        (AT_REST._replace(state="stopped"), "stopped", "SIGSTOP"),
        (AT_REST._replace(starved_s=9.0), "crowded", "without a CPU for 8.50 s"),
        (Pulse("sleeping", 3.0), "stuck", "0.00 s of CPU"),
        (None, "unknown", "no telling"),
    ],
)
def test_slow_is_told_from_stuck(after: Pulse | None, condition: str, words: str) -> None:
    found, signs = diagnose(AT_REST, after, 10.0, starting=False)
    assert found == condition
    assert words in signs


def test_without_a_first_look_nothing_is_concluded_but_a_stop() -> None:
    assert diagnose(None, AT_REST, 0.0, starting=False)[0] == "unknown"
    assert diagnose(None, AT_REST._replace(state="stopped"), 0.0, starting=False)[0] == "stopped"


def test_a_worker_that_has_not_come_up_says_so_and_how_busy_it_is() -> None:
    condition, signs = diagnose(AT_REST, AT_REST._replace(cpu_s=5.0), 10.0, starting=True)
    assert condition == "starting"
    assert "not come up yet (2.00 s of CPU in the last 10 s)" in signs


def plight(worker: int = 1, condition: Condition = "stuck", indices: object = (8, 9)) -> Plight:
    return Plight(worker, 4711, 4, indices, 31.26, condition, "stuck: no CPU", "Thread 1:\n  File")


def test_all_that_is_known_of_a_worker_is_told() -> None:
    assert str(plight()) == (
        "worker 1 (pid 4711): batch 4, sample indices (8, 9), for 31.3 s: stuck: no CPU\n"
        "  Thread 1:\n"
        "    File"
    )


def test_many_indices_are_cut_and_those_of_a_stream_not_invented() -> None:
    assert len(str(plight(indices=list(range(10_000)))).splitlines()[0]) < 400
    assert "indices" not in str(plight(indices=None))


def test_a_worker_that_is_starting_may_hold_no_batch() -> None:
    idle = Plight(0, 4711, None, None, 3.0, "starting", "it has not come up yet")
    assert str(idle) == "worker 0 (pid 4711): starting, for 3 s: it has not come up yet"


def test_of_many_workers_only_some_show_a_stack() -> None:
    text = told([plight(worker) for worker in range(40)])
    assert text.count("worker ") == 40
    assert text.count("Thread") == 8


def test_the_likely_cause_is_of_the_worker_that_is_waited_for() -> None:
    assert "lock" in likely(plight())
    assert "worker 1" in likely(plight())
    assert "kill -CONT" in likely(plight(condition="stopped"))
    assert likely(None)
