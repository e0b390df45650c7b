"""What holds while a worker process is started.

Guarantees
    - Ctrl-C is late, not lost: a new process gets it only when it ignores it, and this one when
      what was started is known to whoever ends it.
    - A daemonic process may have workers, and a worker may have processes: multiprocessing
      refuses both, since it does not end the children of a process that it kills. Ours end
      with their parent in any case, see `job`; those of a worker with it, see `stopping` and
      `let_have_children`.
    - Nothing is said of the fork: whether it is safe is told by `forking`, with what to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import process as multiprocessing_process
from multiprocessing import resource_tracker
from typing import Any

from stoker.host.interrupts import postponed
from stoker.host.quiet import quiet
from stoker.workers.etiquette import quiet_fork

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@contextlib.contextmanager
def starting(context: Any) -> Iterator[None]:
    """Around the start of a worker, in the main process; see the module."""
    with postponed(), _blocked(context), _no_daemon(), quiet_fork(), _no_python_warning():
        yield


@contextlib.contextmanager
def _blocked(context: Any) -> Iterator[None]:
    """Keeps Ctrl-C from a new process until it can ignore it.

    It begins with the signals blocked that this thread has blocked;
    `signals.leave_to_the_parent` ignores SIGINT before it unblocks it. This process gets it all
    the same, by another thread: of a library, for instance.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # multiprocessing's own helpers come first: one would keep the signal blocked for all it
    # ever starts, the other unblocks it when it has come up.
    if context.get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on every system

        _forget_another_process(forkserver._forkserver)
        forkserver.ensure_running()
    elif context.get_start_method() in ("spawn", "fresh"):
        resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _forget_another_process(server: Any) -> None:
    """A forked copy has its original's fork server in mind, and would fail to ask after it."""
    pid = server._forkserver_pid
    if pid is None:
        return
    import psutil  # Not for a worker, which begins with as little as it can.

    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(pid).ppid() == os.getpid():
            return
    os.close(server._forkserver_alive_fd)  # The server lives for as long as its owner's is open.
    server._forkserver_pid = server._forkserver_address = server._forkserver_alive_fd = None


def _config() -> dict[str, Any]:
    current: Any = multiprocessing_process.current_process()
    config: dict[str, Any] = current._config
    return config


@contextlib.contextmanager
def _no_daemon() -> Iterator[None]:
    config = _config()
    if not config.get("daemon"):
        yield
        return
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = True


@contextlib.contextmanager
def _no_python_warning() -> Iterator[None]:
    """Python 3.12 and later warn of any thread, numpy's own too, at every fork."""
    with quiet(DeprecationWarning, ".*multi-threaded, use of fork"):
        yield


def let_have_children() -> None:
    """For a worker: its data set may start processes, and they end with it.

    Those that it forks in its main thread are killed by the system with the worker, on Linux.
    """
    _config()["daemon"] = False
    if sys.platform != "linux":
        return
    by_main: list[bool] = []

    def before() -> None:
        by_main[:] = [threading.current_thread() is threading.main_thread()]

    def in_child() -> None:
        if by_main == [True]:
            end_with(os.getppid())

    os.register_at_fork(before=before, after_in_child=in_child)


def end_with(parent_pid: int) -> bool:
    """Has the system kill this process with its parent, on Linux; False when that is gone."""
    if sys.platform != "linux":
        return True
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent_pid
