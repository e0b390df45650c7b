"""torch's ``Dataset`` as a base of the program's own class, in a worker that has no torch.

A class that goes along by value (see `by_value`) needs its base, and of ``Dataset`` it needs
nothing but that it is one. So in a worker without torch a stand-in takes its place, as a base and
nowhere else: whoever refers to ``Dataset`` in another way has torch imported. When torch arrives,
classes get the base that they were written with, before anyone can compare.
"""

from __future__ import annotations

import sys
from typing import Any, Generic, TypeVar

from stoker.host.arriving import is_here, when_imported

_T = TypeVar("_T", covariant=True)
_DATASET = "torch.utils.data.dataset"
_KNOWN = frozenset({"__getitem__", "__add__"})


class _StandIn(Generic[_T]):
    def __getitem__(self, index: Any) -> Any:
        _real()
        return self[index]

    def __add__(self, other: Any) -> Any:
        _real()
        return self + other


_StandIn.__name__ = _StandIn.__qualname__ = "Dataset"
_StandIn.__module__ = _DATASET


class Base:
    """Stands for ``Dataset`` while a class is pickled; unpickled as it, or as the stand-in."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _base, ()


def bases_of(kind: type) -> tuple[Any, ...]:
    """The bases of a class as they are to be pickled."""
    module = sys.modules.get(_DATASET)
    real = getattr(module, "Dataset", None)
    if real is None or type(kind) is not type or not _is_as_known(real):
        return kind.__bases__
    return tuple(Base() if each is real else each for each in kind.__bases__)


def _is_as_known(real: Any) -> bool:
    """Whether there is nothing in torch's class that the stand-in does not have."""
    own = {name for name, value in vars(real).items() if callable(value)}
    return real.__bases__ == (Generic,) and own <= _KNOWN and type(real) is type


def _base() -> Any:
    return _real() if is_here("torch") else _StandIn


def _real() -> Any:
    from torch.utils.data.dataset import Dataset

    return Dataset


def _torch_came() -> None:
    real = _real()
    for kind in _StandIn.__subclasses__():
        kind.__bases__ = tuple(real if each is _StandIn else each for each in kind.__bases__)


when_imported("torch", _torch_came)
