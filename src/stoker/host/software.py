"""Which interpreter and system this is; nothing that names the machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class SoftwareFacts:
    """Versions that a measurement depends on.

    Attributes:
        python: Version of Python.
        system: Name, release and architecture of the operating system.
    """

    python: str
    system: str


def software_facts() -> SoftwareFacts:
    """Read the versions; no process is started and nothing is imported."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return SoftwareFacts(platform.python_version(), system)
