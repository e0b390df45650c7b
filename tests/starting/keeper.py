"""The nurseries of this process: each has torch, and the state in which torch was loaded."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from tests.starting.order import Order

PATIENCE_S = 100.0
MOST = 2
_NURSERY = Path(__file__).with_name("nursery.py")
_START = (
    "import sys; from importlib import util; "
    "spec = util.spec_from_file_location('_nursery', sys.argv[1]); "
    "module = util.module_from_spec(spec); spec.loader.exec_module(module); "
    "module.serve(int(sys.argv[2]))"
)
# What Python, torch and their libraries read once, when they are loaded.
_READ_ONCE = (
    *("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC", "GLIBC", "COVERAGE"),
    *("OMP", "GOMP", "KMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR", "NPY", "NUMPY", "VECLIB"),
    *("TORCH", "PYTORCH", "ATEN", "CUDA", "NVIDIA", "NCCL", "HIP", "ROC", "C10"),
)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]

State = tuple[object, ...]
_nurseries: dict[State, Nursery] = {}


class Nursery:
    """A process that has imported torch once and forks itself.

    Args:
        environment: What its programs are started with; of it is used what is read once.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        here, there = socket.socketpair()
        self._socket = here
        self._socket.settimeout(PATIENCE_S)
        kept = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(_NURSERY), str(there.fileno())],
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )

    @property
    def pid(self) -> int:
        """The process's number; it stands as long as the tests run."""
        return self._process.pid

    @property
    def descriptor(self) -> int:
        """By which it is spoken to."""
        return self._socket.fileno()

    def start(self, order: Order, files: list[int]) -> int:
        """Starts a program; it has these as its standard and its further descriptors.

        Returns:
            The number of its process, a child of this one; signals find it ready.
        """
        text = json.dumps(asdict(order)).encode()
        self._socket.sendall(len(text).to_bytes(4, "big"))
        socket.send_fds(self._socket, [text[:1]], files)
        self._socket.sendall(text[1:])
        answer = json.loads(self._line())
        if "error" in answer:
            raise RuntimeError(f"no program was started: {answer['error']}")
        return int(answer["pid"])

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            came = self._socket.recv(4096)
            if not came:
                raise RuntimeError(f"the nursery ended with {self._process.wait()}")
            line += came
        return line

    def end(self) -> None:
        # To close it alone would not do: a worker that a failed test keeps has a copy of it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.wait()


def nursery_for(environment: Mapping[str, str]) -> Nursery:
    """One whose state is that of a program which this process would start now."""
    state = _state(environment)
    nursery = _nurseries.pop(state, None)
    if nursery is None:
        while len(_nurseries) >= MOST:
            _nurseries.pop(next(iter(_nurseries))).end()
        nursery = Nursery(environment)
    _nurseries[state] = nursery  # The one that was used last is the last to go.
    return nursery


def standing() -> Iterable[Nursery]:
    """Those that there are."""
    return _nurseries.values()


def end_all() -> None:
    """Ends them; a program that still runs is none of theirs."""
    while _nurseries:
        with contextlib.suppress(OSError):
            _nurseries.popitem()[1].end()


def _state(environment: Mapping[str, str]) -> State:
    """What can't be given to a process that runs already."""
    read = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(_READ_ONCE) and name != "PYTHONPATH"
    )
    limits = tuple(resource.getrlimit(limit) for limit in _LIMITS)
    cpus = frozenset(os.sched_getaffinity(0))
    return (*read, limits, cpus, os.nice(0), os.getpgrp())
