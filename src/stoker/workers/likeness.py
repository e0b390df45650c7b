"""Whether a data set is still what it was when its workers were started.

Workers that stay from epoch to epoch have a copy of the data set as it was then. A program may
change the data set between two epochs (``dataset.set_epoch(3)``, another transform), and the
next epoch must be read from the changed one. So what can be seen cheaply is written down at
the end of an epoch and compared at the beginning of the next.

Seen are: attributes of any depth, plain values, containers (their length, and their first and
last entries), tensors (their memory and how often they were written to), and some of the values
of arrays. A value that is changed deep inside a large list or array can be missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_MOST_NODES = 2000
_ENDS = 16
_ARRAY_SAMPLE = 256
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def likeness(*objects: Any) -> tuple[Any, ...]:
    """Something that compares equal as long as nothing is seen to have changed.

    Args:
        *objects: What to look at. Held by number only, so they are not kept alive.
    """
    return tuple(_Look().at(each) for each in objects)


class _Look:
    def __init__(self) -> None:
        self._seen: set[int] = set()

    def at(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return type(value), value if not isinstance(value, (str, bytes)) else hash(value)
        if id(value) in self._seen or len(self._seen) >= _MOST_NODES:
            return id(value)
        self._seen.add(id(value))
        return id(value), *self._inside(value)

    def _inside(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, torch.Tensor):
            return _tensor(value)
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, dict):
            return self._ends(list(value.items()) if len(value) <= 2 * _ENDS else [], len(value))
        if isinstance(value, (list, tuple)):
            return self._ends(value, len(value))
        if isinstance(value, (set, frozenset)):
            return (len(value),)
        found: list[Any] = [self.at(getattr(value, "__dict__", None))]
        closure = getattr(value, "__closure__", None)
        if closure:
            found += [self.at(cell.cell_contents) for cell in closure if _is_filled(cell)]
        for name in ("__self__", "__func__", "func", "args", "keywords"):
            if hasattr(type(value), name):  # bound methods, functools.partial
                found.append(self.at(getattr(value, name)))
        return tuple(found)

    def _ends(self, items: Any, length: int) -> tuple[Any, ...]:
        some = items if length <= 2 * _ENDS else [*items[:_ENDS], *items[-_ENDS:]]
        return length, *map(self.at, some)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _tensor(value: torch.Tensor) -> tuple[Any, ...]:
    try:
        return value.data_ptr(), value._version, tuple(value.shape)
    except RuntimeError:  # without memory of its own, or made in inference mode
        return (tuple(value.shape),)


def _array(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    if value.dtype.hasobject or not value.size:
        return value.shape, str(value.dtype)
    step = max(1, value.size // _ARRAY_SAMPLE)
    return value.shape, str(value.dtype), hash(value.flat[::step].tobytes())
