"""An exception on its way from a worker to the main process.

It is taken to pieces in the worker: its type, arguments, attributes and traceback, each by
itself, so that one that does not cross costs only itself. Nothing that the user's classes do
while they are taken to pieces or put together again can do harm: what fails is left out.

Put together again, in this order, as the first that works:

1. As torch does it: the type is called with one message, which tells worker, sample, batch and
   traceback. The attributes are then what they were. Only if the message is what one reads.
2. As it was: by its own pickling, by its arguments, or by them without its constructor.
3. A `RuntimeError` with the message of 1, and the type and arguments besides.
"""

from __future__ import annotations

import builtins
import functools
import pickle
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.errors import RaisedInWorker, StokerError

_LIMIT_BYTES = 1024 * 1024
_SHOWN = 500
_PARTS = 20
_HINTS = {
    "BdbQuit": "Workers have no standard input, so a debugger ends at once. debug=True, or "
    "STOKER_DEBUG=1 in the environment, makes the same batches where breakpoint() works.\n"
}
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11


class _Readable(str):
    """What a `KeyError` is to show: it shows the repr of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Raised(NamedTuple):
    """What a worker tells of an exception: texts, and pickles that may fail to load.

    Attributes:
        name: Of its type.
        where: Where it was raised, for "Caught ValueError {where}".
        told: Its traceback as Python prints it; at most a megabyte.
        arguments: Their repr, shortened.
        whole: The exception, if it pickles.
        kind: Its type, if that does.
        args: Its arguments, if they do.
        attributes: Those of its attributes that do.
        left: Why an attribute does not, for the others.
        parts: The exceptions of a group that does not pickle as a whole.
    """

    name: str
    where: str
    told: str
    arguments: str
    whole: bytes | None
    kind: bytes | None
    args: bytes | None
    attributes: dict[str, bytes]
    left: dict[str, str]
    parts: tuple[Raised, ...]

    @classmethod
    def of(cls, error: BaseException, where: str) -> Raised:
        """Takes an exception to pieces. Never raises."""
        attributes, left = _attributes(error)
        whole, args = _pickled(error), _args_of(error)
        return cls(
            name=type(error).__name__,
            where=where,
            told=_told(error),
            arguments=_shown(args) if args is not None else "(can't be shown)",
            whole=whole,
            kind=_pickled(type(error)),
            args=_pickled(args) if args is not None else None,
            attributes=attributes,
            left=left,
            parts=() if whole is not None else _parts(error, where),
        )

    @property
    def short(self) -> str:
        """Its last line, as Python prints it: type and message."""
        lines = self.told.strip().splitlines()
        return lines[-1] if lines else self.name

    def reraise(self) -> None:
        """Raises the exception, put together again; its cause tells what the worker knew."""
        raise self.rebuilt()

    def rebuilt(self) -> BaseException:
        """The exception, put together again; never a `StopIteration`, which ends an epoch."""
        kind, as_it_was = self._kind(), self._as_it_was()
        error = None
        if kind is not None and not issubclass(kind, StokerError):  # Those tell all themselves.
            error = self._as_torch_does(kind, as_it_was)
        error = error or as_it_was
        if error is None or isinstance(error, StopIteration):
            error = RuntimeError(self._told_by("RuntimeError"))
        error.__cause__ = self._cause(error, as_it_was)
        return error

    def _cause(self, error: BaseException, as_it_was: BaseException | None) -> RaisedInWorker:
        head = f"{self.name}{self.arguments} {self.where}"
        if self.left:
            left = ", ".join(f"{name} ({kind})" for name, kind in self.left.items())
            head += f"; without what does not pickle: {left}"
        return RaisedInWorker(
            head if self.told in str(error) else f"{head}\nOriginal {self.told}",
            traceback=self.told,
            original=as_it_was if as_it_was is not error else None,
            left_behind=self.left,
        )

    @property
    def message(self) -> str:
        """The exception in words: torch's."""
        return f"Caught {self.name} {self.where}.\nOriginal {self.told}{_HINTS.get(self.name, '')}"

    def _told_by(self, name: str) -> str:
        """The same, in an exception of another type."""
        why = f"told by a {name}, as it can't be built again; its arguments: {self.arguments}"
        return f"Caught {self.name} {self.where} ({why}).\nOriginal {self.told}"

    def _kind(self) -> type[BaseException] | None:
        kind = _loaded(self.kind)
        return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None

    def _as_torch_does(
        self, kind: type[BaseException], as_it_was: BaseException | None
    ) -> BaseException | None:
        text: Any = _Readable(self.message) if issubclass(kind, KeyError) else self.message

        def restored(error: Any) -> Any:
            self._restore(error)
            if isinstance(as_it_was, OSError):
                error.errno = as_it_was.errno  # Its other fields would change the text.
            return error

        ways: list[Callable[[], Any]] = [lambda: restored(kind(text))]
        if getattr(kind, "message", None):  # Some have their text there, and no argument for it.
            called: Any = kind
            ways.insert(0, lambda: restored(called(message=text)))
        return _first(ways, kind, lambda error: self.message in str(error))

    def _as_it_was(self) -> BaseException | None:
        kind, args = self._kind(), _loaded(self.args)
        if kind is None:
            return None
        if self.parts:
            group: Any = kind
            way = functools.partial(group, self.message, [part.rebuilt() for part in self.parts])
            return _first([way], kind, lambda _: True)
        if args is None:
            return None
        ways: list[Callable[[], Any]] = [
            lambda: _loaded(self.whole),
            lambda: self._restore(kind(*args)),
            lambda: self._restore(_without_constructor(kind, args)),
        ]
        return _first(ways, kind, lambda error: _alike(error.args, args))

    def _restore(self, error: BaseException) -> BaseException:
        """Gives an exception the attributes that it had."""
        for name, data in self.attributes.items():
            vars(error)[name] = pickle.loads(data)
        return error


def _first(
    ways: list[Callable[[], Any]],
    kind: type[BaseException],
    fits: Callable[[BaseException], bool],
) -> BaseException | None:
    """The first exception of its type, among those that the ways give, that fits."""
    for way in ways:
        try:
            error = way()
            if type(error) is kind and fits(error):
                str(error), repr(error)
                return error
        except KeyboardInterrupt:
            raise
        except BaseException:  # Whatever its own code does.
            continue
    return None


def _alike(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether a constructor has left the arguments as they were, as far as one can tell."""
    if [type(arg) for arg in ours] != [type(arg) for arg in theirs]:
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, (str, bytes, int)))


def _without_constructor(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _pickled(value: object) -> bytes | None:
    try:
        data = pickle.dumps(value, protocol=5)
    except BaseException:  # Whatever its own code does.
        return None
    return data if len(data) <= _LIMIT_BYTES else None


def _loaded(data: bytes | None) -> Any:
    try:
        return None if data is None else pickle.loads(data)
    except KeyboardInterrupt:
        raise
    except BaseException:  # Whatever its own code does.
        return None


def _attributes(error: BaseException) -> tuple[dict[str, bytes], dict[str, str]]:
    crossing: dict[str, bytes] = {}
    left: dict[str, str] = {}
    size_bytes = 0
    for name, value in getattr(error, "__dict__", {}).items():
        data = _pickled(value)
        if data is None or size_bytes + len(data) > _LIMIT_BYTES:
            left[str(name)] = type(value).__name__
        else:
            crossing[str(name)] = data
            size_bytes += len(data)
    return crossing, left


def _parts(error: BaseException, where: str) -> tuple[Raised, ...]:
    if not isinstance(error, _GROUP):
        return ()
    return tuple(Raised.of(part, where) for part in error.exceptions[:_PARTS])


def _told(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # Whatever its own code does.
        text = f"Traceback of {type(error).__name__}: can't be told\n"
    if len(text) <= _LIMIT_BYTES:
        return text
    half = _LIMIT_BYTES // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"


def _args_of(error: BaseException) -> tuple[Any, ...] | None:
    try:
        return error.args
    except BaseException:  # Its class may have a property of that name.
        return None


def _shown(args: tuple[Any, ...]) -> str:
    try:
        text = repr(args)
    except BaseException:  # Whatever its own code does.
        text = "(can't be shown)"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
