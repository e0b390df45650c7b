"""Counts of processes killed for lack of memory, wherever the system writes them."""

from __future__ import annotations

from pathlib import Path

from stoker.host.shortage import shortage
from tests.unit.host.planting import planted

MOUNT = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
MOUNT_1 = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def test_version_2(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "proc/self/mountinfo": MOUNT,
            "sys/fs/cgroup/job/memory.events": "low 0\nhigh 2\nmax 9\noom 4\noom_kill 3\n",
            "proc/vmstat": "pgfault 12\noom_kill 7\n",
        },
    )
    found = shortage(tmp_path)
    assert (found.group_kills, found.machine_kills) == (3, 7)


def test_version_1(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n",
            "proc/self/mountinfo": MOUNT_1,
            "sys/fs/cgroup/memory/job/memory.oom_control": (
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
            ),
        },
    )
    assert shortage(tmp_path).group_kills == 2


def test_a_count_that_rises_is_seen(tmp_path: Path) -> None:
    events = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": MOUNT}
    planted(tmp_path, events | {"sys/fs/cgroup/memory.events": "oom_kill 0\n"})
    assert shortage(tmp_path).group_kills == 0
    planted(tmp_path, {"sys/fs/cgroup/memory.events": "oom_kill 1\n"})
    assert shortage(tmp_path).group_kills == 1


def test_where_nothing_is_told(tmp_path: Path) -> None:
    found = shortage(tmp_path)
    assert (found.group_kills, found.machine_kills) == (None, None)
