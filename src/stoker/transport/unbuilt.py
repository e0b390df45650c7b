"""What in a batch could not be built again by the process that receives it.

Pickle stops at the first object whose own code fails and says neither which that is nor where.
So the stream is read once more, slowly, by an unpickler that puts a dummy in place of what fails.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from stoker.transport.fields import Step, fields_of, innermost, kind_of


class Unbuilt(Exception):
    """A batch that arrived, and can't be built; its cause is what the batch's own code raised.

    Attributes:
        path: The way to what can't be built, as ``batch['meta'][3]``; only "batch" when unknown.
        kind: The name of its type; empty when unknown.
        steps: The way in steps.
    """

    def __init__(self, path: str, kind: str, steps: tuple[Step, ...]) -> None:
        super().__init__(f"{path}, a {kind or 'value of an unknown type'}")
        self.path, self.kind, self.steps = path, kind, steps

    @classmethod
    def of(cls, stream: bytes, buffers: Iterator[Any], tensors: Callable[[Any], object]) -> Unbuilt:
        """Finds out. Never raises.

        Args:
            stream: The batch's.
            buffers: What lies outside the stream.
            tensors: Builds a tensor, as `pickle.Unpickler.persistent_load` does.
        """
        reader = _Lenient(stream, buffers, tensors)
        try:
            batch = reader.load()
        except Exception:  # Not even so.
            batch = None
        first = reader.first
        if first is None:
            return cls("batch", "", ())
        if not _holds(batch, first):
            return cls("batch", first.kind, ())
        found = innermost(batch, "batch", lambda inner: _holds(inner, first))
        return cls(found.path, first.kind, found.steps)


class _Dummy:
    """Stands for what can't be built, and takes whatever pickle does to it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, *args: object, **named: object) -> _Dummy:
        return self

    def _take(self, *_: object) -> None:
        pass

    __setitem__ = __setstate__ = append = extend = add = update = _take

    def __reduce__(self) -> tuple[Any, ...]:
        return _Dummy, (self.kind,)


_Slow: Any = pickle._Unpickler  # Of Python: each step can be replaced.


class _Lenient(_Slow):  # type: ignore[misc]
    """Puts dummies in place of what fails; `first` is the first of them."""

    dispatch: ClassVar[dict[int, Any]] = dict(_Slow.dispatch)

    def __init__(
        self, stream: bytes, buffers: Iterator[Any], tensors: Callable[[Any], object]
    ) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._tensors = tensors
        self.first: _Dummy | None = None

    def persistent_load(self, leaf: Any) -> object:
        return self._tensors(leaf)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except Exception:  # The module may not be there, or raise.
            return self._dummy(f"{module}.{name}")

    def _dummy(self, kind: str) -> _Dummy:
        self.first = self.first or _Dummy(kind)
        return self.first

    def _call(self, build: Any, args: Any, named: dict[str, Any]) -> Any:
        if any(isinstance(part, _Dummy) for part in (build, *args)):
            return self.first
        try:
            return build(*args, **named)
        except Exception:  # The type's own code.
            told = args[0] if getattr(build, "__name__", "") == "__newobj__" and args else build
            return self._dummy(_name(told))

    def load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args, {})

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self.stack.append(self._new(self.stack.pop(), args, {}))

    def load_newobj_ex(self) -> None:
        named, args = self.stack.pop(), self.stack.pop()
        self.stack.append(self._new(self.stack.pop(), args, named))

    def _new(self, kind: Any, args: Any, named: dict[str, Any]) -> Any:
        if isinstance(kind, _Dummy):
            return kind
        try:
            return kind.__new__(kind, *args, **named)
        except Exception:  # The type's own code.
            return self._dummy(_name(kind))

    def load_build(self) -> None:
        thing = self.stack[-2]
        try:
            _Slow.load_build(self)
        except Exception:  # The type's own code.
            self.stack[-1] = self._dummy(kind_of(thing))

    def load_append(self) -> None:
        self._fill(_Slow.load_append)

    def load_appends(self) -> None:
        self._fill(_Slow.load_appends)

    def load_additems(self) -> None:
        self._fill(_Slow.load_additems)

    def load_setitem(self) -> None:
        self._fill(_Slow.load_setitem)

    def load_setitems(self) -> None:
        self._fill(_Slow.load_setitems)

    def _fill(self, step: Callable[[Any], None]) -> None:
        try:
            step(self)
        except Exception:  # The type's own code; the stack is back where it was.
            self.stack[-1] = self._dummy(kind_of(self.stack[-1]))

    for _code, _step in (
        (pickle.REDUCE, load_reduce),
        (pickle.NEWOBJ, load_newobj),
        (pickle.NEWOBJ_EX, load_newobj_ex),
        (pickle.BUILD, load_build),
        (pickle.APPEND, load_append),
        (pickle.APPENDS, load_appends),
        (pickle.ADDITEMS, load_additems),
        (pickle.SETITEM, load_setitem),
        (pickle.SETITEMS, load_setitems),
    ):
        dispatch[_code[0]] = _step


def _name(build: Any) -> str:
    module, name = getattr(build, "__module__", ""), getattr(build, "__qualname__", repr(build))
    return f"{module}.{name}" if module not in ("", "builtins", "__main__") else str(name)


def _holds(thing: object, wanted: object, deepest: int = 40) -> bool:
    """Whether an object is inside another."""
    seen: set[int] = set()
    level: list[Any] = [thing]
    for _ in range(deepest):
        inner: list[Any] = []
        for part in level:
            if part is wanted:
                return True
            if id(part) not in seen and len(seen) < 20_000:
                seen.add(id(part))
                inner.extend(_inside(part))
        level = inner
    return False


def _inside(thing: object) -> list[Any]:
    try:
        return [inner for _, inner in fields_of(thing)]
    except Exception:  # Its own code.
        return []
