"""The core of the suite passes without what Windows lacks: in one run, with a preamble."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent

_INSIDE = ["tests/blocked/inside.py"]
_CORE = {
    "tests/contract/test_same_batches.py": [
        "test_batches_do_not_depend_on_the_start_method_or_the_memory[fork-named]",
    ],
    "tests/contract/test_iterable.py": ["test_large_batches_of_an_iterable_go_through_slots"],
    "tests/contract/test_kept_batches.py": [
        "test_a_list_of_all_batches[1-named]",
        "test_slots_are_recycled[named]",
        "test_batches_stay_after_the_iterator_and_the_loader_are_gone",
    ],
    "tests/contract/test_memory_limit.py": [
        "test_a_batch_above_the_limit_is_an_error_in_its_place[2]",
    ],
    "tests/contract/test_on_error.py": [
        "test_batches_do_not_depend_on_the_start_method[spawn-skip]"
    ],
    "tests/contract/test_statistics.py": ["test_sizes_are_those_of_the_batches"],
    "tests/faults/test_exceptions.py": ["test_an_exception_keeps_its_type_and_text[spawn]"],
    "tests/faults/test_deaths.py": ["test_a_death_is_noticed_with_every_start_method[spawn]"],
    "tests/faults/test_replaying.py": ["test_with_every_start_method[spawn]"],
    "tests/faults/test_endings.py": [
        "test_every_kind_of_worker_ends[spawn]",
        "test_leaving_the_loop_ends_the_workers[11-large-named]",
    ],
    "tests/faults/test_logs_and_warnings.py": [
        "test_records_and_warnings_arrive_with_the_workers_number[spawn]",
    ],
}
"""Equal batches, random state, iterable data sets, kept batches, the limit of memory, `on_error`,
statistics, exceptions, deaths, endings, logs; `inside` has a number that is chosen and changes,
and time-outs."""


@pytest.mark.timeout(500)
def test_the_core_passes_without_what_windows_lacks(tmp_path: Path) -> None:
    names, log = tmp_path / "names", tmp_path / "log"
    names.mkdir()
    tests = [*_INSIDE, *(f"{file}::{test}" for file, some in _CORE.items() for test in some)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_HERE / "preamble"), str(_ROOT), *sys.path]),
        "STOKER_BLOCKED_NAMES": str(names),
        "STOKER_BLOCKED_LOG": str(log),
        "STOKER_BLOCKED_FORK_IS_SPAWN": "1",
    }
    options = ["-q", "-n2", "--tb=short", "--timeout=200", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.blocked.as_windows", *options, *tests],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=480,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(tests) - 1 + 5} passed" in ended.stdout
    events = [line.split()[1] for line in log.read_text().splitlines()]
    assert events.count("made") > 20, "batches did not go through named memory"
    assert events.count("attached") > 20
    assert not [path for path in names.glob("wnsm_*") if _has_a_handle(path)]


def _has_a_handle(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
