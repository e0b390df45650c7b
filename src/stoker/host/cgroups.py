"""Where the limits of this process's control groups are written.

A group's limits hold for all below it, so what counts is the process's own group and every
one above it. In a container those above may not be visible; they are then not known.
The layout is that of the kernel's documentation: admin-guide/cgroup-v1/cgroups.rst and
admin-guide/cgroup-v2.rst. Both versions may be mounted at once ("hybrid").
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_VERSION_2 = "cgroup2"
_MOUNTED = "sys/fs/cgroup"


class _Membership(NamedTuple):
    """A line of ``/proc/self/cgroup``; version 2 names no controllers."""

    controllers: str
    path: str


class _Mount(NamedTuple):
    """A line of ``/proc/self/mountinfo``: `top` is the group that is seen at `folder`."""

    kind: str
    options: frozenset[str]
    top: str
    folder: Path


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders of this process's group and those above it, the own group first.

    Args:
        controller: As in ``/proc/self/cgroup``: ``cpu``, ``cpuset``, ``memory``.
        root: Where ``proc`` and ``sys`` are found; a test gives a folder of its own.

    Yields:
        Folders that may hold the controller's files; some may not exist.
    """
    mounts = _mounts(root)
    for member in _memberships(root):
        if not member.controllers:
            found = [mount for mount in mounts if mount.kind == _VERSION_2]
            usual = [root / _MOUNTED, root / _MOUNTED / "unified"]
        elif controller in member.controllers.split(","):
            found = [m for m in mounts if m.kind == "cgroup" and controller in m.options]
            usual = [root / _MOUNTED / name for name in {controller, member.controllers}]
        else:
            continue
        yield from _upwards(found, usual, member.path)


def _upwards(mounts: list[_Mount], usual: list[Path], path: str) -> Iterator[Path]:
    """From the own group's folder to the mount's; without mounts, in the usual places."""
    inside = [mount for mount in mounts if _is_inside(path, mount.top)]
    if inside:
        top = inside[0].top.rstrip("/")
        tops, path = [inside[0].folder], path[len(top) :]
    else:
        tops = [mount.folder for mount in mounts[:1]] or usual
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for folder in tops:
        for length in range(len(parts), -1, -1):
            yield folder.joinpath(*parts[:length])


def _is_inside(path: str, top: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{top.rstrip('/')}/")


def _memberships(root: Path) -> list[_Membership]:
    fields = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    found = [_Membership(field[1], field[2]) for field in fields if len(field) == 3]
    return found or [_Membership("", "/")]


def _mounts(root: Path) -> list[_Mount]:
    found = []
    for line in _lines(root / "proc/self/mountinfo"):
        before, separator, after = line.partition(" - cgroup")
        if not separator:
            continue
        fields, system = before.split(), f"cgroup{after}".split()
        if len(fields) >= 5 and len(system) >= 3:
            folder = root / _unescaped(fields[4]).lstrip("/")
            options = frozenset(system[2].split(","))
            found.append(_Mount(system[0], options, _unescaped(fields[3]), folder))
    return found


def _unescaped(field: str) -> str:
    r"""As proc(5) writes it: a blank, say, is ``\040``."""
    for octal in ("040", "011", "012", "134"):
        field = field.replace(f"\\{octal}", chr(int(octal, 8)))
    return field


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:  # this system has no such file, or does not show it
        return []


def read_number(file: Path) -> int | None:
    """The number in a file; None when it is absent, unreadable, or says ``max``."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
