"""Open files and connections that a data set holds while its workers are forked.

A forked worker has its parent's descriptors, and with them the position in each file: what one
process reads moves it for all. So files that are only read are opened again in the worker, at the
same descriptor and position, before anything else; zip, tar, gzip and HDF5 files over such files
with them. The main process's own are not touched. What can't be opened again, since it is written
to, or is a connection with another end, is warned of, once, by the way to it.

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


def look_for_handles(job: Any) -> list[int]:
    """Looks at what workers will be forked with; warns of what they must not share.

    Args:
        job: A `stoker.workers.job.Job`.

    Returns:
        Descriptors of files that each worker is to open for itself, see `positions`.
    """
    again: list[int] = []
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        for path, thing in held(getattr(job, name), name):
            with contextlib.suppress(Exception):  # An odd object is no reason not to start.
                found = _seen(thing)
                if isinstance(found, int):
                    again.append(found)
                elif found:
                    _warn(Shared(path, thing, found))
    return sorted(set(again))


def _seen(thing: Any) -> int | str:
    """The descriptor to be opened again; else why a handle must not be shared, or nothing."""
    if isinstance(thing, torch.Tensor):
        return ""
    if isinstance(thing, FILES):
        return _seen_of_file(thing)
    if isinstance(thing, socket.socket):
        return "" if _is_alone(thing) else "what one process sends or reads is missed by another"
    kind = type(thing)
    of = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if of.startswith("h5py."):
        return _seen_of_hdf5(thing)
    if of == "sqlite3.Connection":
        return "" if _is_in_memory(thing) else _NOT_ACROSS_FORK.format("SQLite")
    if of == "builtins.Environment" and "lmdb" in sys.modules:
        return _NOT_ACROSS_FORK.format("LMDB")
    known = bound(thing)
    return "its other end takes the workers for one" if known and known.is_connection else ""


_NOT_ACROSS_FORK = "{} forbids using across a fork what was opened before it"


def _seen_of_file(file: Any) -> int | str:
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    if file.closed or any(file is each for each in standard):
        return ""
    return _seen_of_descriptor(file.fileno())


def _seen_of_descriptor(descriptor: int) -> int | str:
    import fcntl  # not on every system; where there is none, there is no fork

    if descriptor <= 2 or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    mode = flags & os.O_ACCMODE
    if mode == os.O_RDONLY:
        return descriptor if can_be_opened_again(descriptor) else _ONE_POSITION
    return "" if flags & os.O_APPEND and mode == os.O_WRONLY else f"it is written to, and {_ONE}"


_ONE = "all processes have one position in it"
_ONE_POSITION = f"it can't be opened again, and {_ONE}"


def _seen_of_hdf5(thing: Any) -> int | str:
    file = getattr(thing, "file", None)
    if not file:  # It is closed, or no part of a file.
        return ""
    if file.driver == "sec2" and file.mode == "r":
        return _seen_of_descriptor(file.id.get_vfd_handle())
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
