"""Which line of the user's code made a loader, whoever called ``DataLoader`` for it.

The line is the innermost one outside torch, Stoker, the standard library and installed
packages. A loader that a library makes anew from the user's own has the line of the first.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
import weakref
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from stoker.tuning.answer import Site

UNKNOWN = Site("<unknown>", 0, "<unknown>", "")
_MOST = 512
_MOST_FRAMES = 200
_PACKAGES = ("site-packages", "dist-packages")
_OWN = str(Path(__file__).parents[1]) + os.sep
# They wrap the constructor of what user code calls; the call is the user's all the same.
_WRAPPERS = ("lightning", "lightning_fabric", "pytorch_lightning")
_INNER, _USER = "inner", ""  # every other kind is a library's name

_kinds: dict[str, str] = {}
_known: dict[tuple[str, int, str], Site] = {}


def site_of_caller(made: object = None) -> Site:
    """Where in the user's code this is being called from; a few microseconds.

    Args:
        made: The object under construction. Constructors of its own classes are passed over,
            so that the line is the one that makes it.
    """
    library, calling, outside = "", True, None
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        kind = _kind(frame)
        if kind != _INNER and not _is_passed_over(frame, kind, made):
            if kind == _USER:
                return _named(_site(frame), library)
            if calling:
                library, calling = kind, False
            outside = outside or frame
        frame = frame.f_back
    return UNKNOWN if outside is None else _named(_site(outside), library)


def _named(site: Site, library: str) -> Site:
    return replace(site, library=library) if library else site


def _is_passed_over(frame: FrameType, kind: str, made: object) -> bool:
    code = frame.f_code
    if kind in _WRAPPERS and code.co_name == "wrapper":
        return True
    if made is None or code.co_name != "__init__" or not code.co_varnames:
        return False
    return frame.f_locals.get(code.co_varnames[0]) is made


def _kind(frame: FrameType) -> str:
    """Whose code a frame runs: the user's, a library's by name, or nobody's of interest."""
    file = frame.f_code.co_filename
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _kind_of_file(file)
        if len(_kinds) > _MOST * 8:
            _kinds.clear()
    if kind not in (_INNER, _USER) and frame.f_globals.get("__name__") == "__main__":
        return _USER  # an installed program that was started by python -m
    return kind


def _kind_of_file(file: str) -> str:
    if file.startswith(("<frozen ", _OWN)):
        return _INNER
    if file.startswith("<"):
        return _USER  # typed in, or a cell of a notebook
    path = os.path.abspath(file)
    parts = path.split(os.sep)
    for folder in _PACKAGES:
        if folder in parts[:-1]:
            at = len(parts) - 1 - parts[::-1].index(folder)
            name = parts[at + 1].removesuffix(".py")
            return _INNER if name == "torch" else name
    return _INNER if path.startswith(_standard_library()) else _USER


def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = (paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__))
    return tuple(os.path.join(folder, "") for folder in folders)


def _site(frame: FrameType) -> Site:
    code, line = frame.f_code, frame.f_lineno
    key = (code.co_filename, line, code.co_name)
    found = _known.get(key)
    if found is None:
        text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        found = Site(code.co_filename, line, code.co_name, text)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return found


class Sites:
    """Remembers which line a data set's first loader was made at; threads may share it.

    Args:
        most: How many data sets are remembered.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._origins: OrderedDict[int, tuple[weakref.ref[Any], Site, Any]] = OrderedDict()

    def site(self, dataset: object, made: object = None) -> Site:
        """The line for a loader that is being made now, from this data set."""
        site = site_of_caller(made)
        origin = self._origin(dataset) if site.library else None
        return origin[0] if origin is not None else site

    def remember(self, dataset: object, loader: object, site: Site, told: Any = None) -> None:
        """This loader was made from this data set at this line; the first one counts.

        Args:
            dataset: Its data set.
            loader: The loader. A data set that can't be referred to weakly is known as long
                as this lives.
            site: Its line.
            told: Whatever `told` is to give back.
        """
        if self._origin(dataset) is not None:
            return
        try:
            held = weakref.ref(dataset)
        except TypeError:
            held = weakref.ref(loader)
        # Without a lock: one that another thread holds while this process forks is never free.
        self._origins[id(dataset)] = (held, site, told)
        while len(self._origins) > self._most:
            with contextlib.suppress(KeyError):
                self._origins.popitem(last=False)

    def told(self, dataset: object) -> Any:
        """What `remember` was told with the first loader of this data set; None without one."""
        origin = self._origin(dataset)
        return None if origin is None else origin[1]

    def _origin(self, dataset: object) -> tuple[Site, Any] | None:
        for each in (dataset, getattr(dataset, "dataset", None)):  # a library may wrap it
            found = self._origins.get(id(each))
            if found is not None and _is_of(found[0](), each):
                return found[1], found[2]
        return None


def _is_of(held: object, dataset: object) -> bool:
    """Whether what is held is the data set, or a loader of it."""
    return held is not None and (held is dataset or getattr(held, "dataset", None) is dataset)
