"""Private memory of a process, and where the number comes from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stoker.host.process_memory import open_files, process_memory, taken_bytes

MIB = 1 << 20
ROLLUP = """\
55d0-7ffe ---p 00000000 00:00 0                          [rollup]
Rss:              442564 kB
Pss:              219729 kB
Shared_Clean:      10000 kB
Private_Clean:       100 kB
Private_Dirty:      1144 kB
Private_Hugetlb:       0 kB
"""


def test_the_numbers_and_their_source(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/smaps_rollup").write_text(ROLLUP)
    found = process_memory(7, tmp_path)
    assert found is not None
    assert found.private_bytes.value == 1244 * 1024
    assert found.private_bytes.source == "Private_* in /proc/7/smaps_rollup"
    assert found.proportional_bytes.value == 219729 * 1024


def test_without_that_file_psutil_tells(tmp_path: Path) -> None:
    found = process_memory(os.getpid(), tmp_path)
    assert found is not None
    assert found.private_bytes.value > MIB
    assert found.private_bytes.source == "psutil: uss"


def test_memory_that_is_taken_is_private() -> None:
    before = process_memory(os.getpid())
    held = bytearray(os.urandom(1)) * (64 * MIB)
    after = process_memory(os.getpid())
    assert before is not None
    assert after is not None
    assert after.private_bytes.value - before.private_bytes.value > 60 * MIB
    del held


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell")
def test_private_memory_grows_by_no_more_than_was_taken() -> None:
    before = taken_bytes()
    held = bytearray(os.urandom(1)) * (64 * MIB)
    after = taken_bytes()
    assert before is not None
    assert after is not None
    assert max(now - was for now, was in zip(after, before, strict=True)) > 60 * MIB
    del held


def test_nobody_is_no_error() -> None:
    assert process_memory(2**22 + 1) is None


def test_open_files_are_counted() -> None:
    before = open_files()
    with Path(__file__).open():
        assert before is None or open_files() == before + 1
