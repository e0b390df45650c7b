"""Machines as launchers set them up: the CPUs that one of the ranks has."""

import os
import sys
from pathlib import Path

import pytest

from stoker.host.cpus import CpuFacts, Fact
from stoker.host.ranks import CpuShare, cpu_share
from tests.unit.host.planting import itself, planted, process
from tests.unit.workers.in_process import in_process

STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}
TORCHRUN = {"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}


def share(
    root: Path, environ: dict[str, str], mask: int | None = 16, quota: float | None = None
) -> CpuShare:
    """Of a process that may run on `mask` of 64 CPUs."""
    usable = min(mask or 64, quota or 64)
    facts = CpuFacts(
        Fact(max(1, round(usable)), "usable"),
        Fact(64, "machine"),
        Fact(mask, "affinity"),
        Fact(quota, "quota"),
        Fact(None, "unset"),
    )
    return cpu_share(facts, root, environ)


def ranks(mark: str, masks: list[str], launcher: str, parent: str = "1") -> dict[str, str]:
    """Processes 100, 101 ... of one launcher, of which 101 asks."""
    pids = [str(100 + i) for i in range(len(masks))]
    files = process("10", parent, launcher, children=" ".join([*pids, "99"]))
    files |= process("99", "10", launcher)  # a helper of the launcher's
    for rank, (pid, mask) in enumerate(zip(pids, masks, strict=True)):
        files |= process(pid, "10", mask, environ=f"HOME=/ {mark}={rank}")
    return itself(files, "101")


def test_alone_on_the_machine(tmp_path: Path) -> None:
    found = share(tmp_path, {}, mask=4)  # taskset -c 0-3
    assert (found.ranks.value, found.cpus.value) == (1, 4.0)
    assert share(tmp_path, {}, mask=None).cpus.value == 64.0  # macOS


def test_half_a_cpu_and_ranks_that_share_a_quota(tmp_path: Path) -> None:
    assert share(tmp_path, {}, quota=0.5).cpus.value == 0.5
    found = share(tmp_path, {"LOCAL_WORLD_SIZE": "2"}, mask=64, quota=1.5)
    assert found.cpus.value == 0.75
    assert "cgroup quota of 1.5 CPUs, for 2 ranks" in found.cpus.source


def test_a_share_is_never_nothing(tmp_path: Path) -> None:
    assert share(tmp_path, {"LOCAL_WORLD_SIZE": "4096"}, quota=0.1).cpus.value > 0


def test_torchrun_under_taskset_shares(tmp_path: Path) -> None:
    planted(tmp_path, ranks("LOCAL_RANK", ["0-15"] * 4, launcher="0-15"))
    found = share(tmp_path, TORCHRUN)
    assert (found.ranks.value, found.cpus.value) == (4, 4.0)
    assert "shared with 3 ranks" in found.cpus.source


def test_ranks_that_are_bound_do_not_divide_again(tmp_path: Path) -> None:
    masks = ["0-15", "16-31", "32-47", "48-63"]
    planted(tmp_path, ranks("OMPI_COMM_WORLD_LOCAL_RANK", masks, launcher="0-63"))
    found = share(tmp_path, {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"})
    assert found.cpus.value == 16.0
    assert "bound to CPUs of its own" in found.cpus.source


def test_two_ranks_bound_to_each_socket_have_half_of_it(tmp_path: Path) -> None:
    masks = ["0-31", "0-31", "32-63", "32-63"]
    planted(tmp_path, ranks("OMPI_COMM_WORLD_LOCAL_RANK", masks, launcher="0-63"))
    assert share(tmp_path, {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, mask=32).cpus.value == 16.0


def test_ranks_all_pinned_to_the_same_few(tmp_path: Path) -> None:
    planted(tmp_path, ranks("LOCAL_RANK", ["0-3"] * 4, launcher="0-63"))
    assert share(tmp_path, TORCHRUN, mask=4).cpus.value == 1.0


def test_a_script_between_the_launcher_and_python(tmp_path: Path) -> None:
    mark = "LOCAL_RANK"
    files = ranks(mark, ["0-7", "8-15", "16-23", "24-31"], launcher="0-31")
    files |= process("101", "10", "8-15", environ=f"{mark}=1", children="201")
    files |= process("201", "101", "8-15", environ=f"{mark}=1")
    planted(tmp_path, itself(files, "201"))
    assert share(tmp_path, TORCHRUN, mask=8).cpus.value == 8.0


@pytest.mark.parametrize("hidden", ["proc/103/environ", "proc/103/status", "proc/10/task/10"])
def test_where_the_others_cannot_be_seen_the_cpus_are_shared(tmp_path: Path, hidden: str) -> None:
    files = ranks("LOCAL_RANK", ["0-15"] * 4, launcher="0-15")
    planted(tmp_path, {name: text for name, text in files.items() if not name.startswith(hidden)})
    found = share(tmp_path, TORCHRUN)
    assert found.cpus.value == 4.0
    assert found.cpus.source == "affinity, for 4 ranks"


def test_no_masks_at_all(tmp_path: Path) -> None:
    assert share(tmp_path, {"LOCAL_WORLD_SIZE": "4"}, mask=None).cpus.value == 16.0


def test_srun_with_cpus_per_task_unbound(tmp_path: Path) -> None:
    environ = {**STEP, "SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "16"}
    found = share(tmp_path, environ, mask=64)
    assert (found.ranks.value, found.cpus.value) == (4, 4.0)


def test_srun_bound_to_less_than_was_asked(tmp_path: Path) -> None:
    """Slurm 22.05 and later: srun no longer takes over sbatch's --cpus-per-task."""
    environ = {**STEP, "SLURM_CPUS_PER_TASK": "8", "SLURM_CPUS_ON_NODE": "4"}
    assert share(tmp_path, environ, mask=1).cpus.value == 1.0


def test_srun_tasks_within_one_group_unbound(tmp_path: Path) -> None:
    """Slurm's own process has the whole node's mask, which says nothing about the tasks."""
    files = ranks("SLURM_LOCALID", ["0-15"] * 4, launcher="0-63")
    del files["proc/10/environ"]
    planted(tmp_path, files)
    assert share(tmp_path, {**STEP, "SLURM_CPUS_ON_NODE": "16"}).cpus.value == 4.0


def test_srun_tasks_bound_in_a_container_that_hides_the_others(tmp_path: Path) -> None:
    assert share(tmp_path, {**STEP, "SLURM_CPUS_ON_NODE": "16"}, mask=4).cpus.value == 4.0


def test_torchrun_in_one_slurm_task(tmp_path: Path) -> None:
    slurm = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_CPUS_PER_TASK": "32"}
    planted(tmp_path, ranks("LOCAL_RANK", ["0-63"] * 4, launcher="0-63"))
    found = share(tmp_path, {**TORCHRUN, **slurm}, mask=64)
    assert (found.ranks.value, found.cpus.value) == (4, 8.0)
    assert found.cpus.source == "SLURM_CPUS_PER_TASK, for 4 ranks"


def test_torchrun_in_each_of_two_slurm_tasks(tmp_path: Path) -> None:
    slurm = {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_CPUS_ON_NODE": "64"}
    found = share(tmp_path, {**TORCHRUN, **slurm}, mask=64)
    assert (found.ranks.value, found.cpus.value) == (8, 8.0)


def test_a_script_that_exports_slurms_numbers_as_torchruns(tmp_path: Path) -> None:
    environ = {**STEP, "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0", "SLURM_CPUS_PER_TASK": "8"}
    found = share(tmp_path, environ, mask=8)
    assert (found.ranks.value, found.cpus.value) == (4, 8.0)


def test_a_batch_script_that_calls_python_itself(tmp_path: Path) -> None:
    """It has asked for four tasks and starts none of them."""
    environ = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "16", "SLURM_LOCALID": "0"}
    found = share(tmp_path, environ)
    assert (found.ranks.value, found.cpus.value) == (1, 16.0)


def test_mpirun_in_a_batch_script(tmp_path: Path) -> None:
    environ = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "SLURM_CPUS_ON_NODE": "32"}
    found = share(tmp_path, {**environ, "SLURM_CPUS_PER_TASK": "8"}, mask=64)
    assert found.cpus.value == 8.0


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "x"}, 1),
        ({"MV2_COMM_WORLD_LOCAL_SIZE": "3"}, 3),
        ({"MPI_LOCALNRANKS": "3"}, 3),
        ({"PMI_LOCAL_SIZE": "3"}, 3),
        ({"PALS_LOCAL_SIZE": "3"}, 3),
        ({"LOCAL_SIZE": "3"}, 1),
        ({"LOCAL_SIZE": "3", "LOCAL_RANK": "0"}, 3),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2),4", "SLURM_NODEID": "1"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2),4", "SLURM_NODEID": "2"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2),4"}, 1),
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "2"}, 2),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 1),
    ],
)
def test_ranks(environ: dict[str, str], expected: int) -> None:
    assert cpu_share(environ=environ).ranks.value == expected


def test_the_own_variable_overrules_ranks_too(tmp_path: Path) -> None:
    found = cpu_share(None, tmp_path, {"STOKER_CPUS": "3", "LOCAL_WORLD_SIZE": "8"})
    assert found.cpus == Fact(3.0, "STOKER_CPUS")


def test_this_very_machine() -> None:
    found = cpu_share()
    assert found.cpus.value > 0
    assert found.cpus.source


def _on_one_cpu() -> tuple[float, str]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = cpu_share(environ={}).cpus
    return found.value, found.source


@pytest.mark.skipif(sys.platform != "linux", reason="no affinity to set")
def test_c004_a_process_that_was_restricted() -> None:
    """As by taskset -c 0."""
    value, source = in_process("spawn", _on_one_cpu)
    assert value <= 1.0
    assert source
