"""Workers that are new processes and not copies of this one.

- The program's main module is not run again, so it needs no ``if __name__ == "__main__"``; what
  it defines goes along, see `by_value`.
- The job is pickled once, see `sending`; and what the process is set to goes along, see `state`.
- On Linux a template is started, see `template`, and forks the workers; should it be killed, its
  workers end, and the next worker has a new one. Elsewhere, and when three templates were killed,
  each worker is a new interpreter by itself. None is waited for.

The hash seed, unless the program has set ``PYTHONHASHSEED``, can't be that of the main process. It
is the same in all fresh workers, so that batches do not depend on which of them makes one.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.context
import multiprocessing.spawn
import os
import pickle
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from multiprocessing import process as multiprocessing_process
from multiprocessing.connection import wait
from typing import Any

from stoker.workers import by_value
from stoker.workers.arrays import with_what_it_needs
from stoker.workers.death import await_end, has_ended
from stoker.workers.lean import lightened
from stoker.workers.sending import Sent, pack
from stoker.workers.state import State
from stoker.workers.template import PID, STATUS, Request, run_alone, serve

_DIFFERING = ("num_workers", "wanted")
_MOST_LOST = 3
_END_S = 2.0
LOST = "the process that it was forked from had ended"
LOST_TEMPLATE = (
    "the process that fresh workers are forked from has ended (exit code %s), and its workers with "
    "it; others take their place, and what they had begun is made again"
)
_log = logging.getLogger("stoker")
_HASH_SEED = "PYTHONHASHSEED"
# So that a template has one thread; workers have one in any case, see `etiquette`.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_spawn: Any = multiprocessing.spawn
_PREPARING = threading.RLock()


def has_templates() -> bool:
    """Whether workers can be forked from a template on this system."""
    needed = (
        (os, "fork"), (os, "wait4"), (os, "memfd_create"), (socket, "recv_fds"),
        (signal, "set_wakeup_fd"),
    )  # fmt: skip
    there = all(hasattr(*each) for each in needed)
    return sys.platform == "linux" and there and not getattr(sys, "frozen", False)


class FreshContext(multiprocessing.context.SpawnContext):
    """A multiprocessing context for the workers of one pool; see the module."""

    def __init__(self) -> None:
        super().__init__()
        self._modules: frozenset[str] = frozenset()
        self._sent: Sent | None = None
        self._template: Template | None = None
        self.lost = 0

    def get_start_method(self, allow_none: bool = False) -> str:
        """Not one of multiprocessing's own."""
        return "fresh"

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """A worker that is about to start; its arguments are those of `job.run`."""
        job, worker, connection, _, first, parent_pid, box = kwargs["args"]
        if self._sent is None:
            from stoker.workers.reach import Reach  # Loads torch, which a worker may not need.

            self._sent = pack(with_what_it_needs(lightened(job)))
            self._modules = Reach.of(job.dataset, job.collate_fn, job.worker_init_fn).own
        differing = {name: getattr(job, name) for name in _DIFFERING}
        request = Request(worker, first, differing, box.is_there)
        self._note_loss()
        if has_templates() and self.lost < _MOST_LOST:
            return FromTemplate(self, request, connection, box, parent_pid)
        return _SpawnedWithoutMain(
            target=run_alone,
            args=(self._sent, self._state(), request, (connection, box), parent_pid),
            daemon=True,
        )

    def _state(self) -> bytes:
        return by_value.dumps(State.here(self._modules))

    def template(self, parent_pid: int | None) -> Template:
        """The one that there is, or a new one."""
        self._note_loss()
        if self._template is None:
            assert self._sent is not None
            self._template = Template(self._sent, self._state(), parent_pid)
        return self._template

    def _note_loss(self) -> None:
        if self._template is not None and has_ended(self._template.process):
            _log.warning(LOST_TEMPLATE, self._template.exitcode)
            self._template.close()
            self._template = None
            self.lost += 1

    def await_loss(self) -> None:
        """The template has closed its pipe: it has ended in a moment."""
        if self._template is not None:
            self._template.end()

    def close(self) -> None:
        """Ends the template, and with it what is left of its workers."""
        if self._template is not None:
            self._template.close()
        if self._sent is not None:
            self._sent.close()


class Template:
    """The template of a pool, as the main process sees it; it is started at once.

    Args:
        sent: The job of its workers.
        state: What `template.serve` takes.
        parent_pid: The process to end with; None where only the pipe tells of its end.

    Attributes:
        process: Its process object.
    """

    def __init__(self, sent: Sent, state: bytes, parent_pid: int | None) -> None:
        self._owner_pid = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(None)
        theirs.settimeout(None)
        try:
            given = (theirs, sent, state, parent_pid)
            self.process: Any = _SpawnedWithoutMain(target=serve, args=given)
            self.process.start()
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        # It is ours to end: multiprocessing would wait for it at exit.
        children: Any = getattr(multiprocessing_process, "_children", set())
        children.discard(self.process)

    @property
    def exitcode(self) -> int | None:
        """As multiprocessing has it; None while it lives, or where somebody has taken it."""
        code: int | None = self.process.exitcode
        return code

    def ask(self, request: Request, descriptors: list[int]) -> None:
        """Asks for a worker."""
        socket.send_fds(self._control, [pickle.dumps(tuple(request), 5)], descriptors)

    def end(self) -> None:
        """Ends it; takes a few milliseconds. Does nothing in a forked copy."""
        if os.getpid() == self._owner_pid and not has_ended(self.process):
            self.process.kill()
            await_end(self.process, _END_S)

    def close(self) -> None:
        """Ends it, and gives back what there is for it."""
        self._control.close()
        self.end()


class FromTemplate:
    """A worker that a template has forked, or will; as multiprocessing's process objects are.

    Attributes:
        pid: Its process id; None as long as it has none.
        exitcode: As multiprocessing has it; None while it lives.
        sentinel: Can be read when it has ended, and once when it has been forked.
        was_lost: Whether it has ended because its template had.
    """

    daemon = True

    def __init__(
        self, context: FreshContext, request: Request, connection: Any, box: Any, parent_pid: Any
    ) -> None:
        self.name = f"FreshWorker-{request.worker}"
        self.sentinel = -1
        self.peak_bytes: int | None = None
        self.was_lost = False
        self._context, self._request = context, request
        self._ends = (connection, box)
        self._parent_pid = parent_pid
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def _popen(self) -> Any:
        return self

    def start(self) -> None:
        """Asks for it; it comes up by itself."""
        connection, box = self._ends
        self.sentinel, status = os.pipe()
        self._end = weakref.finalize(self, os.close, self.sentinel)
        self._end.atexit = False  # The pool is closed later than that.
        try:
            os.set_blocking(self.sentinel, False)
            descriptors = [connection.fileno(), status]
            descriptors += [box.descriptor] if box.is_there else []
            self._ask(descriptors)
        except BaseException:
            self._end()
            raise
        finally:
            os.close(status)

    def _ask(self, descriptors: list[int]) -> None:
        try:
            self._context.template(self._parent_pid).ask(self._request, descriptors)
        except (BrokenPipeError, ConnectionResetError):  # It is just ending.
            self._context.await_loss()
            self._context.template(self._parent_pid).ask(self._request, descriptors)

    def _hear(self) -> None:
        """Takes in what the template has told."""
        while self._code is None:
            try:
                data = os.read(self.sentinel, PID.size if self._pid is None else STATUS.size)
            except BlockingIOError:
                return
            if not data:
                self._code, self.was_lost = -signal.SIGKILL, True
            elif self._pid is None:
                (self._pid,) = PID.unpack(data)
            else:
                self._code, peak = STATUS.unpack(data)
                self.peak_bytes = peak if peak >= 0 else None

    @property
    def pid(self) -> int | None:
        self._hear()
        return self._pid or None

    @property
    def exitcode(self) -> int | None:
        self._hear()
        return self._code

    def is_alive(self) -> bool:
        """Whether it has not ended; one that was asked for is alive."""
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, or for so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_alive():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            wait([self.sentinel], left_s)

    def terminate(self) -> None:
        """Asks it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.is_alive():
            if not self._pid:
                self._code = -number  # The template finds its pipe closed, and does not fork it.
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


class _SpawnedWithoutMain(multiprocessing.context.SpawnProcess):
    """A new interpreter that is told nothing of the main module, and has the hash seed of all."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _without_main(), _environment():
            return multiprocessing.context.SpawnProcess._Popen(process_obj)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What a new interpreter has to find in it at once, in this process for as long as it takes."""
    wanted = dict.fromkeys(_ONE_THREAD, "1")
    if os.environ.get(_HASH_SEED, "random") == "random":
        wanted[_HASH_SEED] = "0"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Nobody is told of the main module by this thread."""
    with _PREPARING:
        here, original = threading.get_ident(), _spawn.get_preparation_data

        def prepared(name: str) -> dict[str, Any]:
            data: dict[str, Any] = original(name)
            if threading.get_ident() == here:
                data.pop("init_main_from_name", None)
                data.pop("init_main_from_path", None)
            return data

        _spawn.get_preparation_data = prepared
        try:
            yield
        finally:
            _spawn.get_preparation_data = original
