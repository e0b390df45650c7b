"""What each process opens for itself: files, databases, connections.

Guarantees
    - Opened once in each process that asks for it, when it first does, whichever thread asks.
    - What the parent of a forked process has opened is neither used nor closed there: closing it
      may send something, or release a lock, for both. It is kept, since dropping it would.
    - Nothing that is open is pickled or copied: a copy, here or elsewhere, opens for itself.
    - What a worker has opened is closed when the worker ends, unless it is killed.

States of one, in one process::

    not opened --first asked for--> opening --> opened --close, end of the worker--> not opened
         ^                             |
         +----- the function raises ---+
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

_log = logging.getLogger("stoker")
_lock = threading.RLock()
_open_here: list[_Opened] = []
_of_another_process: list[_Opened] = []


def _new_lock() -> None:
    """In a forked copy another thread of the original may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


class _Opened:
    """What one process has opened, or is about to."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.opening = False
        self.is_open = False
        self.value: Any = None

    def get(self, name: str, open_function: Callable[[], Any]) -> Any:
        with self.lock:
            if self.is_open:
                return self.value
            if self.opening:
                raise RuntimeError(f"{name} is asked for by the function that opens it")
            self.opening = True
            try:
                value = open_function()
            except BaseException as error:
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(f"while {name} was opened in process {self.pid}")
                raise
            finally:
                self.opening = False
            self.value, self.is_open = value, True
            _open_here.append(self)
            return value

    def close(self) -> None:
        with self.lock:
            value, self.value, self.is_open = self.value, None, False
            with contextlib.suppress(ValueError):
                _open_here.remove(self)
        close = getattr(value, "close", None)
        if callable(close):
            close()


class _Place:
    """Where what is open is held: one `_Opened`, for the process that asks."""

    def __init__(self) -> None:
        self._here: _Opened | None = None

    def here(self) -> _Opened:
        here = self._here
        if here is None or here.pid != os.getpid():
            here = self._new()
        return here

    def _new(self) -> _Opened:
        with _lock:
            here = self._here
            if here is None or here.pid != os.getpid():
                if here is not None:
                    _of_another_process.append(here)
                here = self._here = _Opened()
            return here

    def close(self) -> None:
        here = self._here
        if here is not None and here.pid == os.getpid():
            here.close()

    def __del__(self) -> None:
        # Who holds what was open still can use it; but it is nobody's to close any more.
        here = self._here
        if here is not None:
            with contextlib.suppress(ValueError):
                _open_here.remove(here)
            if here.pid != os.getpid():
                _of_another_process.append(here)


class PerWorker(Generic[T]):
    """See `per_worker`."""

    # Apart from what is described: to those who compare, print or copy it, it is never open.
    __slots__ = ("__dict__", "__weakref__", "_of_instances", "_place")

    def __init__(self, open_function: Callable[..., T], *args: Any, **kwargs: Any) -> None:
        if not callable(open_function):
            raise TypeError(
                "stoker.per_worker takes a function that opens something, "
                f"not a {type(open_function).__name__}"
            )
        self.open_function, self.args, self.kwargs = open_function, args, kwargs
        self.name = getattr(open_function, "__name__", repr(open_function))
        self._begin()

    def _begin(self) -> None:
        self._place = _Place()
        self._of_instances: dict[int, tuple[weakref.ref[Any], _Place]] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"{owner.__qualname__}.{name}"

    def __call__(self) -> T:
        """What this process has opened; opens it the first time.

        Raises:
            Exception: What the function raises, each time that it is asked for.
        """
        opened = self._place.here()
        if opened.is_open:
            return opened.value  # type: ignore[no-any-return]
        return opened.get(self.name, self._open)  # type: ignore[no-any-return]

    def _open(self) -> T:
        return self.open_function(*self.args, **self.kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> PerWorker[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        opened = self._place_of(instance).here()
        if opened.is_open:
            return opened.value

        def open_of() -> T:
            return self.open_function(instance, *self.args, **self.kwargs)

        return opened.get(self.name, open_of)

    def _place_of(self, instance: object) -> _Place:
        """By number, with a reference that is weak: not every object has a hash."""
        number = id(instance)
        known = self._of_instances.get(number)
        if known is not None and known[0]() is instance:
            return known[1]
        with _lock:
            known = self._of_instances.get(number)
            if known is None or known[0]() is not instance:
                held = weakref.ref(self)

                def gone(reference: weakref.ref[Any]) -> None:
                    this = held()
                    if this is not None and this._of_instances.get(number, (0,))[0] is reference:
                        del this._of_instances[number]

                known = self._of_instances[number] = weakref.ref(instance, gone), _Place()
            return known[1]

    def close(self) -> None:
        """Closes what this process has opened, if it has ``close``; the next call opens again."""
        self._place.close()
        for _, place in list(self._of_instances.values()):
            place.close()

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"stoker.per_worker({self.name})"


def per_worker(open_function: Callable[..., T], *args: Any, **kwargs: Any) -> PerWorker[T]:
    """Something that each worker, and the main process, opens for itself when it first needs it.

    As an attribute of an object, which is called for what is open::

        self.file = stoker.per_worker(h5py.File, path, "r")
        ...
        return self.file()["images"][index]

    Or as one of a class; the function is given the object then::

        @stoker.per_worker
        def file(self):
            return h5py.File(self.path, "r")
        ...
        return self.file["images"][index]

    The same with any number of workers, none included, and however they are started. In a process
    that was forked, what its parent has opened is neither used nor closed. A worker that ends
    closes what it has opened, where that has ``close``; one that is killed does not.

    Args:
        open_function: Opens it. Pickled with the object where workers are new processes, so with
            `multiprocessing_context="spawn"` a function of a module.
        *args: What it is called with.
        **kwargs: The same.

    Returns:
        What to call, or to use as an attribute of a class. Threads may share it; they share what
        is open, too. ``close()`` closes what this process has opened.

    Raises:
        TypeError: `open_function` is none.
    """
    return PerWorker(open_function, *args, **kwargs)


def close_all() -> None:
    """Closes what this process has opened: for a worker that ends."""
    for opened in _open_here:
        if opened.pid != os.getpid():
            continue
        try:
            opened.close()
        except Exception as error:
            _log.warning("what stoker.per_worker had opened could not be closed: %r", error)
