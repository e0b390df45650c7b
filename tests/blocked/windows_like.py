"""Has Stoker find itself on Windows, as far as Linux can play that.

What is shown to Stoker's own modules, and to no others:

- ``sys.platform`` is "win32" and ``os.name`` "nt".
- Modules and names that Windows lacks are not there (`tests.blocked.lacking`), nor ``/proc``.
- Shared memory has a name, and is gone with its last handle, whoever was killed meanwhile;
  unlinking does nothing.
- ``os.kill`` ends a process, whatever the number, 0 too. ``os.getppid`` goes on to name a parent
  that has gone. A C library can't be had by ``ctypes.CDLL(None)``.
- A file that is opened with ``O_TEMPORARY`` goes when it is closed.

And what is so for the whole program: nobody forks, there is no memfd, multiprocessing has spawn
only, and what it ends is ended at once, with the exit code it has for that on Windows.

What multiprocessing, torch and psutil need of Linux they keep: they stand for what they are on
Windows. Processes inherit all this by ``PYTHONPATH``, see `tests.blocked.preamble`.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import importlib.machinery
import mmap
import multiprocessing.context
import multiprocessing.popen_fork
import multiprocessing.popen_spawn_posix
import os
import pathlib
import signal
import sys
import types
import uuid
import weakref
from collections import UserDict
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

from lacking import FILES, MODULES, NAMES  # beside this file, on the path of the program

_O_TEMPORARY = 1 << 28
_NOWHERE = "/nowhere"
_FOLDER = "STOKER_BLOCKED_NAMES"
LOG = "STOKER_BLOCKED_LOG"
FORK_IS_SPAWN = "STOKER_BLOCKED_FORK_IS_SPAWN"
"""Set for tests that ask for fork: they get what Windows has."""


class Shown(types.ModuleType):
    """A module as Stoker sees it: some names are not there, others are imitated."""

    def __init__(self, real: types.ModuleType, **imitated: Any) -> None:
        super().__init__(real.__name__)
        vars(self).update(imitated, _real=real, _lacks=NAMES.get(real.__name__, frozenset()))

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if name in own["_lacks"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return getattr(own["_real"], name)


def _absent(path: Any) -> Any:
    """Where Linux tells of itself is somewhere that is not there."""
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(FILES):
        return _NOWHERE + os.fspath(path)
    return path


class _PathKind(type):
    def __call__(cls, *parts: Any, **options: Any) -> Any:
        return pathlib.Path(_absent(pathlib.Path(*parts, **options)))

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, pathlib.Path)

    def __getattr__(cls, name: str) -> Any:
        return getattr(pathlib.Path, name)


class Path(metaclass=_PathKind):
    """`pathlib.Path`, which never leads to where Linux tells of itself."""


# Processes and files.

_first_parent = os.getppid()
_temporary: UserDict[int, str] = UserDict()
"""No dict: the program's settings, which workers begin with, would be that."""


def _kill(pid: int, number: int) -> None:
    """TerminateProcess, for any number but two that Stoker does not use."""
    os.kill(pid, signal.SIGKILL)


def _open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
    descriptor = os.open(_absent(path), flags & ~_O_TEMPORARY, *rest, **options)
    if flags & _O_TEMPORARY:
        _temporary[descriptor] = os.fspath(path)
    return descriptor


def _close(descriptor: int) -> None:
    os.close(descriptor)
    if path := _temporary.pop(descriptor, ""):
        pathlib.Path(path).unlink(missing_ok=True)


_HANDLES = types.SimpleNamespace(
    get_osfhandle=lambda descriptor: descriptor, open_osfhandle=lambda handle, flags: handle
)
"""Handles are descriptors."""


def _no_c_library(name: Any, *rest: Any, **options: Any) -> Any:
    if name is None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
    return ctypes.CDLL(name, *rest, **options)


# Shared memory by name: a file each handle of which has a lock, so that the system knows when
# the last is gone.


def _named(name: str, size_bytes: int, *, create: bool) -> mmap.mmap:
    path = pathlib.Path(os.environ[_FOLDER], name)
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        if _is_only_handle(descriptor):
            if not create:
                path.unlink(missing_ok=True)
                raise FileNotFoundError(2, "the last handle of it is gone", name)
            os.ftruncate(descriptor, 0)
            os.ftruncate(descriptor, size_bytes)
        elif create and size_bytes > os.fstat(descriptor).st_size:
            raise PermissionError(13, "another is larger", name)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        mapping = mmap.mmap(descriptor, size_bytes or os.fstat(descriptor).st_size)
    except BaseException:
        os.close(descriptor)
        raise
    _log(f"{'made' if create else 'attached'} {name} {len(mapping)}")
    weakref.finalize(mapping, _let_go, descriptor, path)
    return mapping


def _is_only_handle(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go(descriptor: int, path: pathlib.Path) -> None:
    if _is_only_handle(descriptor):
        path.unlink(missing_ok=True)
    os.close(descriptor)


def _map(fileno: int, length: int, tagname: str | None = None, **options: Any) -> mmap.mmap:
    if fileno == -1 and tagname is not None:
        return _named(tagname, length, create=True)
    return mmap.mmap(fileno, length, **options)


class SharedMemory:
    """As `multiprocessing.shared_memory.SharedMemory` is on Windows."""

    def __init__(self, name: str | None = None, create: bool = False, size: int = 0) -> None:
        self.name = name or f"wnsm_{uuid.uuid4().hex[:8]}"
        self._mmap: mmap.mmap | None = _named(self.name, size, create=create)
        self._buf: memoryview | None = memoryview(self._mmap)
        self.size = len(self._mmap)

    @property
    def buf(self) -> memoryview | None:
        return self._buf

    def close(self) -> None:
        if self._buf is not None:
            self._buf.release()
        if self._mmap is not None:
            self._mmap.close()
        self._buf = self._mmap = None

    def unlink(self) -> None:
        """Does nothing."""


# What the whole program lacks.


def _take_away_forks() -> None:
    for name in ("fork", "forkpty", "memfd_create"):
        delattr(os, name)
    contexts: Any = multiprocessing.context
    spawn = contexts._concrete_contexts["spawn"]
    contexts._concrete_contexts = {"spawn": spawn}
    if FORK_IS_SPAWN in os.environ:
        contexts._concrete_contexts["fork"] = multiprocessing.context.SpawnContext()
    methods = list(contexts._concrete_contexts)
    default = contexts._default_context
    default._default_context = default._actual_context = spawn
    type(default).get_all_start_methods = lambda self: methods
    multiprocessing.get_all_start_methods = default.get_all_start_methods


def _end_at_once() -> None:
    """Of a process: TerminateProcess, after which multiprocessing tells -SIGTERM."""
    popen: Any = multiprocessing.popen_spawn_posix.Popen
    poll: Callable[..., int | None] = popen.poll

    def terminate(self: Any) -> None:
        if self.returncode is None:
            self.ended_here = True
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def polled(self: Any, flag: int = os.WNOHANG) -> int | None:
        code = poll(self, flag)
        if code == -signal.SIGKILL and getattr(self, "ended_here", False):
            self.returncode = code = -signal.SIGTERM
        return code

    popen.terminate = popen.kill = terminate
    popen.poll = polled


def _log(line: str) -> None:
    if path := os.environ.get(LOG):
        with open(path, "a") as file:
            file.write(f"{os.getpid()} {line}\n")


# How Stoker's modules come to see it.


def _shown() -> dict[str, types.ModuleType]:
    import faulthandler
    import multiprocessing.reduction
    import select
    import socket
    import time

    paths: dict[str, Any] = {"Path": Path}
    places: dict[str, Any] = {"kill": _kill, "getppid": lambda: _first_parent}
    places |= {"open": _open, "close": _close, "name": "nt", "O_TEMPORARY": _O_TEMPORARY}
    places |= {name: _of_absent(getattr(os, name)) for name in ("listdir", "readlink", "scandir")}
    memory = Shown(shared_memory, SharedMemory=SharedMemory)
    reduction = Shown(multiprocessing.reduction)
    return {
        "os": Shown(os, **places),
        "sys": Shown(sys, platform="win32"),
        "pathlib": Shown(pathlib, **paths),
        "ctypes": Shown(ctypes, CDLL=_no_c_library),
        "mmap": Shown(mmap, mmap=_map),
        "multiprocessing": Shown(multiprocessing, shared_memory=memory, reduction=reduction),
        "multiprocessing.shared_memory": memory,
        "multiprocessing.reduction": reduction,
        **{m.__name__: Shown(m) for m in (signal, select, socket, time, faulthandler)},
    }


def _of_absent(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda path=".", *rest, **options: function(_absent(path), *rest, **options)


def _seen_by_stoker() -> dict[str, Any]:
    shown = _shown()

    def bring(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        top = name.partition(".")[0]
        if name == "msvcrt":
            return _HANDLES
        if top in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        found = builtins.__import__(name, globals, locals, fromlist, level)
        return shown.get(name if fromlist else top, found)

    def opened(path: Any, *rest: Any, **options: Any) -> Any:
        return open(_absent(path), *rest, **options)

    return {**vars(builtins), "__import__": bring, "open": opened}


class _Loader(importlib.machinery.SourceFileLoader):
    seen: dict[str, Any]

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = self.seen
        super().exec_module(module)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "stoker":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """In this process, before anything imports Stoker; its children do so themselves."""
    _take_away_forks()
    _end_at_once()
    _Loader.seen = _seen_by_stoker()
    sys.meta_path.insert(0, _Finder)
