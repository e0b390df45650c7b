"""Pickling for a process that has not run the program: what its main module defines goes along.

cloudpickle sends functions and classes by value where nobody could import them: those of the main
module, of a notebook, and those that are defined inside a function. What is put right here:

- The main module's names lie in the main module of the other process too, one class each. So a
  sample whose class is the program's own is sent back by name, and is of that class there.
- A process that multiprocessing has started knows its program as ``__mp_main__``.
- ``functools.lru_cache`` and ``cache``, ``cached_property`` (which holds a lock before Python
  3.12), classes with ``__slots__``, and the marks that dataclasses tells apart by identity.
- Variables that functions share (see `cells`), and hooks of the program's own classes, which have
  run already (see `hooks`).
- What multiprocessing and torch have ways for: tensors, queues, locks.
- The libraries' own random generators are not copied, see `stoker.order.references`.
- Files that are read as text, which go along as what is in them: how far one was read is a number
  of characters then, and not of bytes.

Only the globals that a function names go along, as they are at that moment.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import pickle
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from stoker.order.references import by_reference
from stoker.transport.parcel import Packing
from stoker.workers.cells import Cells
from stoker.workers.hooks import without_hooks
from stoker.workers.members import with_members
from stoker.workers.stock import bases_of

MAIN = ("__main__", "__mp_main__")
_PICKLING = threading.RLock()
_MARKS = ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")
_cloudpickle: Any = cloudpickle.cloudpickle


def dumps(thing: Any, packing: Packing | None = None) -> bytes:
    """Pickles it, protocol 5.

    Args:
        thing: What.
        packing: Takes large buffers out of it.

    Raises:
        Exception: What pickling raises.
    """
    out = io.BytesIO()
    with _PICKLING, _main_by_value():
        pickler = _Pickler(out, packing)
        pickler.dump(thing)
        pickler.dump(pickler.of_main())  # With the same memo: they are the same objects.
    return out.getvalue()


def load(file: Any, buffers: Any = None) -> Any:
    """What `dumps` was given; its main module's names are in this process's main module then."""
    unpickler = pickle.Unpickler(file, buffers=buffers)
    thing = unpickler.load()
    names = _namespace(MAIN[0])
    for name, value in unpickler.load().items():
        names.setdefault(name, value)
    return thing


def loads(data: bytes) -> Any:
    """As `load`, of bytes."""
    return load(io.BytesIO(data))


@contextmanager
def _main_by_value() -> Iterator[None]:
    """Cloudpickle knows the first name of `MAIN` by itself."""
    module = sys.modules.get(MAIN[1])
    if module is None or MAIN[1] in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


class _Namespace(dict[str, Any]):
    """Stands for the names of a main module, while its functions are pickled."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return _namespace, (self._module,)


def _namespace(module: str) -> dict[str, Any]:
    """The names of the main module; here both are one."""
    return vars(sys.modules[MAIN[0]])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: Any, packing: Packing | None) -> None:
        extra: dict[Any, Any] = getattr(ForkingPickler, "_extra_reducers", {})
        # Before pickle's own beginning, which asks for it once.
        self.dispatch_table = ChainMap(extra, cloudpickle.Pickler.dispatch_table)
        super().__init__(file, 5, packing.take_buffer if packing else None)
        self._reduce: Any = packing.reduce if packing else _left
        self._names: dict[str, None] = {}
        self._cells = Cells()
        for name in MAIN:
            if name in sys.modules:
                self.globals_ref[id(vars(sys.modules[name]))] = _Namespace(name)

    def of_main(self) -> dict[str, Any]:
        """What of the main module was pickled, by name: its classes and functions."""
        mains = [vars(sys.modules[name]) for name in MAIN if name in sys.modules]
        return {
            name: names[name] for names, name in itertools.product(mains, self._names)
            if name in names
        }  # fmt: skip

    def reducer_override(self, thing: Any) -> Any:
        reduced = self._reduce(thing)
        if reduced is not NotImplemented:
            return reduced
        reduced = by_reference(thing)
        if reduced is not NotImplemented:
            return reduced
        reduced = _reduced(thing)
        if reduced is not NotImplemented:
            return reduced
        if isinstance(thing, types.CellType):
            return self._cells.reduced(thing)
        reduced = super().reducer_override(thing)
        if reduced is NotImplemented or not isinstance(thing, (type, types.FunctionType)):
            return reduced
        if thing.__module__ in MAIN and "<locals>" not in thing.__qualname__:
            self._names[thing.__qualname__.partition(".")[0]] = None
        if isinstance(thing, types.FunctionType):
            return self._cells.closed(thing, reduced)
        return without_hooks(thing, with_members(thing, _as_it_was(thing, reduced)))


def _left(thing: Any) -> Any:
    return NotImplemented


def _reduced(thing: Any) -> Any:
    """How to make those again that cloudpickle does not know."""
    if isinstance(thing, functools._lru_cache_wrapper) and not _can_be_imported(thing):
        settings = thing.cache_parameters()
        return _cached, (thing.__wrapped__, settings["maxsize"], settings["typed"])
    if type(thing) is functools.cached_property:
        return _cached_property, (thing.func, thing.attrname)
    if _is_generic(thing) and not _can_be_imported(thing):
        return _dispatching, (dict(thing.registry),)
    if type(thing) is io.TextIOWrapper:
        return _text_reduced(thing)
    for name in _MARKS:
        if thing is getattr(dataclasses, name, _MARKS) and not isinstance(thing, type):
            return getattr, (dataclasses, name)
    return NotImplemented


def _text_reduced(file: io.TextIOWrapper) -> Any:
    """As cloudpickle does it, which refuses all others, but at the right character."""
    reduced = _cloudpickle._file_reduce(file)
    copy = reduced[1][0] if reduced[0] is _cloudpickle._file_reconstructor else None
    if isinstance(copy, io.StringIO):
        position = file.tell()
        rest = file.read()
        file.seek(position)
        copy.seek(len(copy.getvalue()) - len(rest))
    return reduced


def _is_generic(thing: Any) -> bool:
    """Whether `functools.singledispatch` has made it."""
    return isinstance(thing, types.FunctionType) and hasattr(thing, "_clear_cache")


def _dispatching(registry: dict[type, Any]) -> Any:
    made = functools.singledispatch(registry.pop(object))
    for kind, function in registry.items():
        made.register(kind, function)
    return made


def _can_be_imported(thing: Any) -> bool:
    found = sys.modules.get(thing.__module__) if thing.__module__ not in MAIN else None
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is thing


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    made: functools.cached_property[Any] = functools.cached_property(function)
    made.attrname = name
    return made


def _as_it_was(kind: type, reduced: Any) -> Any:
    """A class gets its slots, and the name it is found by, when it is made; cloudpickle would not.

    Where the bases that were written down come to others, as in a ``NamedTuple``, what those make
    of a class has its own slots; those of a generic class come to themselves.
    """
    if not isinstance(reduced, tuple) or reduced[0] is not _cloudpickle._make_skeleton_class:
        return reduced
    metaclass, name, bases, keywords, *rest = reduced[1]
    keywords, state = {**keywords, "__qualname__": kind.__qualname__}, dict(reduced[2][0])
    # Not by the state, in which cloudpickle leaves out what a base has too: an empty tuple.
    if types.resolve_bases(bases) == kind.__bases__ and "__slots__" in vars(kind):
        keywords["__slots__"] = vars(kind)["__slots__"]
        state.pop("__slots__", None)
    if bases == kind.__bases__:
        bases = bases_of(kind)
    given = (metaclass, name, bases, keywords, *rest)
    return reduced[0], given, (state, *reduced[2][1:]), *reduced[3:]
