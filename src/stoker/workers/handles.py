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
import functools
import io
import logging
import os
import socket
import stat
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker.per_process import PerWorker
from stoker.workers.bound import Bound, bound
from stoker.workers.forking import BYSTANDERS, tell_once
from stoker.workers.reach import is_filled

_OBJECTS, _ITEMS = 400, 16
_PLAIN = (str, bytes, bytearray, int, float, complex, type, types.ModuleType, types.CodeType)
_HELD_ELSEWHERE = (torch.Tensor, np.ndarray, logging.Filterer, logging.Handler, PerWorker)
_NOT_LOOKED_INTO = _PLAIN + _HELD_ELSEWHERE
_FILES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_OF_THE_SYSTEM = "/proc/self/fd/{}"


class Position(NamedTuple):
    """Where this process is in a file that a worker is to open for itself."""

    descriptor: int
    offset: int


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


def held(root: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The objects that are held by one, directly or not, and the way to each: nearest first."""
    waiting, seen = deque([(name, root)]), set[int]()
    while waiting and len(seen) < _OBJECTS:
        path, thing = waiting.popleft()
        if isinstance(thing, torch.Tensor):
            yield path, thing
        if thing is None or id(thing) in seen or isinstance(thing, _NOT_LOOKED_INTO):
            continue
        if type(thing).__module__.partition(".")[0] in BYSTANDERS:
            continue
        seen.add(id(thing))
        yield path, thing
        if not isinstance(thing, _FILES):
            waiting.extend((path + label, part) for label, part in _parts(thing))


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        if len(thing) < _OBJECTS:
            yield from ((f"[{key!r:.60}]", thing[key]) for key in islice(thing, _ITEMS))
    elif isinstance(thing, (list, tuple, deque)):
        yield from ((f"[{at}]", part) for at, part in enumerate(islice(thing, _ITEMS)))
    elif isinstance(thing, (set, frozenset)):
        yield from ((".{...}", part) for part in islice(thing, _ITEMS))
    elif isinstance(thing, functools.partial):
        yield from ((f".args[{at}]", part) for at, part in enumerate(thing.args))
        yield from ((f".keywords[{key!r}]", part) for key, part in thing.keywords.items())
        yield ".func", thing.func
    elif isinstance(thing, types.MethodType):
        yield ".__self__", thing.__self__
    elif isinstance(thing, types.FunctionType):
        names, cells = thing.__code__.co_freevars, thing.__closure__ or ()
        for name, cell in zip(names, cells, strict=False):
            if is_filled(cell):
                yield f".nonlocals[{name!r}]", cell.cell_contents
    yield from _attributes(thing)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    for name, member in _slots(type(thing)):
        with contextlib.suppress(AttributeError):  # It is empty.
            yield f".{name}", member.__get__(thing)
    with contextlib.suppress(AttributeError):
        own = object.__getattribute__(thing, "__dict__")
        if type(own) is dict:
            yield from [(f".{name}", part) for name, part in own.items()]


def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    members = [
        pair for each in kind.__mro__ if "__slots__" in vars(each) for pair in vars(each).items()
    ]
    return tuple(pair for pair in members if type(pair[1]) is types.MemberDescriptorType)


def _seen(thing: Any) -> int | str:
    """The descriptor to be opened again; else why a handle must not be shared, or nothing."""
    if isinstance(thing, torch.Tensor):
        return ""
    if isinstance(thing, _FILES):
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
        return descriptor if _can_be_opened_again(descriptor) else _ONE_POSITION
    return "" if flags & os.O_APPEND and mode == os.O_WRONLY else f"it is written to, and {_ONE}"


_ONE = "all processes have one position in it"
_ONE_POSITION = f"it can't be opened again, and {_ONE}"


def _can_be_opened_again(descriptor: int) -> bool:
    if sys.platform != "linux":  # Elsewhere the name stands for the same position.
        return False
    try:
        os.close(os.open(_OF_THE_SYSTEM.format(descriptor), os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


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
