"""On which CPUs the other ranks of this node may run (Linux; see proc(5)).

The ranks are children of one launcher. It is the nearest process above this one that
lacks the variable which tells a rank its number; a process between the two, such as a
shell script, has inherited it.
"""

from __future__ import annotations

from pathlib import Path

from stoker.host.cpus import parse_cpu_list

_GENERATIONS = 16  # scripts between a rank and its launcher, at the very most


def masks_of_ranks(
    mark: str, ranks: int, root: Path = Path("/")
) -> tuple[frozenset[int], list[frozenset[int]]] | None:
    """The affinity mask of this process, and those of the other ranks.

    Args:
        mark: Variable in the environment of every rank, and not of their launcher.
        ranks: How many there are, this one included.
        root: Where ``proc`` is found; a test gives a folder of its own.

    Returns:
        None unless exactly as many processes as there should be were found and read.
    """
    own, line = _mask(root, "self"), _line_to_launcher(root, mark)
    if own is None or line is None:
        return None
    launcher, ours = line
    others = [pid for pid in _children(root, launcher) if pid != ours and _has(root, pid, mark)]
    masks = [mask for pid in others if (mask := _mask(root, pid)) is not None]
    return (own, masks) if len(masks) == len(others) == ranks - 1 else None


def _line_to_launcher(root: Path, mark: str) -> tuple[str, str] | None:
    """The launcher, and that child of it which is this process or one above it."""
    child = _status(root, "self").get("Pid", "0")
    for _ in range(_GENERATIONS):
        parent = _status(root, child).get("PPid", "0")
        if parent == "0":
            return None
        if not _has(root, parent, mark):
            return parent, child
        child = parent
    return None


def _children(root: Path, pid: str) -> list[str]:
    found: list[str] = []
    try:
        for task in (root / "proc" / pid / "task").iterdir():
            found += (task / "children").read_text().split()
    except OSError:  # it has ended, or this kernel keeps no such list
        return []
    return found


def _has(root: Path, pid: str, mark: str) -> bool:
    """Whether a process was started with the variable; not for one of another user."""
    try:
        environment = (root / "proc" / pid / "environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(f"{mark}=".encode()) for entry in environment.split(b"\0"))


def _mask(root: Path, pid: str) -> frozenset[int] | None:
    try:
        return parse_cpu_list(_status(root, pid).get("Cpus_allowed_list", "")) or None
    except ValueError:
        return None


def _status(root: Path, pid: str) -> dict[str, str]:
    try:
        lines = (root / "proc" / pid / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in fields}
