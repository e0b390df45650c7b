from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stoker.host.memory import memory_facts
from tests.unit.host.planting import planted

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _sixteen_gib_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=16 * GIB))


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    found = memory_facts(tmp_path)
    assert found.available_bytes.value == 16 * GIB
    assert found.group_bytes.value is None


def test_version_2_the_cache_counts_as_free(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory.high": "max\n",
            "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon {GIB}\nfile 1\ninactive_file {2 * GIB}\n",
        },
    )
    found = memory_facts(tmp_path).available_bytes
    assert found.value == 3 * GIB
    assert found.source.endswith("memory.max")


def test_the_tightest_of_all_groups_above_counts(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/job\n",
            "sys/fs/cgroup/pod/job/memory.max": f"{8 * GIB}",
            "sys/fs/cgroup/pod/job/memory.current": "0",
            "sys/fs/cgroup/pod/memory.max": "max",
            "sys/fs/cgroup/pod/memory.high": f"{5 * GIB}",
            "sys/fs/cgroup/pod/memory.current": f"{3 * GIB}",
        },
    )
    found = memory_facts(tmp_path).available_bytes
    assert found.value == 2 * GIB
    assert found.source.endswith("pod/memory.high")


def test_version_1(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n",
            f"{folder}/memory.limit_in_bytes": f"{2 * GIB}",
            f"{folder}/memory.usage_in_bytes": f"{GIB}",
            f"{folder}/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB // 2}\n",
        },
    )
    assert memory_facts(tmp_path).available_bytes.value == GIB + GIB // 2


def test_what_version_1_writes_for_no_limit_is_none(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n",
            f"{folder}/memory.limit_in_bytes": "9223372036854771712",
            f"{folder}/memory.usage_in_bytes": f"{GIB}",
        },
    )
    assert memory_facts(tmp_path).group_bytes.value is None


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {"sys/fs/cgroup/memory.max": f"{GIB}", "sys/fs/cgroup/memory.current": f"{2 * GIB}"},
    )
    assert memory_facts(tmp_path).available_bytes.value == 0


def test_a_limit_above_what_the_machine_has_does_not_count(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {"sys/fs/cgroup/memory.max": f"{64 * GIB}", "sys/fs/cgroup/memory.current": "0"},
    )
    found = memory_facts(tmp_path)
    assert found.available_bytes == found.machine_bytes
    assert found.group_bytes.value == 64 * GIB
