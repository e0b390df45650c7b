"""Whether a copy of this process could work, and what is started instead where it could not.

A forked child has its parent's memory and, of its threads, only the one that forked. A library
that keeps threads of its own waits in the child for threads that do not exist.

What is done for each
    - OpenMP, OpenBLAS, OpenCV, numexpr: workers have one thread a library, which is what works
      in a copy, see `etiquette`. Nothing is said of them.
    - polars, JAX, gRPC, fsspec's asynchronous file systems, an accelerator that torch has
      initialised: each only where its threads, or contexts, are there, and only where the
      workers would use it, see `reach`. Then workers start fresh (see `fresh`), if the user
      has not chosen how they start and what they need can be sent. Else, if the loader chooses
      how many there are, there are none; and if the user does, they are forked, and the logger
      "stoker" warns. What can't be sent is known when it is tried, see `forked_all_the_same`.
    - Python threads of the program: any may hold a lock while the process forks. Mostly it
      holds none that workers need, and fresh workers do not have what the program has done to
      its modules. So one warning names them. Threads of libraries that show or record how
      training goes are left out: workers do not use these.

Looking takes some 20 us where no such library is loaded: it asks `sys.modules` and names of
threads, and never the libraries.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.multiprocessing

from stoker.errors import ForkUnsafe, NotPicklable, ProgramUnguarded, WorkerNotStarted
from stoker.host import rerun
from stoker.workers import advice
from stoker.workers.fresh import FreshContext
from stoker.workers.reach import ACCELERATOR, BYSTANDERS, Reach

_log = logging.getLogger("stoker")
_NOT_SET_AT_IMPORT = multiprocessing.get_start_method(allow_none=True) is None
_TASKS = Path("/proc/self/task")


class Danger(NamedTuple):
    """Something in this process that a copy of it can't use.

    Attributes:
        what: In words, with what makes it dangerous.
        packages: Who reaches one of these uses it.
    """

    what: str
    packages: frozenset[str]


def dangers() -> list[Danger]:
    """The libraries that are loaded, and in a state that a fork breaks."""
    found = []
    for package, in_use, what, packages in _LIBRARIES:
        if package in sys.modules and in_use():
            found.append(Danger(what, frozenset(packages)))
    return found


def _threads_called(*beginnings: str) -> bool:
    """Whether a thread of a library runs that is called so; where nobody can tell, it may."""
    try:
        names = [(task / "comm").read_text() for task in _TASKS.iterdir()]
    except OSError:
        return True
    return any(name.startswith(beginnings) for name in names)


def _jax_has_backends() -> bool:
    return bool(getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", True))


def _fsspec_has_a_thread() -> bool:
    return getattr(sys.modules.get("fsspec.asyn"), "iothread", [None])[0] is not None


def _grpc_is_in_use() -> bool:
    prepared = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "").lower() in ("1", "true")
    return not prepared and _threads_called("grpc_", "event_engine")


def _accelerator_is_in_use() -> bool:
    return any(
        module is not None and module.is_initialized()
        for module in (sys.modules.get("torch.cuda"), sys.modules.get("torch.xpu"))
    )


_LIBRARIES: list[tuple[str, Callable[[], bool], str, tuple[str, ...]]] = [
    (
        "polars",
        lambda: _threads_called("polars-"),
        "polars, whose threads are running",
        ("polars",),
    ),
    ("jax", _jax_has_backends, "JAX, whose threads are running", ("jax", "jaxlib", "flax")),
    ("grpc", _grpc_is_in_use, "gRPC, whose threads are running", ("grpc", "google")),
    (
        "fsspec.asyn",
        _fsspec_has_a_thread,
        "fsspec's asynchronous file systems, whose thread is running",
        ("fsspec", "s3fs", "gcsfs", "adlfs"),
    ),
    (
        "torch",
        _accelerator_is_in_use,
        "the accelerator, which this process has initialised",
        (ACCELERATOR,),
    ),
]


def foreign_threads() -> list[str]:
    """The names of the Python threads there are besides this one, our own and bystanders'."""
    here = threading.current_thread()
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not here
        and not isinstance(thread, threading._DummyThread)
        and not _homes(thread) & BYSTANDERS
    ]


def _homes(thread: threading.Thread) -> set[str]:
    """The packages that a thread's class, or what it runs, come from."""
    target = getattr(thread, "_target", None)
    places = (type(thread).__module__, getattr(target, "__module__", None))
    bound = getattr(target, "__self__", None)
    homes = {str(place).partition(".")[0] for place in (*places, type(bound).__module__)}
    return homes


def safe_context(context: Any, job: Any, *, needed: bool) -> Any:
    """How workers are to be started now.

    Args:
        context: How they would be: a multiprocessing context or torch.multiprocessing.
        job: What they would be sent.
        needed: Whether the user has asked for workers; else there need be none.

    Returns:
        `context`, or one whose workers are no copies of this process.

    Raises:
        ForkUnsafe: Workers would not work, and are not needed.
        ProgramUnguarded: Each would run the whole program again.
        WorkerNotStarted: Each would import the program, which is in no file.
    """
    method = context.get_start_method()
    if method != "fork":
        if not isinstance(context, FreshContext):
            _see_to_the_main_module(method)
        return context
    if found := dangers():
        reach = Reach.of(job.dataset, job.collate_fn, job.worker_init_fn)
        used = [danger.what for danger in found if reach.packages & danger.packages]
        if used:
            return _instead_of_a_fork(context, " and ".join(used), needed=needed)
    if threads := foreign_threads():
        _tell_of_threads(threads)
    return context


def _see_to_the_main_module(method: str) -> None:
    """Whether a process that imports it comes up, and without running the program again."""
    path = advice.main_that_is_no_file()
    if path is not None:
        raise WorkerNotStarted(
            f"no worker was started by {method}: each would import the program's main module, "
            f"and there is no file {path}",
            doing=f"starting workers by {method}",
            likely="the program is read from standard input, or its file was removed",
            change=f"{advice.FRESH}, whose workers do not import it; or a file for the program",
        )
    if rerun.would_run_again():
        raise _unguarded(method)


def _unguarded(method: str) -> ProgramUnguarded:
    return ProgramUnguarded(
        what=f"no worker was started by {method}: {rerun.WHY}",
        doing=f"starting workers by {method}",
        likely="processes that are started afresh import the program's main module",
        change=f"{advice.FRESH}, whose workers do not import it; or {rerun.CHANGE}",
    )


class InsteadOfAFork(FreshContext):
    """Workers start fresh, and nobody has asked for that.

    Args:
        context: How they would have been started: by fork.
        what: What a copy of this process can't use, in words.
    """

    def __init__(self, context: Any, what: str) -> None:
        super().__init__()
        self.context = context
        self.what = what

    def tell(self) -> None:
        """Workers were started so."""
        tell_once(
            logging.INFO,
            f"workers start as new processes and not as copies: they use {self.what}",
        )


def _instead_of_a_fork(context: Any, what: str, *, needed: bool) -> Any:
    if not _was_chosen(context):
        return InsteadOfAFork(context, what)
    error = _may_hang(
        what,
        change='worker_method="fresh" (not done by itself: the start method was chosen), or use '
        "it in workers only",
    )
    if not needed:
        raise error
    tell_once(logging.WARNING, str(error))
    return context


def _may_hang(what: str, why: str = "", *, change: str) -> ForkUnsafe:
    return ForkUnsafe(
        f"Workers that are forked copies of this process may hang where they use {what}{why}",
        doing="starting workers by fork",
        likely="the program has used it before the loader, and the data set uses it too",
        change=change,
    )


def forked_all_the_same(context: Any, error: Exception) -> Any:
    """How workers are started that can't start fresh; tells of it.

    Args:
        context: How they could not be started.
        error: Why not.

    Returns:
        The context that forks them; None where this is no reason to, or another context was
        asked for.
    """
    unsent = error if isinstance(error, NotPicklable) else error.__cause__
    if not isinstance(context, InsteadOfAFork) or not isinstance(unsent, NotPicklable):
        return None
    told = unsent.what[:1].lower() + unsent.what[1:]
    change = unsent.change.removesuffix(advice.or_forked()) + "; or use it in workers only"
    text = _may_hang(context.what, f"; they can't start as new processes: {told}", change=change)
    tell_once(logging.WARNING, str(text), of=context.what)
    return context.context


def _was_chosen(context: Any) -> bool:
    """Whether somebody asked for fork, as far as that can be told."""
    by_default = multiprocessing.get_all_start_methods()[0] == "fork"
    return context is not torch.multiprocessing or not (by_default and _NOT_SET_AT_IMPORT)


def _tell_of_threads(names: list[str]) -> None:
    here = threading.current_thread() is threading.main_thread()
    change = "Start the threads after iter(loader), or pass" if here else "Pass"
    shown = ", ".join(repr(name) for name in sorted(names)[:5]) + (", ..." if names[5:] else "")
    tell_once(
        logging.WARNING,
        f"workers are forked while other threads run ({shown}): a lock that one of them holds at "
        "that moment stays locked in the worker, which hangs if it needs it. "
        f'{change} worker_method="fresh"',
        of="threads",
    )


_told: set[str] = set()


def tell_once(level: int, text: str, of: str | None = None) -> None:
    """Tells it, if nothing was told of this, or the same, before."""
    if (of or text) not in _told:
        _told.add(of or text)
        _log.log(level, "%s", text)
