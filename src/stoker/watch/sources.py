"""A loader of the user's program, run with another number of workers while the program goes on.

A source lives for one visit to a setting. Its workers are started for it and ended with it, so
that what one setting has under way never takes a CPU from the next.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import psutil
import torch.utils.data

from stoker.tuning.probing import Setting

_CONTEXT = "_DataLoader__multiprocessing_context"
_DEFAULT_PREFETCH = 2

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
        first_batch_s: From the start of the workers to the first batch; None before that.
        iterator: What is iterated.
    """

    def __init__(
        self, loader: Any, setting: Setting, own: bool, open_iterator: Open, timeout_s: float
    ) -> None:
        self.setting, self.own = setting, own
        self.served = self.served_before = 0
        self.first_batch_s: float | None = None
        self._open = open_iterator
        self._loader = loader if own else variant(loader, setting, timeout_s)
        self._began = perf_counter()
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
    def pids(self) -> list[int]:
        """Of its workers, in their order."""
        workers = getattr(self.iterator, "_workers", None) or []
        return [each.pid for each in workers if getattr(each, "pid", None)]

    @property
    def outstanding(self) -> int:
        """Batches that its workers may have under way or ready."""
        factor = getattr(self._loader, "prefetch_factor", None) or _DEFAULT_PREFETCH
        return self.workers * factor

    def next(self) -> Any:
        """The next batch; blocks.

        Raises:
            StopIteration: The data set is at its end; `restart` begins anew.
            Exception: What the user's code raised, or a worker that died.
        """
        batch = next(self.iterator)
        self.served += 1
        if self.first_batch_s is None:
            self.first_batch_s = perf_counter() - self._began
        return batch

    def restart(self) -> None:
        """Begins another epoch."""
        self.served_before = self.served
        self.iterator = self._iterate()

    def close(self) -> None:
        """Ends its workers; blocks until they have made what they are at."""
        iterator, self.iterator = self.iterator, iter(())
        if self.own:
            return  # as when the program leaves its loop: the iterator ends with its last user
        for ends in ("_shutdown_workers", "close"):
            end = getattr(iterator, ends, None)
            if end is not None:
                with contextlib.suppress(Exception):
                    end()
                break
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

    def _iterate(self) -> Any:
        if self.own:
            return self._open(self._loader)
        with warnings.catch_warnings():
            # More workers than CPUs are meant here, and the rest was said of the own setting.
            warnings.simplefilter("ignore")
            return self._open(self._loader)


def variant(loader: Any, setting: Setting, timeout_s: float) -> Any:
    """The same loader with another setting; the given one is left as it is."""
    if setting.engine == "stoker":
        return _stokers(loader, setting)
    from stoker.loader import DataLoader

    if isinstance(loader, DataLoader):
        return _stokers(loader, setting)
    values = dict(vars(loader))
    values.update(_iterator=None, num_workers=setting.workers)
    if setting.workers == 0:
        values.update({"prefetch_factor": None, "persistent_workers": False, "timeout": 0})
        values[_CONTEXT] = None
    else:
        prefetch = setting.prefetch_factor or values.get("prefetch_factor") or _DEFAULT_PREFETCH
        values.update(prefetch_factor=prefetch, persistent_workers=True)
        values["timeout"] = values.get("timeout") or timeout_s
    other = object.__new__(type(loader))
    vars(other).update(values)
    return other


def _stokers(loader: Any, setting: Setting) -> Any:
    """Stoker's loader with the same arguments."""
    from stoker.loader import DataLoader

    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    if iterable:
        order: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_size is None and loader.batch_sampler is not None:
        order = {"batch_sampler": loader.batch_sampler}
    else:
        order = {"batch_size": loader.batch_size, "sampler": loader.sampler}
        order["drop_last"] = loader.drop_last
    if setting.workers:
        order["prefetch_factor"] = setting.prefetch_factor or loader.prefetch_factor
        order["persistent_workers"] = True
        order["multiprocessing_context"] = loader.multiprocessing_context
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
