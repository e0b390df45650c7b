"""Log records and warnings of workers, as the main process shows them.

A record goes to the logger it was made for, with its level, time and place; the process's own
levels, filters and handlers decide. A warning is shown as if the main process had warned: once for
its text and place, however many workers have it, unless its filters say otherwise. Both end with
the worker's number.
"""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings
from typing import Any

from stoker.workers.messages import Told

_MOST_REMEMBERED = 1000
_EVERY_TIME = ("always", "all", "error")


def hear(told: Told) -> None:
    """Shows what a worker has told. What a handler raises is printed, and goes no further."""
    try:
        if told.kind == "log":
            _log(told.worker, told.what)
        elif told.kind == "warning":
            _SHOWN.warn(told.worker, told.what)
    except Exception:  # Handlers and filters are the user's.
        traceback.print_exc()


def _log(worker: int, what: dict[str, Any]) -> None:
    logger = logging.root if what["name"] == "root" else logging.getLogger(what["name"])
    if logger.isEnabledFor(what["levelno"]):
        text = f"{what['msg']} (DataLoader worker {worker})"
        record = logging.makeLogRecord({**what, "msg": text, "dataloader_worker": worker})
        logger.handle(record)


class _Shown:
    """Which warnings were shown: forgotten, as Python does, when the filters are replaced."""

    def __init__(self) -> None:
        self._keys: set[tuple[object, ...]] = set()
        self._filters: object = None
        self._entries: list[Any] = []

    def warn(self, worker: int, what: dict[str, Any]) -> None:
        text, filename, lineno = what["text"], what["filename"], what["lineno"]
        category = _category(what["category"])
        action = _action(text, category, what["module"], lineno)
        if action == "ignore" or not self._is_new(action, text, category, filename, lineno):
            return
        warning: Any = f"{text} (DataLoader worker {worker})"
        try:
            warning = category(warning)
        except Exception:  # It wants more than a text.
            category, warning = Warning, Warning(f"{category.__name__}: {warning}")
        warnings.showwarning(warning, category, filename, lineno)

    def _is_new(
        self, action: str, text: str, category: type[Warning], filename: str, lineno: int
    ) -> bool:
        if action in _EVERY_TIME:
            return True
        if self._filters is not warnings.filters or self._entries != list(warnings.filters):
            self._filters, self._entries = warnings.filters, list(warnings.filters)
            self._keys.clear()
        place = {"once": (), "module": (filename,)}.get(action, (filename, lineno))
        key = (text, category, *place)
        if key in self._keys:
            return False
        if len(self._keys) >= _MOST_REMEMBERED:
            self._keys.clear()
        self._keys.add(key)
        return True


_SHOWN = _Shown()


def _category(data: bytes) -> type[Warning]:
    try:
        category = pickle.loads(data)
    except Exception:  # A class of a module that is not to be had here.
        return Warning
    return category if isinstance(category, type) and issubclass(category, Warning) else Warning


def _action(text: str, category: type[Warning], module: str, lineno: int) -> str:
    """What this process's filters say of a warning, as `warnings.warn_explicit` reads them."""
    for action, message, kind, place, line in list(warnings.filters):
        fits = _fits(message, text) and issubclass(category, kind) and _fits(place, module)
        if fits and line in (0, lineno):
            return action
    return "default"


def _fits(pattern: Any, text: str) -> bool:
    if pattern is None:
        return True
    return pattern == text if isinstance(pattern, str) else pattern.match(text) is not None
