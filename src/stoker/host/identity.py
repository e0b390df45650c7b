"""Which machine this is, as a digest: what was measured elsewhere says nothing here.

A home folder may be shared by many machines, and a container may be given other limits the next
time. So the digest takes in what tells machines apart and what a measurement depends on: the
machine's own id, the CPU's model, the CPUs this process may use, the memory, the limits of the
container, and the versions of Python and torch up to the second number. The id itself can't be
had back from the digest, so a file that holds it names no machine.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from stoker.host.cgroups import group_folders, read_number
from stoker.host.cpus import cpu_facts

_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
_NO_LIMIT_BYTES = 1 << 60
_GIB = 1 << 30
_CPU_MODEL = ("model name", "Hardware", "CPU implementer", "CPU part")
_FIRST_CPU_BYTES = 4096


@functools.cache
def machine_digest() -> str:
    """This machine as this process may use it; some milliseconds the first time, then none."""
    return digest_of(machine_facts())


def digest_of(facts: tuple[str, ...]) -> str:
    """Sixteen letters and digits that stand for the facts."""
    return hashlib.sha256("\0".join(("stoker", *facts)).encode(errors="replace")).hexdigest()[:16]


def machine_facts(
    root: Path = Path("/"), environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What the digest is made of. Never raises: what can't be read is left out.

    Args:
        root: Where ``etc``, ``proc`` and ``sys`` are found; a test gives a folder of its own.
        environ: The environment; this process's when None.
    """
    return (
        machine_id(root),
        cpu_model(root),
        _cpus(root, os.environ if environ is None else environ),
        _memory(root),
        ".".join(map(str, sys.version_info[:2])),
        torch_version(),
    )


def machine_id(root: Path = Path("/")) -> str:
    """What the system was given to be told apart by; the name of the host where there is none."""
    for name in _IDS:
        try:
            text = (root / name).read_text(errors="replace").strip()
        except OSError:
            continue
        if text and text != "uninitialized":
            return text
    if root != Path("/"):
        return ""
    return _windows_id() or _apples_id() or platform.node()


def _windows_id() -> str:
    if sys.platform != "win32":
        return ""
    try:
        import winreg

        key = winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography")
        with key:
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    except (ImportError, OSError):
        return ""


def _apples_id() -> str:
    """The hardware address: macOS has no file with an id, and a name that changes by network."""
    if sys.platform != "darwin":
        return ""
    import uuid

    node = uuid.getnode()
    invented = node >> 40 & 1  # uuid draws one with that bit where it finds none
    return "" if invented else f"{node:012x}"


def cpu_model(root: Path = Path("/")) -> str:
    """The model of the CPU, as the system calls it, and the architecture."""
    try:
        with (root / "proc/cpuinfo").open(errors="replace") as file:
            lines = file.read(_FIRST_CPU_BYTES).splitlines()  # the first of many, all alike
    except OSError:
        lines = []
    fields = [line.partition(":") for line in lines]
    told = {name.strip(): value.strip() for name, _, value in reversed(fields)}
    model = [told[name] for name in _CPU_MODEL if name in told]
    if not model and root == Path("/"):
        model = [os.environ.get("PROCESSOR_IDENTIFIER", "")]
    return " ".join((*model, platform.machine()))


def _cpus(root: Path, environ: Mapping[str, str]) -> str:
    try:
        facts = cpu_facts(root, environ)
    except Exception:
        return ""
    quota = "" if facts.quota.value is None else f"{facts.quota.value:.2f}"
    return f"{facts.usable.value} of {facts.machine.value}, {quota}"


def _memory(root: Path) -> str:
    """Memory of the machine and of the container, in GiB: the kernel's own share varies."""
    try:
        import psutil

        machine = round(psutil.virtual_memory().total / _GIB)
    except Exception:
        machine = 0
    limits = [
        limit
        for folder in group_folders("memory", root)
        for name in _MEMORY_LIMITS
        if (limit := read_number(folder / name)) is not None and 0 < limit < _NO_LIMIT_BYTES
    ]
    return f"{machine}, {round(min(limits) / _GIB, 1) if limits else ''}"


def torch_version() -> str:
    """The first two numbers of torch's version; empty where there is none. Doesn't import it."""
    loaded = getattr(sys.modules.get("torch"), "__version__", None)
    if loaded is None:
        from importlib import metadata

        try:
            loaded = metadata.version("torch")
        except metadata.PackageNotFoundError:
            return ""
    return ".".join(str(loaded).split(".")[:2])
