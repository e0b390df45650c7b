"""An open file for a process that is being started, where descriptors can't be passed on: Windows.

There a temporary file goes with its last handle, but once one process has closed it nobody can
open it by its path any more. So nobody does: each process is given a handle of the same opening,
whose position they share.
"""

from __future__ import annotations

import multiprocessing.context
import os
from typing import Any

_place: Any = multiprocessing.context


def hand_over(descriptor: int) -> int:
    """A handle in the process that is being spawned, for `taken`."""
    import msvcrt

    handles: Any = msvcrt
    handle: int = _place.get_spawning_popen().duplicate_for_child(handles.get_osfhandle(descriptor))
    return handle


def taken(handle: int) -> int:
    """The descriptor for it, in that process."""
    import msvcrt

    handles: Any = msvcrt
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
    descriptor: int = handles.open_osfhandle(handle, flags)
    return descriptor
