"""The benchmark of faults, small: kills in one epoch, iterators begun and stopped; also in need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stoker
from benchmarks.faults import kills, turns
from benchmarks.faults.limits import LIMITS

ROOT = Path(stoker.__file__).parents[2]
KINDS: dict[str, dict[str, Any]] = {
    "two": {},
    "persistent": {"persistent_workers": True},
    "kept": {"prefetch_factor": 4},
    "limited": {"memory_limit": "4MB"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_an_epoch_under_fire_is_the_same_and_leaves_nothing(options: dict[str, Any]) -> None:
    found = kills.run(kills.Plan(160, 12, options=options))
    assert found.same
    assert found.killed - found.replaced in (0, 1)  # Nobody misses one at the end.
    assert found.killed >= 3
    left = found.left
    assert (left.descriptors, left.segments, left.threads, left.processes) == (0, 0, 0, 0)


def test_iterators_that_begin_and_stop_make_nothing_grow() -> None:
    found = turns.run(18, every=5)
    left = found.left
    assert (left.descriptors, left.segments, left.threads, left.processes) == (0, 0, 0, 0)
    assert left.memory_mib < 16


def _mounts_here() -> bool:
    """Whether a process may have mounts of its own."""
    words = ["unshare", "--mount", "true"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize("name", LIMITS)
def test_the_same_in_need(name: str) -> None:
    if LIMITS[name].wrapped and not _mounts_here():
        pytest.skip("no mounts of its own for this user")
    words = [
        *LIMITS[name].wrapped, sys.executable, "-m", "benchmarks.faults", "--within", name,
        "--json", "--kills", "6", "--batches", "80", "--turns", "18", "--every", "8",
    ]  # fmt: skip
    places = [str(ROOT / "src"), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"]["same"]
    assert found["kills"]["killed"] - found["kills"]["replaced"] in (0, 1)
    assert found["kills"]["killed"] >= 2
    for left in (found["kills"]["left"], found["turns"]["left"]):
        parts = ("descriptors", "segments", "threads", "processes")
        assert [left[part] for part in parts] == [0, 0, 0, 0]
