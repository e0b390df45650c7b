from pathlib import Path

import pytest

from stoker.host import cpus
from stoker.host.cpus import Fact, cgroup_cpuset, cgroup_quota, cpu_facts, parse_cpu_list
from tests.unit.host.planting import planted


def test_the_tightest_quota_above_the_own_group_counts(tmp_path: Path) -> None:
    root = planted(
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
    root = planted(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/0123abcd\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
        },
    )
    assert cgroup_quota(root).value == 2.5


def test_version_1_quota(tmp_path: Path) -> None:
    root = planted(
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
    root = planted(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text})
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


def test_a_restricted_process_sees_its_own_cpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cpus.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _pid: {3, 5}, raising=False)
    monkeypatch.setattr(cpus, "_loky_count", lambda otherwise: 8)
    facts = cpu_facts(tmp_path, {})
    assert facts.affinity.value == 2
    assert facts.usable.value <= 2
    assert "affinity" in facts.usable.source
    assert "no cgroup quota" in facts.usable.source


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(cpus, "_loky_count", lambda otherwise: 8)


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(("text", "value"), [("3", 3), ("0", None), ("many", None), ("", None)])
@pytest.mark.parametrize("name", ["LOKY_MAX_CPU_COUNT", "STOKER_CPUS"])
def test_override(tmp_path: Path, name: str, text: str, value: int | None) -> None:
    facts = cpu_facts(tmp_path, {name: text})
    assert facts.override.value == value
    assert facts.usable.value == (value or 8)


@pytest.mark.usefixtures("eight_cpus")
def test_the_own_variable_overrules_all_limits_and_lokys_is_one_more(tmp_path: Path) -> None:
    planted(tmp_path, {"sys/fs/cgroup/cpu.max": "200000 100000"})
    assert cpu_facts(tmp_path, {"LOKY_MAX_CPU_COUNT": "6"}).usable.value == 2
    both = cpu_facts(tmp_path, {"LOKY_MAX_CPU_COUNT": "1", "STOKER_CPUS": "6"})
    assert both.usable == Fact(6, "STOKER_CPUS=6")


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(
    ("environ", "usable"),
    [
        ({"SLURM_CPUS_ON_NODE": "4"}, 4),
        ({"SLURM_CPUS_ON_NODE": "64"}, 8),
        ({"SLURM_JOB_CPUS_PER_NODE": "6(x2),3", "SLURM_NODEID": "2"}, 3),
        ({"SLURM_JOB_CPUS_PER_NODE": "6(x2)"}, 6),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "2", "SLURM_STEP_ID": "0"}, 2),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "2"}, 4),  # in the batch script
        ({"SLURM_CPUS_ON_NODE": "many"}, 8),
    ],
)
def test_what_slurm_lends_is_a_limit(tmp_path: Path, environ: dict[str, str], usable: int) -> None:
    assert cpu_facts(tmp_path, environ).usable.value == usable


@pytest.mark.usefixtures("eight_cpus")
def test_a_cpuset_counts_where_the_mask_does_not_show_it(tmp_path: Path) -> None:
    planted(tmp_path, {"sys/fs/cgroup/cpuset.cpus.effective": "4-7\n"})
    facts = cpu_facts(tmp_path, {})
    assert facts.usable.value == 4
    assert "cgroup cpuset: 4" in facts.usable.source


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpuset.cpus.effective": "0-2,8\n"},
        {
            "proc/self/cgroup": "3:cpuset:/docker/abc\n",
            "sys/fs/cgroup/cpuset/cpuset.cpus": "0-2,8",
        },
        {
            "proc/self/cgroup": "3:cpuset:/a\n0::/\n",
            "sys/fs/cgroup/cpuset/a/cpuset.effective_cpus": "0-2,8",
            "sys/fs/cgroup/cpuset/a/cpuset.cpus": "",
            "sys/fs/cgroup/cpuset/cpuset.cpus": "0-15",
        },
    ],
)
def test_the_cpus_of_the_group(tmp_path: Path, files: dict[str, str]) -> None:
    assert cgroup_cpuset(planted(tmp_path, files)).value == {0, 1, 2, 8}


def test_no_group_names_cpus(tmp_path: Path) -> None:
    assert cgroup_cpuset(planted(tmp_path, {"sys/fs/cgroup/cpuset.cpus": "\n"})).value is None


def test_lists_of_cpus() -> None:
    assert parse_cpu_list("0-1,4,6-7\n") == {0, 1, 4, 6, 7}
    assert parse_cpu_list("\n") == frozenset()
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("all")


@pytest.mark.parametrize("text", ["abc", "0", "1.5", "-2"])
def test_a_wrong_override_is_ignored_and_said_so(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert cpu_facts(environ={"STOKER_CPUS": text}).override.value is None
    assert f"STOKER_CPUS={text!r} is ignored" in caplog.text
