"""What is inside an object, field by field, and how people write the way to it.

For messages about a field that does not cross between processes: ``batch['meta'][3].lock``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_SHOWN = 60
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_CLASS = ".__class__"
_PLAIN = (str, bytes, bytearray, int, float, complex, type(None))


class Step(NamedTuple):
    """From an object to one inside it.

    Attributes:
        label: As Python writes it: ``['meta']``, ``[3]``, ``.lock``.
        position: Which item of a sequence it is; None for another kind of object.
        length: How many items that sequence has.
    """

    label: str
    position: int | None = None
    length: int = 0


def kind_of(thing: object) -> str:
    """The type of an object as people know it; a function's or class's name besides."""
    kind = type(thing)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    if isinstance(thing, (types.FunctionType, type)):
        name += f" {thing.__qualname__}"
    return name


def fields_of(thing: Any) -> Iterator[tuple[Step, Any]]:
    """What is inside an object as far as pickling it is concerned.

    Raises:
        Exception: What the object's own code raises while it is asked for its state.
    """
    if isinstance(thing, _PLAIN + _BY_NAME):
        yield from _by_value(thing)
        return
    if isinstance(thing, dict):
        for key, value in list(thing.items()):
            yield Step(f"[{_short(key)}]"), value
            yield Step(f".keys({_short(key)})"), key
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        for position, (name, value) in enumerate(zip(thing._fields, thing, strict=False)):
            yield Step(f".{name}", position, len(thing)), value
    elif isinstance(thing, (list, tuple)):
        for position, value in enumerate(thing):
            yield Step(f"[{position}]", position, len(thing)), value
    elif isinstance(thing, (set, frozenset)):
        for value in thing:
            yield Step(f".{{{_short(value)}}}"), value
    elif isinstance(thing, functools.partial):
        yield from _of(thing, "func", "args", "keywords")
    elif isinstance(thing, types.MethodType):
        yield from _of(thing, "__self__", "__func__")
    if type(thing) not in (dict, list, tuple, set, frozenset):
        yield from _state(thing)


def sent_of(thing: Any) -> Iterator[tuple[Step, Any]]:
    """As `fields_of`, and its class, which is inside where it is sent by value or not at all."""
    yield from fields_of(thing)
    if type(thing).__module__ != "builtins":
        yield Step(_CLASS), type(thing)


def _by_value(thing: Any) -> Iterator[tuple[Step, Any]]:
    """What is sent of a function or class where it is not sent by its name, as `inspect` says."""
    if isinstance(thing, types.FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # It is empty.
                yield Step(f".nonlocals[{name!r}]"), cell.cell_contents
        home = thing.__qualname__.partition(".")[0]  # Its class goes along with a method.
        for name in (*_names(thing.__code__), home):
            if name in thing.__globals__ and thing.__globals__[name] is not thing:
                yield Step(f".globals[{name!r}]"), thing.__globals__[name]
        for position, value in enumerate(thing.__defaults__ or ()):
            yield Step(f".__defaults__[{position}]"), value
    elif isinstance(thing, type) and thing.__module__ != "builtins":
        for name, value in list(vars(thing).items()):
            value = _function_of(value)
            is_sent = not (name.startswith("__") or name == "_abc_impl")
            if isinstance(value, types.FunctionType) or (is_sent and type(value) not in _SLOTS):
                yield Step(f".{name}"), value
        for base in thing.__bases__:
            yield Step(f".{base.__name__}"), base


def _names(code: types.CodeType) -> list[str]:
    """The global names of a function, and of the functions within it."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return list(dict.fromkeys(itertools.chain(code.co_names, *map(_names, inner))))


def _function_of(value: Any) -> Any:
    """What a class holds a method in: the method; else the value."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return getattr(value, "__func__", getattr(value, "__wrapped__", value))


def _of(thing: object, *names: str) -> Iterator[tuple[Step, Any]]:
    for name in names:
        yield Step(f".{name}"), getattr(thing, name)


def _state(thing: Any) -> Iterator[tuple[Step, Any]]:
    """What an object's own pickling says is in it."""
    reduced = thing.__reduce_ex__(4)
    if not isinstance(reduced, tuple):
        return
    args, state, items, pairs = (*reduced[1:5], None, None, None)[:4]
    for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(part, dict):
            for name, value in part.items():
                yield Step(f".{name}"), value
        elif part is not None:
            yield Step(".__getstate__()"), part
    for position, value in enumerate(items or ()):
        yield Step(f"[{position}]"), value
    for key, value in pairs or ():
        yield Step(f"[{_short(key)}]"), value
    for position, value in enumerate(args):
        if value is not type(thing):
            yield Step(_attribute_with(thing, value) or f".__reduce__()[1][{position}]"), value


def _attribute_with(thing: object, value: object) -> str | None:
    for name, held in getattr(thing, "__dict__", {}).items():
        if held is value:
            return f".{name}"
    return None


def _short(key: object) -> str:
    try:
        text = repr(key)
    except Exception:  # Whatever its own code does.
        text = kind_of(key)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Found(NamedTuple):
    """Something inside an object.

    Attributes:
        path: The way to it, beginning with the name of the object it is in.
        thing: What it is.
        steps: The way in steps.
    """

    path: str
    thing: object
    steps: tuple[Step, ...]


def innermost(
    root: object,
    name: str,
    fits: Callable[[Any], bool],
    *,
    ends: Callable[[Any], bool] = lambda _: False,
    fields: Callable[[Any], Iterator[tuple[Step, Any]]] = fields_of,
    deepest: int = 40,
    most: int = 20_000,
) -> Found:
    """Goes from an object that fits to one inside it that fits, for as long as there is one.

    One from which all ways lead back to where it has been is not the reason: a class fits where
    one of its methods does, and so does each method that names the class.

    Args:
        root: Where to begin; it fits.
        name: What to call it.
        fits: Whether what is looked for is an object, or inside it.
        ends: Whether an object that fits is far enough.
        fields: What is inside an object.
        deepest: How many steps at most.
        most: How many objects to look at in all; then the way so far is the answer.

    Returns:
        The last one that fits.
    """
    seen: list[Any] = []
    left = itertools.repeat(None, most)

    def way_from(thing: Any, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], Any] | None:
        seen.append(thing)
        leads_back = False
        if len(steps) == deepest or ends(thing):
            return steps, thing
        with contextlib.suppress(Exception):  # Of its own code: this is as far as one sees.
            for (step, inner), _ in zip(fields(thing), left, strict=False):
                been = any(inner is known for known in seen)
                if not been and fits(inner) and (way := way_from(inner, (*steps, step))):
                    return way
                leads_back = leads_back or (been and inner is not thing)
        return None if leads_back else (steps, thing)

    steps, thing = way_from(root, ()) or ((), root)
    path = "".join(step.label for step in steps).replace(f"{_CLASS}.", ".")
    return Found(name + path, thing, steps)


def samples_at(steps: tuple[Step, ...], indices: Any) -> list[Any]:
    """Which sample indices a way into a batch may mean.

    A sequence as long as the batch holds, most likely, something of each of its samples.

    Args:
        steps: The way.
        indices: The sample indices of the batch; or the one, where there is no batching.
    """
    if not isinstance(indices, (list, tuple)):
        return [indices]
    found = []
    for step in steps:
        if step.position is not None and step.length == len(indices):
            index = indices[step.position]
            if index not in found:
                found.append(index)
    return found
