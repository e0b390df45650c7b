"""Whether a data set is still what it was when its workers were started.

Workers that stay from epoch to epoch have a copy of the data set as it was then. A program may
change the data set between two epochs (``dataset.set_epoch(3)``, another transform), and the
next epoch must be read from the changed one. So what can be seen cheaply is written down at
the end of an epoch and compared at the beginning of the next.

Seen are: attributes of any depth, in ``__dict__`` and in slots, plain values, containers (their
length, and their first and last entries), functions (what they close over, their defaults),
tensors (their memory and how often they were written to), and some of the values of arrays. A
value that is changed deep inside a large list or array can be missed.

None of the user's code runs: properties, ``__getattr__``, ``__len__``, ``__eq__`` are passed by.
"""

from __future__ import annotations

import functools
import mmap
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from stoker.per_process import PerWorker

_MOST_NODES = 2000
_MOST_ATTRIBUTES = 512
_ENDS = 16
_ARRAY_SAMPLE = 256
_MOST_BASES = 16


def likeness(*objects: Any) -> tuple[Any, ...]:
    """Something that compares equal as long as nothing is seen to have changed.

    Args:
        *objects: What to look at. Held by number only, so they are not kept alive.

    Returns:
        Plain values, types and numbers, side by side.
    """
    look = _Look(objects)
    for value in look:
        try:
            _see(value, look)
        except Exception as error:  # An odd object is no reason to end an epoch.
            look.saw(type(error))
    return tuple(look.seen)


class _Look:
    """What was seen, and what is still to be looked at: the nearest first."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.seen: list[Any] = []
        self._left = deque(objects)
        # With the objects themselves: were one freed, another could have its number.
        self._met: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        while self._left:
            yield self._left.popleft()

    def saw(self, *facts: Any) -> None:
        self.seen += facts

    def look_at(self, values: Iterable[Any]) -> None:
        """These are inside."""
        self._left += values

    def enters(self, value: Any) -> bool:
        """Whether to look inside: once, and into no more than so many."""
        self.seen.append(id(value))
        if id(value) in self._met or len(self._met) >= _MOST_NODES:
            return False
        self._met[id(value)] = value
        return True


def _see(value: Any, look: _Look) -> None:
    kind = type(value)  # `isinstance` would ask `value.__class__` as well
    look.saw(kind)
    for base, told in _PLAIN:
        if issubclass(kind, base):
            look.saw(told(value))
            if kind is base:
                return
            break
    if not look.enters(value) or issubclass(kind, (type, types.ModuleType)):
        return
    if kind is PerWorker:  # What is open here is no part of it.
        look.look_at(value.__dict__.values())
        return
    for base, see in _KINDS:
        if issubclass(kind, base):
            see(value, look)
            break
    for owner in kind.__mro__:
        if "__dict__" in owner.__dict__:
            held = owner.__dict__["__dict__"].__get__(value)
            look.look_at(chain.from_iterable(islice(dict.items(held), _MOST_ATTRIBUTES)))
            break
    for owner in kind.__mro__:
        if "__slots__" in owner.__dict__:
            for member in owner.__dict__.values():
                if type(member) is types.MemberDescriptorType:
                    look.look_at(_in_slot(member, value))


def _in_slot(member: Any, value: Any) -> tuple[Any, ...]:
    try:
        return (member.__get__(value),)
    except AttributeError:  # It is empty.
        return ()


def _sequence(value: Any, look: _Look) -> None:
    base: Any = list if issubclass(type(value), list) else tuple
    length = base.__len__(value)
    look.saw(length)
    look.look_at(base.__getitem__(value, slice(_ENDS)))
    look.look_at(base.__getitem__(value, slice(max(_ENDS, length - _ENDS), None)))


def _mapping(value: Any, look: _Look) -> None:
    look.saw(dict.__len__(value))
    look.look_at(chain.from_iterable(islice(dict.items(value), _ENDS)))
    look.look_at(chain.from_iterable(islice(reversed(dict.items(value)), _ENDS)))


def _unordered(base: Any) -> Callable[[Any, _Look], None]:
    def see(value: Any, look: _Look) -> None:
        look.saw(base.__len__(value))
        look.look_at(islice(base.__iter__(value), 2 * _ENDS))

    return see


def _function(value: Any, look: _Look) -> None:
    look.look_at([value.__code__, value.__defaults__, value.__kwdefaults__])
    for cell in value.__closure__ or ():
        try:
            look.look_at([cell.cell_contents])
        except ValueError:  # It is empty.
            look.saw(None)


def _method(value: Any, look: _Look) -> None:
    look.look_at([value.__self__, value.__func__])


def _partial(value: Any, look: _Look) -> None:
    kind: Any = functools.partial
    look.look_at([kind.func.__get__(value), kind.args.__get__(value), kind.keywords.__get__(value)])


def _tensor(value: torch.Tensor, look: _Look) -> None:
    with torch._C.DisableTorchFunctionSubclass():
        try:
            look.saw(value.data_ptr(), value._version, tuple(value.shape))
        except RuntimeError:  # without memory of its own, or made in inference mode
            look.saw(tuple(value.shape))


def _array(value: Any, look: _Look) -> None:
    array = np.ndarray.view(value, np.ndarray)
    look.saw(array.shape, str(array.dtype))
    if _is_of_a_file(value):
        look.saw(array.__array_interface__["data"][0])
    elif array.size and not array.dtype.hasobject:
        look.saw(hash(array.flat[:: max(1, array.size // _ARRAY_SAMPLE)].tobytes()))


def _is_of_a_file(array: Any) -> bool:
    """Whether it is a view of a mapped file: where that has shrunk, reading ends the process."""
    for _ in range(_MOST_BASES):
        if not isinstance(array, np.ndarray):
            break
        array = np.ndarray.base.__get__(array)
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (type(None), id),
    (int, int.__repr__),  # bool too
    (float, float.__repr__),
    (complex, complex.__repr__),
    (str, str.__hash__),
    (bytes, bytes.__hash__),
    (bytearray, lambda value: hash(bytes(memoryview(value)))),
    (np.generic, np.generic.tobytes),
)
_KINDS: tuple[tuple[type, Callable[[Any, _Look], None]], ...] = (
    (torch.Tensor, _tensor),
    (np.ndarray, _array),
    (dict, _mapping),
    (list, _sequence),
    (tuple, _sequence),
    (set, _unordered(set)),
    (frozenset, _unordered(frozenset)),
    (deque, _unordered(deque)),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (functools.partial, _partial),
)
