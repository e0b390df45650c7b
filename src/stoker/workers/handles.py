"""What a data set holds that forked workers must not share, and that can't be opened for them.

A worker opens for itself the files that it can read, see `descriptors`. What is left is warned of,
once, by the way to it: files that are only written to, connections with another end, databases
and HDF5 files whose library keeps what it knows in each process.

Guarantees
    - Looked at are up to 400 objects that the data set and its functions hold. None of the user's
      code runs. What is in global variables, or held by libraries in C, is not seen.
    - Nothing is said of standard streams, of files that are appended to, of pipes, of what shows
      or records how training goes, and of mapped files (`numpy.memmap`): these are no danger.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import sys
from typing import Any, NamedTuple

import torch

from stoker.workers.bound import Bound, bound
from stoker.workers.descriptors import can_be_opened_again
from stoker.workers.forking import tell_once
from stoker.workers.holding import FILES, held


class Shared(NamedTuple):
    """Something that forked workers would share, and that can't be opened again for them.

    Attributes:
        path: The way to it.
        thing: What it is.
        why: What makes it dangerous, as a clause.
    """

    path: str
    thing: Any
    why: str


def look_for_handles(job: Any) -> None:
    """Looks at what workers will be forked with; warns of what they must not share.

    Args:
        job: A `stoker.workers.job.Job`.
    """
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        for path, thing in held(getattr(job, name), name):
            with contextlib.suppress(Exception):  # An odd object is no reason not to start.
                if why := _danger(thing):
                    _warn(Shared(path, thing, why))


def _danger(thing: Any) -> str:
    """Why a handle must not be shared; nothing where it is none, or each worker gets its own."""
    if isinstance(thing, torch.Tensor):
        return ""
    if isinstance(thing, FILES):
        return _danger_of_file(thing)
    if isinstance(thing, socket.socket):
        return "" if _is_alone(thing) else "what one process sends or reads is missed by another"
    kind = type(thing)
    of = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if of.startswith("h5py."):
        return _danger_of_hdf5(thing)
    if of == "sqlite3.Connection":
        return "" if _is_in_memory(thing) else _NOT_ACROSS_FORK.format("SQLite")
    if of == "builtins.Environment" and "lmdb" in sys.modules:
        return _NOT_ACROSS_FORK.format("LMDB")
    known = bound(thing)
    return "its other end takes the workers for one" if known and known.is_connection else ""


_NOT_ACROSS_FORK = "{} forbids using across a fork what was opened before it"


def _danger_of_file(file: Any) -> str:
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    if file.closed or any(file is each for each in standard):
        return ""
    return _danger_of_descriptor(file.fileno())


def _danger_of_descriptor(descriptor: int) -> str:
    import fcntl  # not on every system; where there is none, there is no fork

    if descriptor <= 2 or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if flags & os.O_ACCMODE == os.O_WRONLY:
        return "" if flags & os.O_APPEND else f"it is written to, and {_ONE}"
    return "" if can_be_opened_again(descriptor) else f"it can't be opened again, and {_ONE}"


_ONE = "all processes have one position in it"
_HDF5_FILES = ("sec2", "stdio", "fileobj", "core")


def _danger_of_hdf5(thing: Any) -> str:
    file = getattr(thing, "file", None)
    if not file:  # It is closed, or no part of a file.
        return ""
    if file.driver == "sec2" and file.mode == "r":
        return _danger_of_descriptor(file.id.get_vfd_handle())
    if file.driver in _HDF5_FILES and file.mode == "r":
        return ""
    return "HDF5 keeps what it knows of a file in each process"


def _is_alone(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return True
    return False


def _is_in_memory(database: Any) -> bool:
    try:
        return not any(row[2] for row in database.execute("PRAGMA database_list").fetchall())
    except Exception:  # Of another thread's, for instance.
        return False


def _warn(shared: Shared) -> None:
    known = bound(shared.thing) or Bound(type(shared.thing).__name__, "", "{path}")
    tell_once(
        logging.WARNING,
        f"forked workers share {shared.path}, {known.name}, with the main process and with each "
        f"other: {shared.why}. To change it: {known.change.replace('{path}', shared.path)}",
    )
