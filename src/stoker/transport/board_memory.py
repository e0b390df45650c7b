"""Where a board is: memory without a name where the system has it, else a file of the user's.

Linux: a memfd. Its name is only a label that others see beside the descriptor, in
``/proc/PID/fd``; the memory goes with the process, however that ends.

Elsewhere: a file named by the pid, in a folder that only the user can enter. It is removed
by who made it, or else by the next reader that finds its process gone.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import tempfile
from pathlib import Path
from typing import Literal

LABEL = "stoker-board"
SUFFIX = ".board"

Kind = Literal["memfd", "file"]


def kind_here() -> Kind:
    """The best kind of board on this system."""
    return "memfd" if hasattr(os, "memfd_create") else "file"


class BoardMemory:
    """Memory of this process that its user's other processes can find. Not for threads.

    It keeps one descriptor, that of its mapping.

    Args:
        size_bytes: Its size.

    Raises:
        OSError: The system gave no memory, descriptor or file.
    """

    def __init__(self, size_bytes: int) -> None:
        self.path: Path | None = None
        descriptor = self._open()
        try:
            self.mapping = _mapped(descriptor, size_bytes)
        except BaseException:
            self._remove()
            raise
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        if kind_here() == "memfd":
            # Some sandboxes have the call and refuse it.
            with contextlib.suppress(OSError):
                return os.memfd_create(LABEL, os.MFD_CLOEXEC)
        self.path = made_folder() / f"{os.getpid()}{SUFFIX}"
        self.path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        return os.open(self.path, flags, 0o600)

    def close(self) -> None:
        """Take the board away."""
        self.abandon()
        self._remove()

    def abandon(self) -> None:
        """Forget the mapping alone: what a forked copy does with the board of its parent."""
        self.mapping.close()

    def _remove(self) -> None:
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


def _mapped(descriptor: int, size_bytes: int) -> mmap.mmap:
    # Written, and not only cut to size: a full disk is then an error here and no crash later.
    if os.write(descriptor, bytes(size_bytes)) < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return mmap.mmap(descriptor, size_bytes)


def folder() -> Path:
    """The folder for this user's boards, whether it exists or not."""
    user = os.geteuid() if hasattr(os, "geteuid") else "boards"  # Windows: temp is the user's
    return Path(tempfile.gettempdir()) / f"stoker-{user}"


def made_folder() -> Path:
    """The folder, made where it is missing.

    Raises:
        OSError: It can't be made, or is not this user's alone.
    """
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    if not is_private(place):
        raise PermissionError(f"{place} is not a folder of this user alone")
    return place


def is_private(place: Path) -> bool:
    """Whether it is a folder, no link, that only this user can enter."""
    try:
        found = place.lstat()
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(found.st_mode)
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    )


def start_of(pid: int) -> float:
    """When a process started, in seconds; the same for whoever asks. Linux: since boot.

    Raises:
        ProcessLookupError: There is no such process, or it is hidden.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return _start_by_psutil(pid)
    ticks = told.rpartition(b")")[2].split()[19]  # proc_pid_stat(5): starttime
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def _start_by_psutil(pid: int) -> float:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error as error:
        raise ProcessLookupError(f"no process {pid}") from error
