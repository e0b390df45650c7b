"""Machines made of files: what a system would show under ``/proc`` and ``/sys``."""

from __future__ import annotations

from pathlib import Path


def planted(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def process(
    pid: str, parent: str, cpus: str, environ: str = "", children: str = ""
) -> dict[str, str]:
    """The files of a process; `environ` as ``A=1 B=2``."""
    folder = f"proc/{pid}"
    return {
        f"{folder}/status": f"Name:\tpython\nPid:\t{pid}\nPPid:\t{parent}\n"
        f"Cpus_allowed_list:\t{cpus}\n",
        f"{folder}/environ": "".join(f"{entry}\0" for entry in environ.split()),
        f"{folder}/task/{pid}/children": children,
    }


def itself(files: dict[str, str], pid: str) -> dict[str, str]:
    """The same files, where process `pid` is the one that asks."""
    prefix = f"proc/{pid}/"
    own = {f"proc/self/{n.removeprefix(prefix)}": t for n, t in files.items() if prefix in n}
    return files | own
