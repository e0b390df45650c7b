"""Classes and functions of the main program that pickled records name.

A pickle holds their names only. A new process that does not run the main program finds nothing
under these; so the pack keeps the objects beside its buffers, where whoever sends it can send
them, too. And a notebook that defines a class anew does not change what was packed before.
"""

from __future__ import annotations

import io
import operator
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

_MAIN = ("__main__", "__mp_main__")

Names = dict[tuple[str, str], Any]


class Noting(pickle.Pickler):
    """A pickler that notes which objects of the main program it has only named.

    Args:
        file: Where to write to.
        names: Where to note them: by module and qualified name.
    """

    def __init__(self, file: io.BytesIO, names: Names) -> None:
        super().__init__(file, protocol=5)
        self._names = names

    def reducer_override(self, thing: Any) -> Any:
        """Is asked about whatever is none of Python's plain types; leaves it as it is."""
        if isinstance(thing, (type, types.FunctionType)) and thing.__module__ in _MAIN:
            self._names[thing.__module__, thing.__qualname__] = thing
        return NotImplemented


def reader_of(names: Names) -> Callable[[Any], Any]:
    """What unpickles one record that may name these."""
    if not names:
        return pickle.loads
    there = [(module, operator.attrgetter(name), it) for (module, name), it in names.items()]

    def read(data: Any) -> Any:
        # Where the main program still has them, nothing need be looked up: three times as fast.
        if all(_is_there(*each) for each in there):
            return pickle.loads(data)
        return _Reading(data, names).load()

    return read


def _is_there(module: str, get: Callable[[Any], Any], thing: Any) -> bool:
    try:
        return get(sys.modules[module]) is thing
    except (KeyError, AttributeError):
        return False


class _Reading(pickle.Unpickler):
    def __init__(self, data: Any, names: Names) -> None:
        super().__init__(io.BytesIO(data))
        self._names = names

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._names[module, name]
        except KeyError:
            return super().find_class(module, name)
