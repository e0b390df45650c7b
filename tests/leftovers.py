"""What a test left behind: processes, threads, descriptors, shared memory.

A snapshot is taken before a test and compared with the state after it. A test that leaves
nothing pays two cheap snapshots; only when something is left is the garbage collected, and
then what ends by itself is waited for, up to a bound.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import psutil

from tests.starting.keeper import standing

PATIENCE_S = 2.0
_POLL_S = 0.01
_DESCRIPTORS = Path("/proc/self/fd")
_MAPS = Path("/proc/self/maps")
_SHARED = Path("/dev/shm")
_SHARED_PREFIXES = ("psm_", "torch_")
_MAPPED_MARK = "memfd:stoker"
_PID = os.getpid()


def adopt_orphans() -> None:
    """Makes processes whose parent dies children of this one, so that they are seen."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def sign_segments() -> None:
    """Gives the named segments of this process and its forks a name of their own.

    So that one nobody has mapped any more is known to be of this run and not of another.
    """
    if sys.platform == "linux":
        names: Any = shared_memory
        names._SHM_NAME_PREFIX = f"/{_signature()}"
        names._SHM_SAFE_NAME_LENGTH = 30


def _signature() -> str:
    return f"psm_{_PID:x}_"


@dataclass(frozen=True)
class Snapshot:
    """Everything of this process that a test could leave behind."""

    processes: frozenset[int]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    segments: frozenset[str]
    mappings: frozenset[str]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(
            processes=frozenset(_descendants()),
            threads=frozenset(_python_threads()),
            descriptors=frozenset(_descriptors()),
            segments=frozenset(_segments()),
            mappings=frozenset(_mappings()),
        )

    def left(self) -> list[str]:
        """What there is now and was not when the snapshot was taken, one line each."""
        now = Snapshot.take()
        processes = now.processes - self.processes - _standing_processes()
        descriptors = now.descriptors - self.descriptors
        standing = _standing_descriptors()
        return [
            *(text for pid in sorted(processes) if (text := _describe_process(pid))),
            *(f"thread {thread!r}" for thread in now.threads - self.threads),
            *(
                f"descriptor {number} -> {target}"
                for number, target in sorted(descriptors)
                if number not in standing
            ),
            *(
                f"shared segment /dev/shm/{name}"
                for name in sorted(now.segments - self.segments)
                if _is_ours(name, now.processes)
            ),
            *(f"mapping {inode} of {_MAPPED_MARK}" for inode in now.mappings - self.mappings),
        ]

    def left_for_good(self, patience_s: float = PATIENCE_S) -> list[str]:
        """As `left`, after garbage collection and after waiting for what is ending."""
        if not self.left():
            return []
        gc.collect()
        deadline = time.monotonic() + patience_s
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return left


def _descendants() -> Iterator[int]:
    me = os.getpid()
    if not Path(f"/proc/self/task/{me}/children").exists():
        yield from (child.pid for child in psutil.Process().children(recursive=True))
        return
    found = [me]
    while found:
        children = list(_children(found.pop()))
        yield from children
        found.extend(children)


def _children(pid: int) -> Iterator[int]:
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())
    except OSError:
        return  # It has ended.


def _python_threads() -> Iterator[threading.Thread]:
    # A dummy stands for a thread of a library's own pool that once called Python.
    return (t for t in threading.enumerate() if not isinstance(t, threading._DummyThread))


def _descriptors() -> Iterator[tuple[int, str]]:
    if not _DESCRIPTORS.is_dir():
        return
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # The one this listing was read through is gone.
            yield int(name), os.readlink(_DESCRIPTORS / name)


def _segments() -> Iterator[str]:
    if _SHARED.is_dir():
        yield from (n for n in os.listdir(_SHARED) if n.startswith(_SHARED_PREFIXES))


def _mappings() -> Iterator[str]:
    if _MAPS.exists():
        lines = _MAPS.read_text().splitlines()
        yield from (line.split()[4] for line in lines if _MAPPED_MARK in line)


def _standing(attributes: tuple[str, ...]) -> Iterator[Any]:
    """Attributes of the helper processes that Python keeps until it exits."""
    for module, name in (
        ("multiprocessing.resource_tracker", "_resource_tracker"),
        ("multiprocessing.forkserver", "_forkserver"),
        ("loky.backend.resource_tracker", "_resource_tracker"),
    ):
        keeper = getattr(sys.modules.get(module), name, None)
        yield from (getattr(keeper, attribute, None) for attribute in attributes)


def _standing_processes() -> set[int]:
    nurseries = {nursery.pid for nursery in standing()}
    return {pid for pid in _standing(("_pid", "_forkserver_pid")) if pid is not None} | nurseries


def _standing_descriptors() -> set[int]:
    attributes = ("_fd", "_forkserver_alive_fd", "_forkserver_authkey_fd")
    nurseries = {nursery.descriptor for nursery in standing()}
    return {number for number in _standing(attributes) if number is not None} | nurseries


def _describe_process(pid: int) -> str:
    """A line about a process; empty when it was an adopted one and has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            if _is_awaited(pid):
                return f"process {pid} (zombie)"
            os.waitpid(pid, os.WNOHANG)
            return ""
        return f"process {pid} ({process.status()}): {' '.join(process.cmdline())}"
    except (psutil.NoSuchProcess, ChildProcessError):
        return ""


def _is_awaited(pid: int) -> bool:
    """Whether somebody here has started the process and not yet waited for it to end."""
    started: Any = multiprocessing.process
    return any(child._popen.pid == pid for child in started._children)


def _is_ours(name: str, processes: frozenset[int]) -> bool:
    """Whether a segment of /dev/shm was left by this run, as far as that can be known."""
    if name.startswith(_signature()):
        return True
    if name.startswith("torch_") and name.split("_")[1] in map(str, (_PID, *processes)):
        return True
    path = str(_SHARED / name)
    return any(path in _maps_of(pid) for pid in (_PID, *processes))


def _maps_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""  # It has ended.
