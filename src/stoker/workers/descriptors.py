"""Files that came along by fork, opened again for a worker of its own; see `handles`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import NamedTuple

_OF_THE_SYSTEM = "/proc/self/fd/{}"


class Position(NamedTuple):
    """Where this process is in a file that a worker is to open for itself."""

    descriptor: int
    offset: int


def can_be_opened_again(descriptor: int) -> bool:
    """Whether `open_again` can; asked of a file that is only read."""
    if sys.platform != "linux":  # Elsewhere the name stands for the same position.
        return False
    try:
        os.close(os.open(_OF_THE_SYSTEM.format(descriptor), os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def positions(descriptors: Iterable[int]) -> list[Position]:
    """Where this process is in these files now; without those that were closed meanwhile."""
    found = []
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            found.append(Position(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR)))
    return found


def open_again(files: Iterable[Position]) -> None:
    """For a forked worker: its own position in each file, under the descriptor it had.

    Raises:
        OSError: A file can't be opened again: reading it would move others' positions.
    """
    for descriptor, offset in files:
        own = os.open(_OF_THE_SYSTEM.format(descriptor), os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(own, offset, os.SEEK_SET)
        os.dup2(own, descriptor, inheritable=os.get_inheritable(descriptor))
        os.close(own)
