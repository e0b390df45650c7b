"""Ctrl-C while something is cleaned up, or started: it waits, so that nothing is lost.

An interrupt that is raised inside a finalizer, or at the interpreter's end, reaches nobody: Python
prints a traceback and drops it, and what was being cleaned up stays as it is. So does one inside
what Python calls at a fork, and that may be the release of a lock.

Guarantees: one that came meanwhile is raised again a moment later, in the main thread; while the
program ends it is dropped, since that is what it asked for. What takes longer than `PATIENCE_S`
can be interrupted. While something is cleaned up, a program's own handler is left alone.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import multiprocessing.util  # noqa: F401  its exit function has to be registered before ours
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 3.0
_AGAIN_S = 0.01


class _Exit:
    begun = False

    @classmethod
    def note(cls) -> None:
        cls.begun = True


weakref.finalize(_Exit, lambda: None)  # registers weakref's own exit function before ours
atexit.register(_Exit.note)  # the last that was registered is the first that is called


@contextlib.contextmanager
def held_back(*, ending: bool = False) -> Iterator[None]:
    """Hold back Ctrl-C; anywhere but in the main thread there is nothing to hold back.

    Args:
        ending: Whether the program is known to end, so that an interrupt is dropped.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, _holding(came, signal.default_int_handler))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came and not (ending or _Exit.begun):
            threading.Thread(target=_raise_again, daemon=True).start()


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Put Ctrl-C off to the end, where whoever handles it is called, the program's own too.

    For what is not a finalizer: it raises at its end what the handler raises. Python runs
    handlers in the main thread, whichever thread of the process the system has told.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, _holding(came, handler))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, None)


def _holding(came: list[int], handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    """A handler that takes note, and is patient no longer than `PATIENCE_S`."""
    until = time.monotonic() + PATIENCE_S

    def hold(number: int, frame: Any) -> None:
        if time.monotonic() >= until:
            handler(number, frame)
        else:
            came.append(number)

    return hold


def _raise_again() -> None:
    time.sleep(_AGAIN_S)  # the finalizer that held it back has returned by then
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # wakes it up, too, if it sleeps
    else:
        _thread.interrupt_main()


def the_program_ends() -> bool:
    """Whether the interpreter has begun to end: only daemonic threads still run beside it."""
    return _Exit.begun


def undisturbed(act: Callable[..., object], *given: Any) -> None:
    """Clean up with Ctrl-C held back; for a finalizer."""
    with held_back():
        act(*given)
