"""What is told of a dead worker: what is known, and the likely cause by what was measured."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from stoker.feed.growing import History
from stoker.feed.obituary import Obituary
from stoker.host.shortage import Shortage
from stoker.order.epoch import Task
from stoker.workers.death import Died
from stoker.workers.looks import Look
from stoker.workers.making import AT_NO_SAMPLE, IN_COLLATE

GIB = 1 << 30
TASK = Task(9, 36, [36, 37, 38, 39])
PLENTY = Shortage(3, 5, 12 * GIB, 16 * GIB)


def told(died: Died, task: Task | None = TASK, **more: Any) -> Obituary:
    return Obituary(died, task, **({"before": PLENTY, "after": PLENTY} | more))


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-9, "killed by signal SIGKILL (9)"),
        (-11, "killed by signal SIGSEGV (11)"),
        (-63, "killed by signal unknown (63)"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (None, "exit code not known"),
    ],
)
def test_how_it_ended(code: int | None, how: str) -> None:
    error = told(Died(4711, code)).error()
    assert str(error).startswith(f"DataLoader worker (pid(s) 4711) exited unexpectedly: {how}\n")
    assert (error.pid, error.exitcode, error.batch, error.indices) == (4711, code, 9, TASK.index)


@pytest.mark.parametrize(
    ("code", "likely"),
    [
        (-11, "a stack that overflowed"),
        (-24, "its limit of CPU time"),
        (-14, "a timer"),
        (-10, "sent it that signal"),
        (-63, "sent it that signal"),
        (3, "code that ends the process"),
    ],
)
def test_a_signal_is_not_taken_for_code_that_ends_the_process(code: int, likely: str) -> None:
    assert likely in told(Died(1, code)).likely


@pytest.mark.parametrize(
    ("noted", "place", "sample"),
    [
        ((9, 1), "at sample index 37, position 1 of the batch", 37),
        ((9, IN_COLLATE), "in collate_fn", None),
        ((9, AT_NO_SAMPLE), "", None),
        ((8, 1), "", None),
        (None, "", None),
    ],
)
def test_the_sample_in_progress(noted: Any, place: str, sample: int | None) -> None:
    """A careful worker has noted it; a note of an earlier batch says nothing."""
    found = told(Died(1, -11, noted=noted))
    error = found.error()
    assert error.sample == sample
    assert found.doing == (
        f"making batch 9, sample indices [36, 37, 38, 39]{'; ' if place else ''}{place}"
    )


def test_of_an_iterable_data_set_the_position_is_told() -> None:
    task = Task(4, 8, [None, None])
    error = told(Died(1, -9, noted=(4, 1)), task, sharded=True).error()
    assert "making batch 4; at position 1 of the batch" in str(error)
    assert (error.position, error.sample, error.indices) == (1, None, None)


def test_a_single_index_that_is_no_list() -> None:
    error = told(Died(1, -9, noted=(0, 0)), Task(0, 0, "a.jpg")).error()
    assert "sample indices 'a.jpg'" in str(error)


def test_long_batches_are_shortened() -> None:
    text = str(told(Died(1, -9), Task(0, 0, list(range(100_000)))).error())
    assert "31, ... 100,000 in all]" in text
    assert len(text) < 1500


@pytest.mark.parametrize(("task", "starting", "doing"), [
    (None, False, "waiting for work"),
    (None, True, "starting"),
    (TASK, True, "starting, or making batch 9, sample indices [36, 37, 38, 39]"),
])  # fmt: skip
def test_idle_and_starting_workers(task: Any, starting: bool, doing: str) -> None:
    assert told(Died(1, -9), task, starting=starting).doing == doing


def killed(before: Shortage, after: Shortage) -> str:
    return str(told(Died(1, -9), before=before, after=after).error())


def test_a_kill_for_lack_of_memory_is_known_by_its_count() -> None:
    text = killed(PLENTY, Shortage(4, 6, 12 * GIB, 16 * GIB))
    assert "likely cause: the system ran out of memory and killed it\n" in text
    assert "killed for lack of memory in its control group: 3 before, 4 after" in text


def test_a_kill_that_the_machine_counts_only() -> None:
    text = killed(Shortage(None, 5), Shortage(None, 6))
    assert "likely cause: the system ran out of memory and killed it\n" in text
    assert "killed for lack of memory in the machine: 5 before, 6 after" in text


def test_a_kill_that_nobody_counts_came_from_somebody() -> None:
    assert "somebody, or a program, killed it" in killed(PLENTY, PLENTY)


def test_where_nothing_is_counted_both_are_likely() -> None:
    text = killed(Shortage(), Shortage())
    assert "ran out of memory and killed it (its log tells), or somebody did" in text
    assert "before" not in text


def test_a_bus_error_is_not_blamed_on_shared_memory_that_is_free() -> None:
    error = told(Died(1, -7)).error()
    assert error.likely.startswith("a file that shrank")
    assert "free in /dev/shm: 12 GiB of 16 GiB" in str(error)


def test_a_bus_error_while_shared_memory_is_full() -> None:
    full = Shortage(3, 5, 1 << 20, 64 << 20)
    error = told(Died(1, -7), after=full).error()
    assert error.likely == "shared memory is full: 1 MiB are free in /dev/shm"


def test_stack_and_memory_of_the_worker() -> None:
    stack = 'Fatal Python error: Segmentation fault\n\n  File "a.py", line 3 in __getitem__'
    error = told(Died(1, -11, 3 * GIB, stack)).error()
    assert error.stack == stack
    assert error.peak_bytes == 3 * GIB
    assert "the worker had 3 GiB of memory at its peak" in str(error)
    assert "    Fatal Python error: Segmentation fault" in str(error)


def test_a_reason_from_here_is_the_cause() -> None:
    assert (
        told(Died(1, -9, why="it did not answer for 30 s")).likely == "it did not answer for 30 s"
    )


def test_why_it_is_not_replaced_is_in_the_first_line() -> None:
    first = str(told(Died(1, -9)).error("this batch has ended two workers")).splitlines()[0]
    assert first.endswith("killed by signal SIGKILL (9); this batch has ended two workers")


def test_it_survives_pickling() -> None:
    error = told(Died(1, -11, 3 * GIB, "a stack", (9, 1))).error("why")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_growth_that_was_known_is_the_likely_cause_of_a_lack_of_memory() -> None:
    history = History()
    history.add(Look(4711, 1, GIB, "planted"))
    history.add(Look(4711, 900, 3 * GIB, "planted"))
    growth = "dataset.samples: list of dict", "stoker.packed(...) around it"
    after = Shortage(4, 6, 12 * GIB, 16 * GIB)
    died = Died(4711, -9, peak_bytes=4 * GIB)
    error = told(died, after=after, history=history, growth=growth).error()
    assert "likely by dataset.samples: list of dict" in error.likely
    assert error.change == "stoker.packed(...) around it"
    assert (
        "the worker had 4 GiB of memory at its peak\n"
        "  it had 3 GiB of that for itself when it last looked, 2 GiB more than when it was "
        "ready\n"
    ) in str(error)
    # Killed by somebody: what memory did is beside the point.
    assert "dataset.samples" not in told(died, growth=growth).error().likely
