"""Workers that are new processes and not copies, for a program that was written for copies.

Like multiprocessing's spawn, but for three things:

- The program's main module is not run again, so it needs no ``if __name__ == "__main__"``.
- What workers are sent must not come from that module, and be small: see `why_not_fresh`.
- What the program has set in its own modules is there, as in a copy: numbers, strings, plain
  containers and dictionaries of settings. What can't be kept: objects of other kinds that it
  has put into a module, and changes to installed packages.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing.context
import multiprocessing.spawn
import sys
import threading
from argparse import Namespace
from collections.abc import Collection, Iterator
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from stoker.workers.reach import MAIN

_LIMIT_BYTES = 64 * 2**20
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (tuple, list, set, frozenset)
_SETTINGS_LIMIT = 10_000
_spawn: Any = multiprocessing.spawn
_PREPARING = threading.Lock()


def why_not_fresh(job: Any) -> str:
    """Why workers can't be new processes; "" where they can. Pickles what they are sent."""
    place: Any = multiprocessing.context
    place.set_spawning_popen(_Nobody())
    try:
        _Probe(_Counter(), 5).dump(job)
    except _NotSuited as error:
        return str(error)
    except Exception as error:
        return f"what workers need does not pickle: {error}"
    finally:
        place.set_spawning_popen(None)
    return ""


class _NotSuited(Exception):
    pass


class _Nobody:
    """Stands for a process that is about to start, for what pickles only then."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor


class _Counter:
    """A file that keeps nothing, and ends what is too large."""

    def __init__(self) -> None:
        self._size_bytes = 0

    def write(self, data: Any) -> int:
        self._size_bytes += memoryview(data).nbytes
        if self._size_bytes > _LIMIT_BYTES:
            raise _NotSuited(f"each would get a copy of more than {_LIMIT_BYTES >> 20} MiB")
        return memoryview(data).nbytes


class _Probe(ForkingPickler):
    """Leaves tensors out, which are shared and not copied; refuses what main defines."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, (type, FunctionType)) and thing.__module__ in MAIN:
            raise _NotSuited(
                f"{thing.__qualname__} is defined in the main program, not in a module"
            )
        if isinstance(thing, torch.Tensor):
            return int, ()
        return NotImplemented


class Settings:
    """What is set in some modules, and in their classes; unpickling it puts it in place there.

    Args:
        modules: Their names.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self._left = _SETTINGS_LIMIT
        self._of: dict[tuple[str, str], dict[str, Any]] = {}
        for name in sorted(modules & sys.modules.keys()):
            self._of[name, ""] = self._settings(sys.modules[name])
            for key, value in list(vars(sys.modules[name]).items()):
                if isinstance(value, type) and value.__module__ == name:
                    self._of[name, key] = self._settings(value)

    def _settings(self, place: Any) -> dict[str, Any]:
        held = list(vars(place).items())
        return {k: v for k, v in held if not k.startswith("__") and self._is_setting(v)}

    def _is_setting(self, value: Any) -> bool:
        self._left -= 1
        if self._left < 0 or isinstance(value, _PLAIN):
            return self._left >= 0
        if isinstance(value, (Namespace, SimpleNamespace)):
            return self._is_setting(vars(value))
        if isinstance(value, dict):
            return all(map(self._is_setting, value)) and all(map(self._is_setting, value.values()))
        return type(value) in _CONTAINERS and all(map(self._is_setting, value))

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_in_place, (self._of,)


def _put_in_place(settings: dict[tuple[str, str], dict[str, Any]]) -> None:
    for (module, name), values in settings.items():
        place: Any = importlib.import_module(module)
        place = vars(place).get(name, place) if name else place
        for key, value in values.items():
            now = getattr(place, key, place)
            if type(now) is not type(value) or now != value:
                with contextlib.suppress(AttributeError, TypeError):  # A class that is frozen.
                    setattr(place, key, value)


class _Process(multiprocessing.context.SpawnProcess):
    """Has the settings in place before what it runs is unpickled."""

    def __init__(self, modules: Collection[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        it: Any = self
        it._args = (Settings(modules), *it._args)

    def run(self) -> None:
        it: Any = self
        it._target(*it._args[1:], **it._kwargs)

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _without_main():
            return multiprocessing.context.SpawnProcess._Popen(process_obj)


class FreshContext(multiprocessing.context.SpawnContext):
    """A multiprocessing context; see the module.

    Args:
        modules: The names of the program's own modules that workers need.
    """

    def __init__(self, modules: frozenset[str]) -> None:
        super().__init__()
        self._modules = modules

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """A process that is about to start."""
        return _Process(self._modules, *args, **kwargs)


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
