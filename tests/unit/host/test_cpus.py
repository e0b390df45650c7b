from pathlib import Path

import pytest

from stoker.host import cpus
from stoker.host.cpus import Fact, cgroup_quota, cpu_facts


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_tightest_quota_above_the_own_group_counts(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/outer/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "400000 100000\n",
        },
    )
    found = cgroup_quota(root)
    assert found.value == 1.5
    assert found.source.endswith("outer/cpu.max")


def test_inside_a_container_the_group_named_from_outside_is_the_root(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/0123abcd\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
        },
    )
    assert cgroup_quota(root).value == 2.5


def test_version_1_quota(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/jobs\n3:cpu,cpuacct:/jobs\n",
            "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_quota(root).value == 3.0


@pytest.mark.parametrize("text", ["max 100000", "", "nonsense here", "0 100000", "100000 0"])
def test_what_is_no_quota_is_none(tmp_path: Path, text: str) -> None:
    root = _tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text})
    assert cgroup_quota(root).value is None


def test_a_system_without_cgroups_has_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path).value is None


@pytest.mark.parametrize(
    ("affinity", "quota", "override", "expected"),
    [
        (4, None, None, 4),
        (None, None, None, 8),
        (4, 1.5, None, 2),
        (4, 0.5, None, 1),
        (4, 16.0, None, 4),
        (4, None, 3, 3),
    ],
)
def test_usable_is_the_least_of_all_limits(
    monkeypatch: pytest.MonkeyPatch,
    affinity: int | None,
    quota: float | None,
    override: int | None,
    expected: int,
) -> None:
    monkeypatch.setattr(cpus, "_loky_count", lambda otherwise: 8)
    found = cpus._usable(
        Fact(8, "test"), Fact(affinity, "test"), Fact(quota, "test"), Fact(override, "test")
    )
    assert found.value == expected


def test_a_restricted_process_sees_its_own_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _pid: {3, 5}, raising=False)
    monkeypatch.setattr(cpus, "cgroup_quota", lambda: Fact(None, "none"))
    facts = cpu_facts()
    assert facts.affinity.value == 2
    assert facts.usable.value <= 2
    assert "affinity" in facts.usable.source
    assert "no cgroup quota" in facts.usable.source


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_override(monkeypatch: pytest.MonkeyPatch, text: str, value: int | None) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", text)
    facts = cpu_facts()
    assert facts.override.value == value
    assert facts.usable.value >= 1
