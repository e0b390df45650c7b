"""Signals that reach the command while a program of the user's runs.

The program is in the command's process group, so what the terminal sends (Ctrl-C, Ctrl-Z,
a hang-up, a new size) reaches both, and the command only has to stay alive. What was sent to
the command alone it passes on.

`Blocked` (Linux, BSD): the signals are blocked before the program starts, so none is lost in
between, and are waited for one by one; the kernel says of each whether it came from the
terminal. A thread's signal to the waiting one ends each wait in time: a timer's would go to
any thread that does not block it. Assumes that the command has no use for SIGURG.
`Handled` (macOS, Windows): handlers; what the terminal may have sent is not passed on.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_FROM_THE_KEYBOARD = ("SIGINT", "SIGQUIT")
WAKE_S = 0.2
_POLL_S = 0.02


def _numbers(names: tuple[str, ...]) -> frozenset[signal.Signals]:
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


class Blocked:
    """Signals are waited for. A context manager, for the main thread."""

    def __init__(self) -> None:
        self._own = {signal.SIGCHLD, signal.SIGURG}
        self._wanted = self._own | _numbers(_PASSED_ON)
        self._before: Any = None
        self._waker: threading.Thread | None = None
        self._over = threading.Event()

    def __enter__(self) -> Blocked:
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the exit code is lost
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._wanted)
        return self

    @property
    def in_the_child(self) -> Callable[[], object] | None:
        """What the program's process has to do before the program begins."""
        before = self._before
        return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def next(self) -> int | None:
        """A signal to pass on; None after `WAKE_S`, or when the program may have ended."""
        if self._waker is None:  # only now: a process with threads had better not fork
            self._waker = threading.Thread(
                target=self._wake, args=(threading.get_ident(),), name="stoker-waker", daemon=True
            )
            self._waker.start()
        # Not sigtimedwait: stopped and continued, CPython's tells of a signal that wasn't.
        found = signal.sigwaitinfo(self._wanted)
        if found.si_signo in self._own or found.si_code > 0:
            return None
        return int(found.si_signo)

    def _wake(self, waiting: int) -> None:
        while not self._over.wait(WAKE_S):
            signal.pthread_kill(waiting, signal.SIGURG)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._waker is not None:
            self._waker.join()
        while signal.sigtimedwait(self._own, 0) is not None:
            pass
        _drop_keys()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class Handled:
    """Signals are handled. A context manager, for the main thread."""

    def __init__(self) -> None:
        self._came: deque[int] = deque()
        self._before: dict[int, Any] = {}
        self._keys = _numbers(_FROM_THE_KEYBOARD) if _at_a_terminal() else frozenset()

    def __enter__(self) -> Handled:
        for number in _numbers(_PASSED_ON):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def _take(self, number: int, _frame: object) -> None:
        if number not in self._keys:
            self._came.append(number)

    @property
    def in_the_child(self) -> Callable[[], object] | None:
        """Nothing: a handler isn't inherited."""
        return None

    def next(self) -> int | None:
        """A signal to pass on; None after a short while."""
        if not self._came:
            time.sleep(_POLL_S)
        return self._came.popleft() if self._came else None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


Watched = Blocked | Handled


def watched() -> Watched:
    """The best this system has."""
    return Blocked() if hasattr(signal, "sigwaitinfo") else Handled()


def _at_a_terminal() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _drop_keys() -> None:
    """What was pressed at the keyboard before the program ended was meant for it."""
    for number in _numbers(_FROM_THE_KEYBOARD):
        before = signal.getsignal(number)
        if before is not None:  # ignoring a signal takes away one that waits
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, before)


def ignore_ctrl_c() -> None:
    """From now on for good: the program has ended, and only its summary is left to be told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Signals that would end this process at once raise instead, so that it cleans up."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, stop)
        for number in _numbers(("SIGTERM", "SIGHUP"))
        if signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by(number: int) -> None:
    """End this process by a signal, as if nobody had handled it; returns if that can't be."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's own core is the one
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)  # SIGKILL has no handler to take away
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.raise_signal(number)
