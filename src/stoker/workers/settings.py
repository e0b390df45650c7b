"""What the program has set in its own modules: it is set in a fresh worker too.

Numbers, strings, plain containers and dictionaries of settings. What can't be kept: objects of
other kinds that the program has put into a module. Of installed packages see `libraries`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from argparse import Namespace
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (tuple, list, set, frozenset)
_SETTINGS_LIMIT = 10_000


class Settings:
    """What is set in some modules, and in their classes.

    Args:
        modules: Their names.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self._left = _SETTINGS_LIMIT
        self._of: dict[tuple[str, str], dict[str, Any]] = {}
        for name in sorted(modules & sys.modules.keys()):
            self._of[name, ""] = self._settings(sys.modules[name])
            for key, value in list(vars(sys.modules[name]).items()):
                if isinstance(value, type) and value.__module__ == name:
                    self._of[name, key] = self._settings(value)

    def _settings(self, place: Any) -> dict[str, Any]:
        held = list(vars(place).items())
        return {k: v for k, v in held if not k.startswith("__") and self._is_setting(v)}

    def _is_setting(self, value: Any) -> bool:
        self._left -= 1
        if self._left < 0 or isinstance(value, _PLAIN):
            return self._left >= 0
        if isinstance(value, (Namespace, SimpleNamespace)):
            return self._is_setting(vars(value))
        if isinstance(value, dict):
            return all(map(self._is_setting, value)) and all(map(self._is_setting, value.values()))
        return type(value) in _CONTAINERS and all(map(self._is_setting, value))

    def put_in_place(self) -> None:
        """Sets the same in this process, and imports those modules for it."""
        for (module, name), values in self._of.items():
            place: Any = importlib.import_module(module)
            place = vars(place).get(name, place) if name else place
            for key, value in values.items():
                now = getattr(place, key, place)
                if type(now) is not type(value) or now != value:
                    with contextlib.suppress(AttributeError, TypeError):  # A class that is frozen.
                        setattr(place, key, value)
