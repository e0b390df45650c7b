"""What an object holds, directly or not, and the way to each: what forked workers come with.

A look, bounded in time. It runs none of the user's code.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from stoker.per_process import PerWorker
from stoker.workers.reach import BYSTANDERS, is_filled

_OBJECTS, _ITEMS = 400, 16
FILES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_PLAIN = (str, bytes, bytearray, int, float, complex, type, types.ModuleType, types.CodeType)
_HELD_ELSEWHERE = (torch.Tensor, np.ndarray, logging.Filterer, logging.Handler, PerWorker)
_NOT_LOOKED_INTO = _PLAIN + _HELD_ELSEWHERE


def held(root: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The objects that are held by one, directly or not, and the way to each: nearest first."""
    waiting, seen = deque([(name, root)]), set[int]()
    while waiting and len(seen) < _OBJECTS:
        path, thing = waiting.popleft()
        if isinstance(thing, torch.Tensor):
            yield path, thing
        if thing is None or id(thing) in seen or isinstance(thing, _NOT_LOOKED_INTO):
            continue
        if type(thing).__module__.partition(".")[0] in BYSTANDERS:
            continue
        seen.add(id(thing))
        yield path, thing
        if not isinstance(thing, FILES):
            waiting.extend((path + label, part) for label, part in _parts(thing))


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        if len(thing) < _OBJECTS:
            yield from ((f"[{key!r:.60}]", thing[key]) for key in islice(thing, _ITEMS))
    elif isinstance(thing, (list, tuple, deque)):
        yield from ((f"[{at}]", part) for at, part in enumerate(islice(thing, _ITEMS)))
    elif isinstance(thing, (set, frozenset)):
        yield from ((".{...}", part) for part in islice(thing, _ITEMS))
    elif isinstance(thing, functools.partial):
        yield from ((f".args[{at}]", part) for at, part in enumerate(thing.args))
        yield from ((f".keywords[{key!r}]", part) for key, part in thing.keywords.items())
        yield ".func", thing.func
    elif isinstance(thing, types.MethodType):
        yield ".__self__", thing.__self__
    elif isinstance(thing, types.FunctionType):
        names, cells = thing.__code__.co_freevars, thing.__closure__ or ()
        for name, cell in zip(names, cells, strict=False):
            if is_filled(cell):
                yield f".nonlocals[{name!r}]", cell.cell_contents
    yield from _attributes(thing)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    for name, member in _slots(type(thing)):
        with contextlib.suppress(AttributeError):  # It is empty.
            yield f".{name}", member.__get__(thing)
    with contextlib.suppress(AttributeError):
        own = object.__getattribute__(thing, "__dict__")
        if type(own) is dict:
            yield from [(f".{name}", part) for name, part in own.items()]


def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    members = [
        pair for each in kind.__mro__ if "__slots__" in vars(each) for pair in vars(each).items()
    ]
    return tuple(pair for pair in members if type(pair[1]) is types.MemberDescriptorType)
