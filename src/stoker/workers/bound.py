"""What belongs to the process that made it: its name, why it can't leave, and what to do.

Only types are looked at, by name, so that no library is imported and none of its code runs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

_PER_WORKER = "{path}, to be opened by each worker for itself: "
_IN_WORKER = "{path}, to be made in the worker when it is first needed"
_SHARED = "what it holds is of the system's, and of the process that has opened it"


class Bound(NamedTuple):
    """One kind of thing.

    Attributes:
        name: What people call it.
        why: Why it can't be sent to another process, as a clause.
        change: What to do; ``{path}`` stands for the way to the thing.
        is_connection: Whether something at its other end knows of it.
    """

    name: str
    why: str
    change: str
    is_connection: bool = False


def bound(thing: Any) -> Bound | None:
    """What is known of a thing that can't leave its process; None where nothing is."""
    for kind in type(thing).__mro__:
        place = kind.__module__.partition(".")[0]
        known = _KNOWN.get(f"{place}.{kind.__name__}") or _KNOWN.get(f"{place}.*")
        if known is not None:
            return known(thing)
    return None


def path_of(thing: Any) -> str | None:
    """The path that an open file was opened by; None where it has none, or is part of one."""
    for name in ("filename", "filepath", "name"):
        with contextlib.suppress(Exception):  # Whatever its own code raises.
            path = getattr(thing, name)
            path = path() if name == "filepath" else path
            if isinstance(path, str):
                return path
    return None


def _opened(name: str, opener: str) -> Callable[[Any], Bound]:
    """Something that is opened by a path, or made by a call that each process can repeat."""

    def known(thing: Any) -> Bound:
        path = path_of(thing)
        called = f"{name}, of {path!r}" if path else name
        return Bound(called, _SHARED, f"{_PER_WORKER}stoker.per_worker({opener})")

    return known


def _hdf5(thing: Any) -> Bound:
    """A file, or a group or an array in one: each has a name in the file, which is no path."""
    file = None
    with contextlib.suppress(Exception):  # It is closed.
        file = thing.file
    return _opened("an open HDF5 file (h5py), or part of one", "h5py.File, path")(file)


def _file(file: Any) -> Bound:
    path, mode = path_of(file), getattr(file, "mode", "r")
    why = "its descriptor and position are this process's"
    if path is None:
        change = (
            "{path}, to be a file that has a path (tempfile.NamedTemporaryFile makes one), which "
            "each worker opens for itself: stoker.per_worker(open, path, 'rb')"
        )
        return Bound("an open file without a path", why, change)
    call = f"stoker.per_worker(open, {path!r}, {mode!r})"
    return Bound(f"an open file, of {path!r}", why, _PER_WORKER + call)


def _plain(name: str, why: str, change: str = _IN_WORKER) -> Callable[[Any], Bound]:
    return lambda _: Bound(name, why, change)


def _function(thing: Any) -> Bound | None:
    if "<locals>" not in thing.__qualname__ and "<lambda>" not in thing.__qualname__:
        return None
    name = "a lambda" if thing.__name__ == "<lambda>" else "a function defined inside a function"
    why = "pickle finds functions by their names in a module, and it has none there"
    return Bound(name, why, "{path}, to be a function of a module, or functools.partial of one")


def _class(thing: Any) -> Bound | None:
    why = "pickle finds classes by their names in a module, and it has none there"
    if "<locals>" in thing.__qualname__:
        name = "a class defined inside a function"
    elif not _is_in_its_module(thing):
        name = "a class that its module does not hold by its name"
    else:
        return None
    return Bound(name, why, "{path}, to be a class of a module")


def _is_in_its_module(kind: Any) -> bool:
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


_LOCK = _plain(
    "a lock, or something made of locks",
    "who holds it is a thread of this process",
    _IN_WORKER + ", or left out by __getstate__",
)
_POOL = _plain("a pool of threads or processes", "its threads are this process's")
_GENERATOR = _plain(
    "a generator",
    "how far it has come can't be written down",
    "{path}, to be a function or an iterable class that makes the generator in the worker",
)
_MULTIPROCESSING = _plain(
    "a lock or queue of multiprocessing",
    "it is handed over only while a process is being started, and one of the start method fork "
    "to forked processes only",
    '{path}, to be one of multiprocessing.get_context("spawn"), which every worker can be given',
)
_WEAK = _plain(
    "a weak reference, or something made of them",
    "what it refers to lives in this process",
    "{path}, to be an ordinary reference, or left out by __getstate__",
)


def _database(thing: Any) -> Bound:
    return _opened("an open database", "connect, ...")(thing)._replace(is_connection=True)


_KNOWN: dict[str, Callable[[Any], Bound | None]] = {
    "_io.FileIO": _file,
    "_io.BufferedReader": _file,
    "_io.BufferedWriter": _file,
    "_io.BufferedRandom": _file,
    "_io.TextIOWrapper": _file,
    "tempfile._TemporaryFileWrapper": _file,
    "h5py.HLObject": _hdf5,
    "netCDF4.Dataset": _opened("an open netCDF file", "netCDF4.Dataset, path"),
    "zipfile.ZipFile": _opened("an open zip file", "zipfile.ZipFile, path"),
    "zipfile.ZipExtFile": _opened("an open file of a zip file", "open_member, ..."),
    "tarfile.TarFile": _opened("an open tar file", "tarfile.open, path"),
    "gzip.GzipFile": _opened("an open gzip file", "gzip.open, path"),
    "bz2.BZ2File": _opened("an open bz2 file", "bz2.open, path"),
    "lzma.LZMAFile": _opened("an open lzma file", "lzma.open, path"),
    # lmdb's classes are written in C and say that they are built in.
    "builtins.Environment": _opened("an open LMDB environment", "lmdb.open, path, ..."),
    "builtins.Transaction": _opened("an LMDB transaction", "begin"),
    "lmdb.*": _opened("an open LMDB environment, or part of one", "lmdb.open, path, ..."),
    "sqlite3.Connection": _opened("an open SQLite database", "sqlite3.connect, path"),
    "sqlite3.Cursor": _opened("a cursor of an SQLite database", "sqlite3.connect, path"),
    "psycopg.Connection": _database,
    "psycopg2.connection": _database,
    "pymysql.Connection": _database,
    "duckdb.DuckDBPyConnection": _database,
    "_duckdb.DuckDBPyConnection": _database,
    "socket.socket": _opened("a socket", "connect, ..."),
    "_socket.socket": _opened("a socket", "connect, ..."),
    "subprocess.Popen": _plain("a process that was started", "it is a child of this one"),
    "mmap.mmap": _opened("mapped memory (mmap)", "map_file, path"),
    "builtins.generator": _GENERATOR,
    "builtins.async_generator": _GENERATOR,
    "builtins.coroutine": _GENERATOR,
    "_thread.lock": _LOCK,
    "_thread.RLock": _LOCK,
    "threading.Thread": _plain("a thread", "threads stay in the process they run in"),
    "_thread._local": _plain("threading.local", "it belongs to the threads of this process"),
    "_threading_local.local": _plain("threading.local", "it belongs to this process's threads"),
    "threading.*": _LOCK,
    "queue.Queue": _plain("a queue between threads", "it is made of locks of this process"),
    "_queue.SimpleQueue": _plain("a queue between threads", "it is made of this process's locks"),
    "concurrent.Executor": _POOL,
    "multiprocessing.Pool": _POOL,
    "multiprocessing.SemLock": _MULTIPROCESSING,
    "multiprocessing.Condition": _MULTIPROCESSING,
    "multiprocessing.Event": _MULTIPROCESSING,
    "multiprocessing.Barrier": _MULTIPROCESSING,
    "multiprocessing.SynchronizedBase": _MULTIPROCESSING,
    "multiprocessing.Queue": _MULTIPROCESSING,
    "multiprocessing.JoinableQueue": _MULTIPROCESSING,
    "multiprocessing.SimpleQueue": _MULTIPROCESSING,
    "concurrent.Future": _plain("a result to come (Future)", "a thread of this process makes it"),
    "weakref.*": _WEAK,
    "builtins.module": _plain(
        "a module",
        "modules are imported, not sent",
        "{path}, to be imported by what uses it",
    ),
    "builtins.function": _function,
    "builtins.type": _class,
    "builtins.frame": _plain("a frame", "it is where this process's code has come to"),
    "builtins.traceback": _plain("a traceback", "it holds this process's frames"),
    "_struct.Struct": _plain(
        "a struct.Struct",
        "it was compiled in this process",
        "{path}, to be its format, for struct.unpack(), which keeps what it has compiled",
    ),
    "_contextvars.ContextVar": _plain(
        "a ContextVar",
        "its values are those of this process's threads and tasks",
        "{path}, to be a variable of a module that workers import",
    ),
    "builtins.memoryview": _plain(
        "a memoryview", "it shows memory of this process", "{path}, to be bytes or an array"
    ),
}
