from pathlib import Path

from stoker.host.cgroups import group_folders, read_number
from stoker.host.cpus import cgroup_quota
from tests.unit.host.planting import planted


def mount(top: str, folder: str, kind: str, options: str) -> str:
    return f"31 23 0:28 {top} {folder} rw,relatime shared:9 - {kind} {kind} {options}\n"


def folders(root: Path, controller: str = "cpu") -> list[str]:
    return [str(folder.relative_to(root)) for folder in group_folders(controller, root)]


def test_hybrid_each_version_is_looked_for_where_it_is_mounted(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/job\n2:memory:/\n0::/user\n",
            "proc/self/mountinfo": mount("/", "/sys/fs/cgroup", "tmpfs", "rw,mode=755")
            + mount("/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
            + mount("/", "/sys/fs/cgroup/unified", "cgroup2", "rw"),
        },
    )
    assert folders(tmp_path) == [
        "sys/fs/cgroup/cpu,cpuacct/job",
        "sys/fs/cgroup/cpu,cpuacct",
        "sys/fs/cgroup/unified/user",
        "sys/fs/cgroup/unified",
    ]


def test_a_group_inside_a_container_that_sees_only_its_own_part(tmp_path: Path) -> None:
    """Version 1 names groups from outside, and mounts the container's part at the top."""
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu:/docker/abc/inner\n",
            "proc/self/mountinfo": mount("/docker/abc", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"),
            "sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/inner/cpu.cfs_period_us": "100000",
        },
    )
    assert folders(tmp_path) == ["sys/fs/cgroup/cpu/inner", "sys/fs/cgroup/cpu"]
    assert cgroup_quota(tmp_path).value == 0.5


def test_a_group_above_the_namespace_is_its_mount_alone(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../other\n",
            "proc/self/mountinfo": mount("/docker/abc", "/cg\\040roups", "cgroup2", "rw"),
        },
    )
    assert folders(tmp_path) == ["cg roups/other", "cg roups"]


def test_without_a_list_of_mounts_the_usual_places_are_tried(tmp_path: Path) -> None:
    planted(tmp_path, {"proc/self/cgroup": "0::/a/b\n"})
    assert folders(tmp_path)[:3] == ["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"]
    assert "sys/fs/cgroup/unified/a" in folders(tmp_path)


def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    planted(
        tmp_path,
        {"proc/self/cgroup": "nonsense\n0::/\n", "proc/self/mountinfo": "x - cgroup\n - cgroup2"},
    )
    assert folders(tmp_path) == ["sys/fs/cgroup", "sys/fs/cgroup/unified"]


def test_numbers(tmp_path: Path) -> None:
    planted(tmp_path, {"number": "12\n", "none": "max\n"})
    assert read_number(tmp_path / "number") == 12
    assert read_number(tmp_path / "none") is None
    assert read_number(tmp_path / "absent") is None
