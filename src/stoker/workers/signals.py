"""What signals do in a worker: the program's own handlers are for the main process alone.

A forked worker begins with the handlers of its parent. Run there, one that saves a checkpoint
or asks for another job would do so once a worker.

- Ctrl-C is ignored: the terminal sends SIGINT to the worker too, and the main process ends it.
- SIGTERM has its default, so that a worker can be ended.
- Another signal that the program handles (a SIGUSR1 that the scheduler sends to every process
  of a job, a SIGHUP) is ignored: the program means to go on, and needs its workers for that.
- Timers (SIGALRM ...) keep their handler. None is inherited by a fork, so one that goes off was
  set by the data set, which may rely on a handler that was installed when it was imported.
- Signals that nobody handles do what they did.
"""

from __future__ import annotations

import signal

_OF_TIMERS = ("SIGALRM", "SIGVTALRM", "SIGPROF")
_TO_DEFAULT = (
    *("SIGTERM", "SIGCHLD", "SIGTSTP", "SIGCONT", "SIGTTIN", "SIGTTOU"),
    *("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP", "SIGBREAK"),
)


def _known(names: tuple[str, ...]) -> set[int]:
    """Those of the signals that this system has."""
    return {getattr(signal, name) for name in names if hasattr(signal, name)}


def leave_to_the_parent() -> None:
    """For a worker that has just started, in its only thread; see the module."""
    signal.set_wakeup_fd(-1)  # Of the parent's event loop, which would be woken.
    timers, defaults = _known(_OF_TIMERS), _known(_TO_DEFAULT)
    for number in signal.valid_signals():
        if number not in timers and callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number in defaults else signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
