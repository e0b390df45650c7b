"""A loader of the user's program, run with another number of workers while the program goes on.

A source lives for one visit to a setting. Its workers are started for it and ended with it, so
that what one setting has under way never takes a CPU from the next.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from multiprocessing.util import get_temp_dir
from time import monotonic, perf_counter
from typing import Any

import psutil
import torch.utils.data
from torch.utils.data._utils import signal_handling

from stoker.host.quiet import quiet
from stoker.tuning.probing import Setting
from stoker.watch.opened import Opened
from stoker.watch.unwatched import unwatched

_CONTEXT = "_DataLoader__multiprocessing_context"
_POLL_S = 0.25
PREFETCH = 2
"""PyTorch's own number of batches in advance for each worker."""
PATIENCE_S = 5.0
"""How long workers may take to end what they are at."""

Open = Callable[[Any], Iterator[Any]]


class Source:
    """Batches of one loader with one setting.

    Args:
        loader: The program's own loader.
        setting: How to run it.
        own: Whether the program's own loader is iterated as it is.
        open_iterator: PyTorch's ``iter(loader)``, unwatched.
        timeout_s: Seconds without a batch after which a trial has failed; 0 is for ever.

    Attributes:
        served: Batches handed out.
        served_before: Of these, what was handed out before the last restart.
        opening_s: What the last ``iter(loader)`` took.
        first_batch_s: From the start of the workers to the first batch; None before that.
        iterator: What is iterated.
        windows: Windows that were measured with it.
        began_s: When its last ``iter(loader)`` began.
        kept: Whether its workers were there before the running epoch.
    """

    def __init__(
        self, loader: Any, setting: Setting, own: bool, open_iterator: Open, timeout_s: float
    ) -> None:
        self.setting, self.own = setting, own
        self.served = self.served_before = self.windows = 0
        self.first_batch_s: float | None = None
        self.opening_s = self.began_s = 0.0
        self._open, self._timeout_s = open_iterator, timeout_s
        with unwatched():  # It is no loader of the program's, for others to wait for.
            self._loader = loader if own else _silently(lambda: variant(loader, setting, timeout_s))
        self.kept = self.stays and loader._iterator is not None
        if setting.workers and not own:
            # Forked workers share this folder and this process removes it; a worker that makes
            # one of its own and is killed leaves it behind.
            get_temp_dir()
        self._opened = None if own or setting.workers else Opened(loader.dataset)
        self.iterator: Any = self._iterate()

    @property
    def workers(self) -> int:
        """Worker processes that it was started with."""
        return self.setting.workers

    @property
    def loader(self) -> Any:
        """The loader that is iterated: the program's own, or a variant."""
        return self._loader

    @property
    def stays(self) -> bool:
        """Whether its workers are the program's own, which it keeps from epoch to epoch."""
        return self.own and bool(self._loader.persistent_workers) and self.workers > 0

    @property
    def pids(self) -> list[int]:
        """Of its workers, in their order."""
        workers = getattr(self.iterator, "_workers", None) or []
        return [each.pid for each in workers if getattr(each, "pid", None)]

    @property
    def outstanding(self) -> int:
        """Batches that its workers may have under way or ready."""
        factor = getattr(self._loader, "prefetch_factor", None) or PREFETCH
        return self.workers * factor

    def next(self) -> Any:
        """The next batch; blocks.

        Raises:
            StopIteration: The data set is at its end; `restart` begins anew.
            Exception: What the user's code raised, or a worker that died.
        """
        began = perf_counter()
        batch = self.take()
        if self.first_batch_s is None:
            self.first_batch_s = self.opening_s + perf_counter() - began
        self.served += 1
        return batch

    @property
    def take(self) -> Callable[[], Any]:
        """Gives a batch that is not counted in `served`; of this epoch, and no later one."""
        return self._take_opening if self._opened is not None else self.iterator.__next__

    def restart(self) -> None:
        """Begins another epoch."""
        self.served_before = self.served
        self.kept = self.workers > 0
        self.iterator = self._iterate()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Ends its workers; blocks until they have made what they are at.

        Args:
            patience_s: How long they may take.
        """
        iterator, self.iterator = self.iterator, iter(())
        if self._opened is not None:
            del iterator
            self._opened.forget()
            return
        if self.stays:
            return
        if not self.own:
            _end_workers(iterator, patience_s)
        for ends in ("_shutdown_workers", "close"):
            end = getattr(iterator, ends, None)
            if end is not None:
                with contextlib.suppress(Exception):
                    end()
                break
        if not self.own:
            vars(self._loader)["_iterator"] = None

    def memory_bytes(self) -> int | None:
        """Memory that its workers have for themselves; None where it can't be told."""
        total = 0
        for pid in self.pids:
            try:
                total += psutil.Process(pid).memory_full_info().uss
            except (psutil.Error, OSError, AttributeError):
                return None
        return total

    def _take_opening(self) -> Any:
        assert self._opened is not None
        self._opened.begin()
        try:
            return next(self.iterator)
        finally:
            self._opened.end()

    def _iterate(self) -> Any:
        self.began_s = perf_counter()
        try:
            if self.own:
                return self._open(self._loader)
            iterator = _silently(lambda: self._open(self._loader))
            _stand_alone(iterator, getattr(self._loader, "timeout", 0) or self._timeout_s)
            return iterator
        finally:
            self.opening_s = perf_counter() - self.began_s


def _silently(make: Callable[[], Any]) -> Any:
    """More workers than CPUs are meant here; the rest was said of the own setting."""
    with quiet(Warning):
        return make()


def _stand_alone(iterator: Any, timeout_s: float) -> None:
    """A worker that dies is found out when a batch is waited for, within `_POLL_S`.

    PyTorch's handler of SIGCHLD raises wherever the program is just then. The worker of a trial
    must not end the program's own step.
    """
    if getattr(iterator, "_worker_pids_set", False) and hasattr(iterator, "_try_get_data"):
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
        iterator._worker_pids_set = False
        iterator._get_data = functools.partial(_get_data, weakref.ref(iterator), timeout_s)


def _get_data(of: weakref.ref[Any], timeout_s: float) -> Any:
    """PyTorch's ``_get_data``, which sees at once when a worker has died."""
    iterator = of()
    deadline = monotonic() + timeout_s if timeout_s else float("inf")
    while iterator is not None:
        try:
            came, data = iterator._try_get_data(_POLL_S)
        except (EOFError, OSError) as error:
            _raise_of_the_dead(iterator._workers, error)
            raise
        if came:
            return data
        if monotonic() >= deadline:
            break
    raise RuntimeError(f"DataLoader timed out after {timeout_s:g} seconds")


def _raise_of_the_dead(workers: list[Any], error: Exception) -> None:
    """A killed worker's sockets are closed before it has ended: PyTorch then names these only."""
    wait([each.sentinel for each in workers], _POLL_S)
    dead = ", ".join(str(each.pid) for each in workers if not each.is_alive())
    if dead:
        raise RuntimeError(f"DataLoader worker (pid(s) {dead}) exited unexpectedly") from error


def _end_workers(iterator: Any, patience_s: float) -> None:
    """Has all workers of PyTorch's iterator end, in one time; then `_shutdown_workers` is quick."""
    workers = getattr(iterator, "_workers", None)
    done, queues = getattr(iterator, "_workers_done_event", None), []
    if not workers or done is None or getattr(iterator, "_shutdown", True):
        return
    if hasattr(iterator, "_pin_memory_thread"):
        if not patience_s:
            _kill(workers)
        return  # that thread has to end before the workers do
    with contextlib.suppress(Exception):
        done.set()
        queues = iterator._index_queues
        for each in queues:
            each.put(None)
        deadline = monotonic() + patience_s
        for worker in workers:
            worker.join(max(0.0, deadline - monotonic()))
    _kill(workers)


def _kill(workers: list[Any]) -> None:
    for worker in workers:
        with contextlib.suppress(Exception):
            if worker.is_alive():
                worker.kill()


def variant(loader: Any, setting: Setting, timeout_s: float) -> Any:
    """The same loader with another setting; the given one is left as it is."""
    if setting.engine == "stoker":
        return _stokers(loader, setting, timeout_s)
    from stoker.loader import DataLoader

    if isinstance(loader, DataLoader):
        return _stokers(loader, setting, timeout_s)
    values = dict(vars(loader))
    values.update(_iterator=None, num_workers=setting.workers)
    if setting.workers == 0:
        values.update({"prefetch_factor": None, "persistent_workers": False, "timeout": 0})
        values[_CONTEXT] = None
    else:
        prefetch = setting.prefetch_factor or values.get("prefetch_factor") or PREFETCH
        values.update(prefetch_factor=prefetch, persistent_workers=True)
        values["timeout"] = values.get("timeout") or timeout_s
    other = object.__new__(type(loader))
    vars(other).update(values)
    return other


def _stokers(loader: Any, setting: Setting, timeout_s: float) -> Any:
    """Stoker's loader with the same arguments."""
    from stoker.loader import DataLoader

    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    if iterable:
        order: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_sampler is not None:
        order = {"batch_sampler": loader.batch_sampler}
    else:
        order = {"batch_size": loader.batch_size, "sampler": loader.sampler}
        order["drop_last"] = loader.drop_last
    if setting.workers:
        order["prefetch_factor"] = setting.prefetch_factor or loader.prefetch_factor
        order["persistent_workers"] = True
        order["multiprocessing_context"] = loader.multiprocessing_context
        order["timeout"] = loader.timeout or timeout_s
    return DataLoader(
        loader.dataset,
        num_workers=setting.workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        in_order=loader.in_order,
        seed=getattr(loader, "seed", None),
        **order,
    )
