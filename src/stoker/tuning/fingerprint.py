"""By what a kept answer is found again: the same data set, and the same work for a batch.

Other runs of the program, and other processes, give the same digest, so nothing goes into it
that differs from run to run: no memory addresses, hash values, times or random states. What does:

- the class of the data set, by the source file and its name there: ``__main__`` of one run is a
  module of another; and the code of its ``__getitem__`` or ``__iter__``
- the length of the data set, the size of a batch, the function that collates
- public attributes to a small depth: numbers, strings, paths, flags; shape and type of tensors
  and arrays; of long containers the length only; the settings of transforms and of wrapped data
  sets in the same way
- how many ranks share the node

None of the user's code runs but ``len(dataset)``: properties, ``__getattr__`` and ``__eq__`` are
passed by. No more than some hundred objects are looked at.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from stoker.host.ranks import ranks_on_node

_FORMAT = "1"
_MOST_NODES, _MOST_DEPTH = 200, 6
_MOST_ATTRIBUTES = 64
_SHORT = 16
"""A container with more entries than that is data; with fewer it may be settings."""
_MOST_TEXT = 400
_STATE = frozenset({"epoch", "seed", "random_state", "indices"})
"""Attributes that differ from run to run, or from epoch to epoch, and change no work."""
_CHILDREN = "_modules"
"""Where torch's modules, as many transforms are, keep those inside."""
_OPAQUE = frozenset(
    {"random", "torch._C", "_thread", "threading", "_io", "logging", "socket"}
    | {f"numpy.random.{name}" for name in ("mtrand", "_generator", "bit_generator", "_pcg64")}
)
"""Modules whose objects are handles or states."""


def fingerprint(loader: Any) -> str:
    """A short digest of a loader's data set and of the work for one batch.

    Takes a few tenths of a millisecond; never raises, whatever the data set is.

    Args:
        loader: A ``torch.utils.data.DataLoader``, or a subclass.
    """
    look = _Look()
    try:
        held = _attributes(loader)
        dataset, batch_size = held.get("dataset"), held.get("batch_size")
        look.saw(_FORMAT, ranks_on_node(), _length(dataset))
        look.add("batch", batch_size, 0)
        look.add("collate", held.get("collate_fn"), 0)
        if batch_size is None:
            look.add("sampler", held.get("batch_sampler"), _MOST_DEPTH - 2)
        look.add("data", dataset, 0)
        _code_of(dataset, look)
    except Exception as error:  # What can't be told is told in the same way each time.
        look.saw(type(error).__name__)
    for name, value, depth in look:
        try:
            _see(name, value, depth, look)
        except Exception as error:
            look.saw(type(error).__name__)
    return look.digest()


class _Look:
    """What was seen, and what is still to be looked at: the nearest first."""

    def __init__(self) -> None:
        self._nodes = 0
        self._seen: list[str] = []
        self._left: deque[tuple[str, Any, int]] = deque()
        # With the objects themselves: were one freed, another could have its number.
        self._met: dict[int, tuple[int, Any]] = {}

    def __iter__(self) -> Iterator[tuple[str, Any, int]]:
        while self._left:
            yield self._left.popleft()

    def saw(self, *facts: Any) -> None:
        """Plain facts: each with its length, so that no two lists of them look the same."""
        for fact in facts:
            text = str(fact)[:_MOST_TEXT]
            self._seen.append(f"{len(text)}:{text}")

    def add(self, name: str, value: Any, depth: int) -> None:
        """Something inside."""
        if depth <= _MOST_DEPTH and self._nodes < _MOST_NODES:
            self._nodes += 1
            self._left.append((name, value, depth))

    def enters(self, value: Any) -> bool:
        """Whether to look inside: once."""
        met = self._met.get(id(value))
        if met is None:
            self._met[id(value)] = len(self._met), value
            return True
        self.saw(met[0])
        return False

    def digest(self) -> str:
        text = "".join(self._seen).encode(errors="surrogatepass")
        return hashlib.sha256(text).hexdigest()[:24]


def _see(name: str, value: Any, depth: int, look: _Look) -> None:
    kind = type(value)  # `isinstance` would ask `value.__class__` as well
    exact = _EXACT.get(kind)
    if exact is not None:
        look.saw(name, kind.__name__, exact(value))
        return
    look.saw(name, *_named(kind))
    for base, told in _PLAIN:
        if issubclass(kind, base):
            look.saw(told(value))
            return
    if issubclass(kind, type):
        look.saw(*_named(value))
    elif issubclass(kind, enum.Enum):
        look.saw(_attributes(value).get("_name_"))
    elif not issubclass(kind, types.ModuleType) and look.enters(value):
        _look_inside(value, kind, depth + 1, look)


def _look_inside(value: Any, kind: type, depth: int, look: _Look) -> None:
    for base, see in _kinds():
        if issubclass(kind, base):
            see(value, depth, look)
            break
    if type.__getattribute__(kind, "__module__") in _OPAQUE:
        return
    held = _attributes(value)
    for name in sorted(name for name in held if type(name) is str and _tells(name)):
        look.add(name, held[name], depth)


def _tells(name: str) -> bool:
    return name == _CHILDREN or not (name.startswith("_") or name in _STATE)


def _attributes(value: Any) -> dict[str, Any]:
    """What an object holds, in ``__dict__`` and in slots, read past the user's code."""
    found: dict[str, Any] = {}
    for owner in type(value).__mro__:
        if "__dict__" in owner.__dict__:
            held = owner.__dict__["__dict__"].__get__(value)
            found.update(islice(dict.items(held), _MOST_ATTRIBUTES))
            break
    for owner in type(value).__mro__:
        if "__slots__" in owner.__dict__:
            for name, member in islice(owner.__dict__.items(), _MOST_ATTRIBUTES):
                if type(member) is types.MemberDescriptorType:
                    try:
                        found[name] = member.__get__(value)
                    except AttributeError:  # It is empty.
                        pass
    return found


def _named(kind: Any) -> tuple[str, str]:
    """The file that defines a class or function, and its name there."""
    read = type.__getattribute__ if issubclass(type(kind), type) else object.__getattribute__
    return _file(read(kind, "__module__")), str(read(kind, "__qualname__"))


def _file(module: str) -> str:
    """Path of a module's file; its name where it has none, nothing for a program without one."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if isinstance(file, str):
        return _whole(file)
    return "" if module in ("__main__", "__mp_main__") else module


@functools.lru_cache(256)
def _whole(file: str) -> str:
    return os.path.realpath(file)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def _code_of(dataset: Any, look: _Look) -> None:
    for name in ("__getitem__", "__getitems__", "__iter__"):
        for owner in type(dataset).__mro__:
            if name in owner.__dict__:
                function = owner.__dict__[name]
                if type(function) is types.FunctionType:
                    _see_code(function.__code__, look)
                break


def _see_code(code: types.CodeType, look: _Look, depth: int = 0) -> None:
    """What a function does, wherever in its file: an edit makes other work of it."""
    look.saw(hashlib.sha256(code.co_code).hexdigest(), *code.co_names)
    for constant in code.co_consts:
        if type(constant) in (int, float, bool, str):
            look.saw(constant)
        elif type(constant) is types.CodeType and depth < 3:
            _see_code(constant, look, depth + 1)


def _sequence(base: Any) -> Callable[[Any, int, _Look], None]:
    def see(value: Any, depth: int, look: _Look) -> None:
        length = base.__len__(value)
        look.saw(length)
        if length <= _SHORT:
            for each in base.__iter__(value):
                look.add("", each, depth)

    return see


def _mapping(value: Any, depth: int, look: _Look) -> None:
    length = dict.__len__(value)
    look.saw(length)
    if length <= _SHORT:
        for key, each in dict.items(value):
            look.add(key if type(key) is str else type(key).__name__, each, depth)


def _unordered(base: Any) -> Callable[[Any, int, _Look], None]:
    return lambda value, depth, look: look.saw(base.__len__(value))


def _function(value: Any, depth: int, look: _Look) -> None:
    look.saw(*_named(value))
    _see_code(value.__code__, look)
    _see_all((value.__defaults__, value.__kwdefaults__), depth, look)
    for cell in value.__closure__ or ():
        try:
            look.add("cell", cell.cell_contents, depth)
        except ValueError:  # It is empty.
            look.saw("empty")


def _method(value: Any, depth: int, look: _Look) -> None:
    _see_all((value.__self__, value.__func__), depth, look)


def _partial(value: Any, depth: int, look: _Look) -> None:
    kind: Any = functools.partial
    parts = (kind.func, kind.args, kind.keywords)
    _see_all((part.__get__(value) for part in parts), depth, look)


def _see_all(values: Iterable[Any], depth: int, look: _Look) -> None:
    for value in values:
        look.add("", value, depth)


def _tensor(value: Any, depth: int, look: _Look) -> None:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        look.saw(tuple(value.shape), value.dtype)


def _array(value: Any, depth: int, look: _Look) -> None:
    array = sys.modules["numpy"].ndarray
    look.saw(array.shape.__get__(value), array.dtype.__get__(value))


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (type(None), lambda value: ""),
    (bool, int.__repr__),
    (int, int.__repr__),
    (float, float.__repr__),
    (complex, complex.__repr__),
    (str, str.__str__),
    (bytes, bytes.__len__),
    (bytearray, bytearray.__len__),
    (PurePath, str),
)
_EXACT = dict(_PLAIN)
_BUILTIN: tuple[tuple[type, Callable[[Any, int, _Look], None]], ...] = (
    (dict, _mapping),
    (list, _sequence(list)),
    (tuple, _sequence(tuple)),
    (deque, _sequence(deque)),
    (set, _unordered(set)),
    (frozenset, _unordered(frozenset)),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (functools.partial, _partial),
)


@functools.cache
def _of_arrays(loaded: tuple[bool, bool]) -> tuple[tuple[type, Any], ...]:
    torch, numpy = (
        sys.modules[name] if there else None for name, there in zip(_LIBRARIES, loaded, strict=True)
    )
    found: list[tuple[type, Any]] = []
    if torch is not None:
        found += [(torch.Tensor, _tensor), (torch.dtype, lambda value, _, look: look.saw(value))]
    if numpy is not None:
        found += [
            (numpy.ndarray, _array),
            (numpy.generic, lambda value, _, look: look.saw(numpy.generic.__str__(value))),
        ]
    return (*found, *_BUILTIN)


_LIBRARIES = ("torch", "numpy")


def _kinds() -> tuple[tuple[type, Any], ...]:
    """The kinds that are looked into; a library's own only where that is loaded anyway."""
    loaded = "torch" in sys.modules, "numpy" in sys.modules
    return _of_arrays(loaded)
