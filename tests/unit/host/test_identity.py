"""Which machine this is: the same one is known again, another one or another share of it not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from stoker.host.identity import (
    cpu_model,
    digest_of,
    machine_digest,
    machine_facts,
    machine_id,
    torch_version,
)

CPUINFO = "processor\t: 0\nmodel name\t: Planted CPU\n\nprocessor\t: 1\nmodel name\t: Planted CPU\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    written(tmp_path, "etc/machine-id", "0123abcd\n")
    written(tmp_path, "proc/cpuinfo", CPUINFO)
    written(tmp_path, "proc/self/cgroup", "0::/\n")
    return tmp_path


def written(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def digest(root: Path, environ: dict[str, str] | None = None) -> str:
    return digest_of(machine_facts(root, environ or {}))


def test_the_same_machine_is_known_again(machine: Path) -> None:
    assert digest(machine) == digest(machine)
    assert "0123abcd" not in digest(machine)


CHANGES: dict[str, Callable[[Path], None]] = {
    "its id": lambda root: written(root, "etc/machine-id", "ffff\n"),
    "its CPU": lambda root: written(root, "proc/cpuinfo", CPUINFO.replace("Planted", "Other")),
    "its quota": lambda root: written(root, "sys/fs/cgroup/cpu.max", "150000 100000\n"),
    "its memory": lambda root: written(root, "sys/fs/cgroup/memory.max", f"{3 << 30}\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_machine_is_told_apart_by(machine: Path, change: str) -> None:
    before = digest(machine)
    CHANGES[change](machine)
    assert digest(machine) != before


def test_other_cpus_for_this_process_are_another_machine(machine: Path) -> None:
    assert digest(machine, {"STOKER_CPUS": "1"}) != digest(machine, {"STOKER_CPUS": "2"})


def test_other_versions_are_another_machine(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(machine)
    monkeypatch.setattr(sys.modules["torch"], "__version__", "99.1.0+cpu")
    assert torch_version() == "99.1"
    assert digest(machine) != before
    monkeypatch.undo()
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert digest(machine) != before


def test_a_patch_of_torch_is_the_same_machine(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["torch"], "__version__", "2.13.0+cpu")
    before = digest(machine)
    monkeypatch.setattr(sys.modules["torch"], "__version__", "2.13.1")
    assert digest(machine) == before


@pytest.mark.parametrize("text", ["", "uninitialized\n", None])
def test_the_second_place_for_the_id(machine: Path, text: str | None) -> None:
    if text is None:
        (machine / "etc/machine-id").unlink()
    else:
        written(machine, "etc/machine-id", text)
    written(machine, "var/lib/dbus/machine-id", "beef\n")
    assert machine_id(machine) == "beef"


def test_a_machine_that_shows_nothing_has_a_digest(tmp_path: Path) -> None:
    assert machine_id(tmp_path) == ""
    assert cpu_model(tmp_path).strip()
    assert len(digest(tmp_path)) == 16


def test_a_command_without_torch_says_the_same() -> None:
    program = (
        "import sys; from stoker.host.identity import machine_digest; print(machine_digest());"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(stoker.__file__).parents[1],
    )
    assert done.stdout.strip() == machine_digest()
