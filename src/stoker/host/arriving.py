"""What is to be done at the moment that a library is imported, and not before.

A worker that needs no torch does not import it. Should the data set's own code import it after
all, in the middle of a batch perhaps, then what a worker does to torch when it starts is done
before the ``import`` statement returns: nobody sees torch without it.

A finder that is asked before all others lets them find the module, and has its loader do what is
to be done right after the module was executed. It is gone when nothing is waited for any more.

A module whose import had already begun, in another thread or further up in this one, is past
every finder. `catch_up` does for it what is to be done, once its import has ended.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

_waiting: dict[str, list[Callable[[], None]]] = {}
_arrived: set[str] = set()


def is_here(name: str) -> bool:
    """Whether a module has been imported, all of it; does not block."""
    if name in _arrived:
        return True
    if not _is_complete(name):
        return False
    if name not in _waiting:
        _arrived.add(name)
    return True


def classes(*names: str) -> tuple[type, ...]:
    """Those classes whose package has been imported, for `isinstance`; ``numpy.ndarray`` say.

    Nothing is an instance of the others.
    """
    there = (name.split(".") for name in names if is_here(name.partition(".")[0]))
    return tuple(getattr(sys.modules[package], name) for package, name in there)


def when_imported(name: str, act: Callable[[], None], *, first: bool = False) -> None:
    """Does something as soon as a module is there: now, or in whichever thread imports it.

    Args:
        name: Of the module.
        act: What to do, once. What it raises is raised by the import.
        first: Whether before what others want to do then, or after it.
    """
    if is_here(name):
        act()
        return
    acts = _waiting.setdefault(name, [])
    acts.insert(0 if first else len(acts), act)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def catch_up() -> None:
    """Does what is to be done for modules that came unseen; see above. Nanoseconds without any."""
    for name in list(_waiting):
        if _is_complete(name):
            _came(name)


def _is_complete(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def _came(name: str) -> None:
    _arrived.add(name)
    acts = _waiting.pop(name, [])
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    for act in acts:
        act()


class _Finder:
    """The first in `sys.meta_path`; finds nothing itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                _watch(spec.loader, name)
                return spec
        return None


def _watch(loader: Any, name: str) -> None:
    """Has a loader tell, once; it is this module's alone, and else remains what it is."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: Any) -> None:
        if getattr(module, "__name__", name) != name:  # Of a zip file there is one loader.
            execute(module)
            return
        loader.exec_module = execute
        execute(module)
        _came(name)

    with contextlib.suppress(AttributeError):  # One that can't be told; `catch_up` will do.
        loader.exec_module = exec_module


_FINDER: Any = _Finder()
