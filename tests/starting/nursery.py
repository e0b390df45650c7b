"""Runs in a process of its own: loads torch, then becomes one program after another.

Imports nothing of this package, and is no module that a program could find. A program is forked
twice, so that it loses its parent and becomes a child of the process that asked for it, which
adopts orphans. What it is then given is what Python itself gives a program when it starts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import Any

LOADED = (
    *(
        "numpy.random",
        "torch",
        "torch.utils.data",
        "torch.multiprocessing",
        "psutil",
        "threadpoolctl",
    ),
    *("multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker"),
    *("multiprocessing.shared_memory", "multiprocessing.popen_fork", "multiprocessing.synchronize"),
    *("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"),
)
MOST_FILES = 64
HIGH = 512
"""Descriptors are put from here on until those below are free."""
_HELD = {signal.SIGINT, signal.SIGTERM}


def serve(number: int) -> None:
    """Answers until nobody asks any more; returns where it has become a program and that ended."""
    owner = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    base = sys.path[1:]
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # A collection in a program would copy every page of it.
    asked = socket.socket(fileno=number)
    while os.getppid() == owner:
        if not select.select([asked], [], [], 1.0)[0]:
            continue
        order, files = _read(asked)
        if not order:
            break
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        if _is_child():
            _prepare(order, files, base, asked)
            _run(order)
            return
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        for file in files:
            os.close(file)
    os._exit(0)


def _read(asked: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next order and its descriptors; none where the other end is closed."""
    size = _bytes(asked, 4)
    if len(size) < 4:
        return {}, []
    first, files, _, _ = socket.recv_fds(asked, 1, MOST_FILES)
    text = first + _bytes(asked, int.from_bytes(size, "big") - 1)
    order: dict[str, Any] = json.loads(text)
    return order, list(files)


def _bytes(asked: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (came := asked.recv(size - len(data))):
        data += came
    return data


def _is_child() -> bool:
    """Whether this is the new process, whose parent is who asked for it."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0002)
    return True


def _prepare(
    order: dict[str, Any], files: list[int], base: list[str], asked: socket.socket
) -> None:
    """Makes everything as it is when Python begins to run a program, and says so."""
    answer: dict[str, Any] = {"pid": os.getpid()}
    try:
        if order["new_session"]:
            os.setsid()
        if os.getppid() != order["owner"]:
            raise RuntimeError("who asked does not adopt orphans")
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        asked = _lay_out(files, order["passed"], asked)
        _renew_streams()
        _renew_modules()
        _name(order, base)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN if order["ignored"] else signal.default_int_handler
        )
    except BaseException as error:
        asked.sendall(json.dumps({"error": repr(error)}).encode() + b"\n")
        os._exit(1)
    asked.sendall(json.dumps(answer).encode() + b"\n")
    asked.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def _lay_out(files: list[int], passed: list[int], asked: socket.socket) -> socket.socket:
    """Gives the descriptors their numbers; no others stay, but that of the socket for a moment."""
    import fcntl

    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH) for file in (*files, asked.fileno())]
    asked.detach()
    os.closerange(3, HIGH)
    for file, number in zip(high, (0, 1, 2, *passed), strict=False):
        os.dup2(file, number)
        os.close(file)
    return socket.socket(fileno=high[-1])


def _renew_streams() -> None:
    """The standard streams, and who has kept the old ones."""
    import logging

    old = {id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)}
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        before = getattr(sys, f"__{name}__")
        raw: Any = io.FileIO(number, mode, closefd=False)
        raw.name = f"<{name}>"
        unbuffered = isinstance(before.buffer, io.FileIO)
        kind: Any = io.BufferedReader if mode == "r" else io.BufferedWriter
        stream = io.TextIOWrapper(
            raw if unbuffered else kind(raw),
            before.encoding,
            before.errors,
            newline="\n",
            line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
            write_through=before.write_through,
        )
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for reference in logging._handlerList:  # type: ignore[attr-defined]
        handler = reference()
        if isinstance(handler, logging.StreamHandler) and id(handler.stream) in old:
            handler.stream = sys.stderr


def _renew_modules() -> None:
    """What modules have made up for a process when they were loaded."""
    from multiprocessing import process

    import numpy.random
    import torch

    torch.default_generator.seed()
    numpy.random.seed()
    random.seed()
    tempfile.tempdir = None
    state: Any = process
    state.ORIGINAL_DIR = os.getcwd()
    state._current_process._config["authkey"] = state.AuthenticationString(os.urandom(32))
    importlib.invalidate_caches()


def _name(order: dict[str, Any], base: list[str]) -> None:
    """Tells the program what it is: its words, where it finds modules, its ``__main__``."""
    kind, (program, *arguments) = order["kind"], order["words"]
    words = [program] if kind == "file" else [kind, program]
    sys.orig_argv[:] = [sys.executable, *words, *arguments]
    sys.argv[:] = [program if kind == "file" else kind, *arguments]
    first = {"-c": "", "-m": os.getcwd()}.get(kind)
    if first is None:
        first = os.path.dirname(os.path.realpath(program))
    named = os.environ.get("PYTHONPATH", "")
    places = [os.path.abspath(place) for place in named.split(os.pathsep)] if named else []
    sys.path[:] = [first, *dict.fromkeys([*places, *base])]
    names = vars(sys.modules["__main__"])
    builtins = names["__builtins__"]
    names.clear()
    names.update(__name__="__main__", __doc__=None, __package__=None, __loader__=None)
    names.update(__spec__=None, __annotations__={}, __builtins__=builtins)
    if kind == "file":
        file = os.path.abspath(program)
        loader = SourceFileLoader("__main__", file)
        names.update(__file__=file, __cached__=None, __loader__=loader)
    else:
        names["__loader__"] = BuiltinImporter


def _run(order: dict[str, Any]) -> None:
    """Runs the program. How it ends, Python itself makes of what is raised."""
    names = vars(sys.modules["__main__"])
    source, file = order["words"][0], "<string>"
    try:
        if order["kind"] == "-m":
            runpy._run_module_as_main(source)  # type: ignore[attr-defined]
            return
        if order["kind"] == "file":
            file = names["__file__"]
            source = Path(file).read_bytes()
        exec(compile(source, file, "exec", dont_inherit=True), names)
    except SystemExit:
        raise
    except BaseException:
        _leave_frames_out()
        raise


def _leave_frames_out() -> None:
    """Tracebacks begin with the program's own lines."""
    hook = sys.excepthook

    def show(kind: Any, error: Any, trace: Any) -> None:
        sys.excepthook = hook
        while trace is not None and trace.tb_frame.f_code is not _run.__code__:
            trace = trace.tb_next
        trace = trace and trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = show
