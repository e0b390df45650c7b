"""Ctrl-C while something is cleaned up: it waits, so that the cleaning is done and nothing is lost.

An interrupt that is raised inside a finalizer, or at the interpreter's end, reaches nobody: Python
prints a traceback and drops it, and what was being cleaned up stays as it is.

Guarantees: one that came meanwhile is raised again a moment later, in the main thread; while the
program ends it is dropped, since that is what it asked for. Cleaning that takes longer than
`PATIENCE_S` can be interrupted. A program's own handler is left alone.
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
    until = time.monotonic() + PATIENCE_S

    def hold(number: int, frame: Any) -> None:
        if time.monotonic() >= until:
            signal.default_int_handler(number, frame)
        came.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came and not (ending or _Exit.begun):
            threading.Thread(target=_raise_again, daemon=True).start()


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
