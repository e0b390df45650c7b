"""The libraries' own generators, sent to another process as what they are: its own ones there.

``from random import random`` and ``from numpy.random import rand`` bind methods of an object that
the library keeps. Pickle would send a copy of that object along, which nobody seeds: workers would
all draw the same numbers from it, and others than the main process.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_PLACES = (
    ("random", "_inst"),
    ("numpy.random.mtrand", "_rand"),
    ("numpy.random.mtrand", "_rand._bit_generator"),
    ("torch", "default_generator"),
)
_CLASSES = {
    *("Random", "RandomState", "Generator"),
    *("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"),  # `numpy.random.set_bit_generator`
}


def by_reference(thing: Any) -> Any:
    """For `pickle.Pickler.reducer_override`: NotImplemented for all but those generators."""
    if type(thing).__name__ not in _CLASSES:
        return NotImplemented
    for module, path in _PLACES:
        found = sys.modules.get(module)
        if found is not None and _at(found, path) is thing:
            return _own, (module, path)
    return NotImplemented


def _own(module: str, path: str) -> Any:
    """This process's."""
    return _at(importlib.import_module(module), path)


def _at(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
