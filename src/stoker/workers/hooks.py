"""Classes that go along by value, made again without what the program does to a new class.

A base with ``__init_subclass__`` and a metaclass see each class as it is made, and may write it
down. Where such a hook goes along by value, so does what it has written, and it must not run
again. What belongs to an installed module runs as for any new class, since nothing that it has
written goes along. It also runs where a hook of the program passes the class on to it, as with
``super``, and not where that keeps it away.

A hook of the program may have arguments for one of an installed module that can't do without.
Then it runs, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

_cloudpickle: Any = cloudpickle.cloudpickle
_ALWAYS_PASS_ON = ("__call__", "__prepare__", "__new__", "__setattr__")
_ABSENT = object()


class _Hook(NamedTuple):
    owner: type
    name: str
    passes_on: bool


def without_hooks(kind: type, reduced: Any) -> Any:
    """What cloudpickle has for a class, made once and without the program's hooks."""
    makes = (_cloudpickle._make_skeleton_class, _cloudpickle._make_skeleton_enum)
    if not isinstance(reduced, tuple) or reduced[0] not in makes:
        return reduced
    make, given, state, items, pairs, fill = reduced
    made = _made, (make, given, _hooks_of_making(kind))
    metaclass: Any = type(kind)
    setting = list(_hooks(metaclass.__mro__, "__setattr__"))
    if setting:
        state, fill = (fill, state, setting), _filled
    return *made, state, items, pairs, fill


def _hooks_of_making(kind: type) -> list[_Hook]:
    metaclass: Any = type(kind)
    above: Any = type(metaclass)
    return [
        *_hooks(above.__mro__, "__call__"),
        *_hooks(metaclass.__mro__, "__prepare__", "__new__", "__init__"),
        *_hooks(kind.__mro__[1:], "__init_subclass__"),
    ]


def _hooks(owners: Iterable[type], *names: str) -> Iterator[_Hook]:
    for owner in owners:
        for name in names:
            hook = vars(owner).get(name)
            if hook is not None and _goes_along(owner) and _goes_along(_function_of(hook)):
                yield _Hook(owner, name, name in _ALWAYS_PASS_ON or _passes_on(hook, name))


def _function_of(hook: Any) -> Any:
    return getattr(hook, "__func__", hook)


def _goes_along(thing: Any) -> bool:
    is_known = isinstance(thing, (type, FunctionType))
    return not (is_known and _cloudpickle._should_pickle_by_reference(thing))


def _passes_on(hook: Any, name: str) -> bool:
    """Whether it looks as if it would call the hooks of that name that come after it."""
    code = getattr(inspect.unwrap(_function_of(hook)), "__code__", None)
    return code is None or _names(code, name)


def _names(code: CodeType, name: str) -> bool:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return name in code.co_names or any(_names(each, name) for each in inner)


def _made(make: Any, given: tuple[Any, ...], hooks: list[_Hook]) -> Any:
    """A class; the one that there is, where its base or metaclass has led to it before."""
    known = _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(given[-2])
    if known is not None:
        return known
    if hooks:
        try:
            with _left_out(hooks):
                return make(*given)
        except TypeError:  # Without them arguments are missing.
            pass
    return make(*given)


def _filled(kind: type, state: tuple[Any, Any, list[_Hook]]) -> None:
    fill, attributes, hooks = state
    with _left_out(hooks):
        fill(kind, attributes)


@contextmanager
def _left_out(hooks: list[_Hook]) -> Iterator[None]:
    """Their owners are without them; one that passes nothing on keeps what is behind it away."""
    before = [vars(owner).get(name, _ABSENT) for owner, name, _ in hooks]
    try:
        for owner, name, passes_on in hooks:
            _put(owner, name, _ABSENT if passes_on else _NOTHINGS[name])
        yield
    finally:
        for (owner, name, _), hook in zip(hooks, before, strict=True):
            _put(owner, name, hook)


def _put(owner: type, name: str, hook: object) -> None:
    """Past the metaclass, which may have hooks for that as well."""
    if hook is not _ABSENT:
        type.__setattr__(owner, name, hook)
    elif name in vars(owner):
        type.__delattr__(owner, name)


def _nothing(*_: object, **__: object) -> None:
    """In the place of a hook."""


_NOTHINGS: dict[str, Any] = {"__init__": _nothing, "__init_subclass__": classmethod(_nothing)}
