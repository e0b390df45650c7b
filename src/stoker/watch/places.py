"""Where a stack of frames spends its time: the user's line, and what it calls.

Only frames below the loader's are looked at. Above them are the training loop, and in a forked
worker all that the main process was in when it forked.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from types import FrameType
from typing import Literal, NamedTuple

Owner = Literal["user", "library", "torch", "standard", "loader"]

_PACKAGES = {"site-packages", "dist-packages"}
_LOADER = ("_utils/fetch.py", "_utils/worker.py", "_utils/pin_memory.py", "dataloader.py")
_NOT_FETCHING = ("worker.py", "pin_memory.py", "dataloader.py")
_MOST_FILES = 2000
_MOST_FRAMES = 200


class Place(NamedTuple):
    """What a look found; the empty `file` is the loader's own work.

    Attributes:
        file: The file of the innermost frame of the user's code; without any, of a library's.
        line: Its line, from 1.
        function: The function that the line is in, as "Pictures.__getitem__".
        callee: The deepest function of a library below it, as "PIL.Image.Image.resize".
        collating: Whether that was below the collate function.
    """

    file: str
    line: int
    function: str
    callee: str
    collating: bool


class Places:
    """Finds places, and keeps whose file is whose. Its memory is bounded."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._standard = _standard_folders()
        self._own = _as_folder(os.path.dirname(os.path.dirname(__file__)))

    def place(self, innermost: FrameType) -> Place | None:
        """Where this stack is; None where it is not below a loader. Some microseconds."""
        below: list[tuple[FrameType, Owner]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(below) < _MOST_FRAMES:
            owner = self.owner(frame.f_code.co_filename)
            if owner == "loader":
                fetches = not frame.f_code.co_filename.endswith(_NOT_FETCHING)
                return _place(below, fetches, _collates(frame))
            below.append((frame, owner))
            frame = frame.f_back
        return None if frame is None else _place(below, False, False)

    def owner(self, file: str) -> Owner:
        """Whose code a file is, from its path."""
        known = self._owners.get(file)
        if known is None:
            if len(self._owners) >= _MOST_FILES:
                self._owners.clear()
            known = self._owners[file] = self._find_owner(file)
        return known

    def _find_owner(self, file: str) -> Owner:
        path = os.path.normcase(file).replace("\\", "/")
        if path.startswith(self._own):
            return "loader"
        if "/torch/" in path and _is_torch(path):
            data = path.rpartition("/torch/utils/data/")[2]
            return "loader" if data in _LOADER else "torch"
        if not _PACKAGES.isdisjoint(path.split("/")):
            return "library"
        if path.startswith(("<frozen ", *self._standard)):
            return "standard"
        return "user"


def _is_torch(path: str) -> bool:
    torch = sys.modules.get("torch")  # an import would wait for one of the watched thread
    return path.startswith(_as_folder(os.path.dirname(getattr(torch, "__file__", None) or "")))


def _standard_folders() -> tuple[str, ...]:
    found = (sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib"))
    return tuple({_as_folder(os.path.dirname(os.__file__)), *map(_as_folder, filter(None, found))})


def _as_folder(path: str) -> str:
    return os.path.normcase(path).replace("\\", "/").rstrip("/") + "/"


def _collates(loader: FrameType) -> bool:
    line = linecache.getline(loader.f_code.co_filename, loader.f_lineno or 0)
    return "collate" in line


def _place(below: list[tuple[FrameType, Owner]], fetches: bool, collating: bool) -> Place:
    """Of the frames below a loader's, innermost first."""
    at = _chosen(below, fetches)
    if at is None:
        return Place("", 0, "", "", collating)
    frame = below[at][0]
    return Place(
        frame.f_code.co_filename,
        frame.f_lineno or frame.f_code.co_firstlineno,
        _function(frame),
        _callee(below[:at]),
        collating,
    )


def _chosen(below: list[tuple[FrameType, Owner]], fetches: bool) -> int | None:
    """The user's innermost; of an installed data set the library's; of torch's the outermost.

    What a loader calls of torch's or Python's to wait for work or to send it is its own work.
    """
    for wanted in ("user", "library", "standard") if fetches else ("user", "library"):
        for at, (_, owner) in enumerate(below):
            if owner == wanted:
                return at
    return len(below) - 1 if below and fetches else None


def _callee(below: list[tuple[FrameType, Owner]]) -> str:
    installed = (frame for frame, owner in below if owner in ("library", "torch"))
    deepest = next(installed, below[0][0] if below else None)
    if deepest is None:
        return ""
    return f"{deepest.f_globals.get('__name__', '?')}.{_function(deepest)}"


def _function(frame: FrameType) -> str:
    """Its qualified name without what is nested in it: lambdas, comprehensions."""
    code = frame.f_code
    name: str = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
    while name.endswith(">") and ".<locals>." in name:
        name = name.rpartition(".<locals>.")[0]
    return name.replace(".<locals>", "")
