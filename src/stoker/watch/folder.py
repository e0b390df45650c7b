"""The folder of a run: made, claimed, and removed; so are those that killed commands have left.

A command that is killed (SIGKILL, no memory left) removes nothing. So each claims its folder:
it writes down who it is, and holds a lock on that file. The next command removes the folders of
its own user whose owner is gone.

Guarantees: a folder is removed only if its owner has ended, told by the lock (where there are
any: it holds across containers that share a folder) and by the process's number and start, and
if no process runs that was started with it: a program outlives its command. What can't be told
stays. Nothing here fails a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from stoker.watch.settings import VARIABLE
from stoker.watch.signals import ended_by_signals

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "stoker-run-"
OWNER = "owner.json"
SAME_START_S = 2.0
"""Two looks at the start of a process may be so far apart where the clock is set."""


@contextlib.contextmanager
def run_folder() -> Iterator[str]:
    """A temporary folder for one run; it is removed, by the next run if this one is killed."""
    with ended_by_signals():
        remove_left(Path(tempfile.gettempdir()))
        folder = tempfile.mkdtemp(prefix=PREFIX)
        try:
            with _claimed(Path(folder)):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)  # a process may have been writing


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Say whose the folder is; a file system without locks, or without room, changes nothing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, psutil.Error):
            file = stack.enter_context((folder / OWNER).open("x", encoding="utf-8"))
            _lock(file.fileno())  # before there is something to read
            file.write(json.dumps(_who(os.getpid())))
            file.flush()
        yield


def _who(pid: int) -> dict[str, object]:
    return {"pid": pid, "started": psutil.Process(pid).create_time(), "node": platform.node()}


def _lock(descriptor: int) -> None:
    """Lock a file without waiting.

    Raises:
        OSError: Another process has it, or it can't be locked.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_left(place: Path) -> None:
    """Remove what commands of this user have left in a folder for temporary files."""
    with contextlib.suppress(OSError):
        left = [each for each in place.glob(f"{PREFIX}*") if _is_own(each)]
        for folder in left:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
                _remove_if_left(folder)


def _is_own(folder: Path) -> bool:
    told = folder.lstat()
    mine = not hasattr(os, "getuid") or told.st_uid == os.getuid()
    return mine and folder.is_dir() and not folder.is_symlink()


def _remove_if_left(folder: Path) -> None:
    with (folder / OWNER).open("r+", encoding="utf-8") as file:
        _lock(file.fileno())
        owner = json.loads(file.read())
        if _lives(owner) or _is_used(folder):
            return
    shutil.rmtree(folder, ignore_errors=True)


def _lives(owner: dict[str, object]) -> bool:
    """Whether the owner runs, or may: on another machine that can't be seen."""
    if owner["node"] != platform.node():
        return True
    try:
        started = psutil.Process(int(str(owner["pid"]))).create_time()
    except psutil.NoSuchProcess:
        return False
    return bool(abs(started - float(str(owner["started"]))) < SAME_START_S)


def _is_used(folder: Path) -> bool:
    """Whether a process runs that was started with this folder; tens of milliseconds."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if folder.name in str(process.environ().get(VARIABLE, "")):
                return True
    return False
