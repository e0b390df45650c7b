"""What a data set holds: its containers, and about how many Python objects each of them reaches.

Python objects are what a forked worker gets copies of: reading one writes its reference count,
and with that its page of memory. Arrays, tensors and `stoker.packed` are read without that.

A look, bounded in time and in what is seen, at attributes, closures, caches of functions and
the module's own globals. It runs none of their code. Of a container with many elements only some
are looked at, and the rest is taken to be like them.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker.workers.reach import is_installed

_THINGS, _NAMED_ITEMS, _SAMPLED, _DEPTH, _BRANCHES = 400, 8, 48, 6, 24
_MOST_S = 0.01
_LISTS = (list, tuple, deque)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_SETS = (set, frozenset)
_CONTAINERS = (*_LISTS, *_DICTS, *_SETS)
_LEAVES = (
    type(None), bool, int, float, complex, str, bytes, bytearray, range, type, ModuleType, CodeType,
    BuiltinFunctionType, GeneratorType, torch.dtype, torch.device, torch.Generator, np.dtype,
)  # fmt: skip
_Lru = functools._lru_cache_wrapper


@dataclass(frozen=True)
class Holding:
    """One container, and what it reaches.

    Attributes:
        path: How to get to it, as ``dataset.samples``.
        kind: The name of its type.
        of: The name of the type of most of its elements; empty where it has none.
        count: Its elements.
        objects: Python objects that it reaches, about.
        object_bytes: Their size, about.
        array_bytes: Of arrays and tensors that they hold, about.
    """

    path: str
    kind: str
    of: str
    count: int
    objects: int
    object_bytes: int
    array_bytes: int

    @property
    def all_bytes(self) -> int:
        """All that it holds."""
        return self.object_bytes + self.array_bytes


class Census(NamedTuple):
    """What was found.

    Attributes:
        holdings: The containers, by their path.
        is_whole: Whether all was seen.
    """

    holdings: dict[str, Holding]
    is_whole: bool


def census(roots: dict[str, Any]) -> Census:
    """The containers that some things hold; takes 10 ms of CPU time at most.

    Args:
        roots: Things by name. What is changed meanwhile may end it early.
    """
    found: dict[str, Holding] = {}
    deadline = time.thread_time() + _MOST_S
    try:
        for path, thing in _held(roots):
            if _is_container(thing):
                found.setdefault(path, _holding(path, thing))
            if time.thread_time() > deadline:
                return Census(found, False)
    except Exception:  # Another thread has changed it, or it does not let itself be looked at.
        return Census(found, False)
    return Census(found, True)


def _held(roots: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that is held, with its path: the nearest first."""
    waiting, seen = deque(roots.items()), set[int]()
    while waiting and len(seen) < _THINGS:
        path, thing = waiting.popleft()
        if isinstance(thing, _LEAVES) or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield path, thing
        waiting.extend(_parts(path, thing))


def _parts(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if _is_container(thing):
        yield from _few_elements(path, thing)
    elif isinstance(thing, functools.partial):
        yield f"{path}.func", thing.func
        yield from ((f"{path}.args[{at}]", each) for at, each in enumerate(thing.args))
        yield from ((f"{path}.keywords[{name!r}]", each) for name, each in thing.keywords.items())
    elif isinstance(thing, MethodType):
        yield path, thing.__self__
        yield path, thing.__func__
    elif isinstance(thing, FunctionType):
        yield from _of_function(path, thing)
    elif not _is_array(thing) and not _is_shared(thing):
        yield from _attributes(path, thing)


def _few_elements(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, (np.ndarray, _Lru, *_SETS)) or len(thing) > _NAMED_ITEMS:
        return
    items: Any = dict.items(thing) if isinstance(thing, dict) else enumerate(thing)
    yield from ((f"{path}[{key!r}]", each) for key, each in list(items))


def _of_function(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:  # It is empty.
            continue
    yield from _globals(function)


def _globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The containers, and functions with a cache, that it names; of the user's own modules."""
    module = sys.modules.get(str(function.__module__))
    if module is None or is_installed(module):
        return
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if _is_container(value):
            yield f"{module.__name__}.{name}", value


def _attributes(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    held = getattr(thing, "__dict__", None)
    named = dict(held) if type(held) is dict else {}
    for kind in type(thing).__mro__:
        for name, value in list(vars(kind).items()):
            if isinstance(value, MemberDescriptorType) and kind.__module__ != "builtins":
                try:
                    named.setdefault(name, value.__get__(thing))
                except AttributeError:
                    continue
    yield from ((f"{path}.{name}", value) for name, value in named.items())
    if not named and not isinstance(thing, type):
        # What compiled code holds, as data frames do.
        yield from ((path, each) for each in gc.get_referents(thing)[:_NAMED_ITEMS])
    yield from _of_class(path, type(thing))


def _of_class(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    """What its classes keep, and the caches of their methods."""
    for kind in cls.__mro__:
        module = sys.modules.get(str(kind.__module__))
        if module is None or is_installed(module):
            continue
        for name, value in list(vars(kind).items()):
            if isinstance(value, FunctionType):
                yield from _globals(value)
            elif not name.startswith("__") and _is_container(value):
                yield f"{path}.{name}", value


def _is_container(thing: Any) -> bool:
    if isinstance(thing, np.ndarray):
        return bool(thing.dtype == object)
    return isinstance(thing, (*_CONTAINERS, _Lru))


def _is_array(thing: Any) -> bool:
    return isinstance(thing, (np.ndarray, torch.Tensor, memoryview))


def _is_shared(thing: Any) -> bool:
    """Whether it is Stoker's own: what `stoker.packed` makes is read without writing."""
    return type(thing).__module__.partition(".")[0] == "stoker"


def _holding(path: str, thing: Any) -> Holding:
    count, some = _elements(thing)
    seen: set[int] = set()
    kinds: Counter[str] = Counter()
    total = _Weight()
    for each in some:
        kinds[type(each[-1]).__name__] += 1
        for part in each:
            total.add(part, seen, _DEPTH)
    scale = count / len(some) if some else 0.0
    return Holding(
        path,
        _name(thing),
        kinds.most_common(1)[0][0] if kinds else "",
        count,
        round(total.objects * scale),
        round(total.object_bytes * scale) + _own_bytes(thing),
        round(total.array_bytes * scale),
    )


def _name(thing: Any) -> str:
    if isinstance(thing, np.ndarray):
        return "array of Python objects"
    return "cache of a function" if isinstance(thing, _Lru) else type(thing).__name__


def _elements(thing: Any) -> tuple[int, list[tuple[Any, ...]]]:
    """How many there are, and some of them, each as what it consists of."""
    if isinstance(thing, _Lru):
        return thing.cache_info().currsize, []
    count = int(thing.size) if isinstance(thing, np.ndarray) else len(thing)
    step = max(1, count // _SAMPLED)
    if isinstance(thing, np.ndarray):
        flat: Iterable[Any] = thing.flat[::step] if count else ()
        return count, [(each,) for each in flat]
    if isinstance(thing, (list, tuple)):
        return count, [(each,) for each in thing[::step]]
    # Of what has no places, the first: to go further takes as long as there are elements.
    if isinstance(thing, dict):
        return count, list(islice(dict.items(thing), _SAMPLED))
    return count, [(each,) for each in islice(iter(thing), _SAMPLED)]


class _Weight:
    """What elements that were looked at come to."""

    def __init__(self) -> None:
        self.objects = 0
        self.object_bytes = 0
        self.array_bytes = 0

    def add(self, thing: Any, seen: set[int], depth: int) -> None:
        """Counts what is not counted yet."""
        if thing is None or isinstance(thing, (bool, type, ModuleType)) or id(thing) in seen:
            return
        seen.add(id(thing))
        self.objects += 1
        self.object_bytes += _own_bytes(thing)
        if isinstance(thing, torch.Tensor):
            self.array_bytes += thing.numel() * thing.element_size()
        elif isinstance(thing, np.ndarray) and thing.dtype != object:
            self.array_bytes += thing.nbytes
        elif depth and not isinstance(thing, _LEAVES) and not _is_shared(thing):
            for each in _inside(thing):
                self.add(each, seen, depth - 1)


def _inside(thing: Any) -> Iterable[Any]:
    if isinstance(thing, dict):
        return [part for item in islice(dict.items(thing), _BRANCHES) for part in item]
    if isinstance(thing, (list, tuple)):
        return thing[:_BRANCHES]
    if isinstance(thing, (deque, *_SETS)):
        return list(islice(iter(thing), _BRANCHES))
    held = getattr(thing, "__dict__", None)
    return [held] if type(held) is dict else ()


def _own_bytes(thing: Any) -> int:
    """Its size without what it refers to, by Python's own types alone."""
    for kind in (*_CONTAINERS, str, bytes, bytearray, int, float):
        if isinstance(thing, kind):
            return int(kind.__sizeof__(thing)) + 16  # And what the collector keeps before it.
    return 64
