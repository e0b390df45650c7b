"""What the program has set in the standard library and in installed packages, for fresh workers.

The constants of packages: ``PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True`` has to hold in a worker
too. Nobody knows which of them the program has set; so all of an imported package are told, and a
worker sets those that differ, in what it imports itself, as it imports it. A forked worker has them
all as well. And a few settings that can only be had by calls. What can't be kept: other objects
that the program has put into an installed package, such as functions in place of others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, NamedTuple

from stoker.host.arriving import when_imported

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LIMIT = 20_000
_WITHOUT = {"torch", "torchgen", "numpy", "stoker", "cloudpickle", "pickle"}
"""Packages with no constants that one sets, or whose own have to do with this process."""


class _Setting(NamedTuple):
    """How a library's setting is read and set, given the library."""

    read: Callable[[Any], Any]
    set: Callable[[Any, Any], object]


def _numpy_prints(numpy: Any) -> Any:
    told = numpy.get_printoptions()
    return told if told.get("formatter") is None else None  # Functions, of whatever kind.


def _set_level_names(logging: Any, told: dict[int, str]) -> None:
    for level, name in told.items():
        logging.addLevelName(level, name)


_SETTINGS = {
    "decimal": _Setting(
        lambda decimal: decimal.getcontext().copy(),
        lambda decimal, told: decimal.setcontext(told.copy()),
    ),
    "socket": _Setting(
        lambda socket: socket.getdefaulttimeout(),
        lambda socket, told: socket.setdefaulttimeout(told),
    ),
    "logging": _Setting(
        lambda logging: {n: logging.getLevelName(n) for n in getattr(logging, "_levelToName", ())},
        _set_level_names,
    ),
    "numpy": _Setting(_numpy_prints, lambda numpy, told: numpy.set_printoptions(**told)),
    "torch": _Setting(
        lambda torch: dict(vars(torch._tensor_str.PRINT_OPTS)),
        lambda torch, told: vars(torch._tensor_str.PRINT_OPTS).update(told),
    ),
}


class Libraries:
    """What is set in libraries now.

    Args:
        own: Modules that are the program's own, whose state goes along otherwise.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._told = {
            name: told for name, setting in _SETTINGS.items()
            if name in sys.modules and (told := setting.read(sys.modules[name])) is not None
        }  # fmt: skip
        self._constants: dict[str, dict[str, Any]] = {}
        left = _LIMIT
        for name, module in list(sys.modules.items()):
            if left > 0 and type(module) is ModuleType and name not in own and _is_asked(name):
                found = {k: v for k, v in list(vars(module).items()) if _is_constant(k, v)}
                left -= len(found)
                if found:
                    self._constants[name] = found

    def apply(self) -> None:
        """Sets the same in this process; in what is not imported yet as soon as it is."""
        for name in self._told:
            when_imported(name, functools.partial(self._set, name))
        for name in self._constants:
            when_imported(name, functools.partial(self._set_constants, name))

    def _set(self, name: str) -> None:
        setting, module = _SETTINGS[name], sys.modules[name]
        if setting.read(module) != self._told[name]:
            setting.set(module, self._told[name])

    def _set_constants(self, name: str) -> None:
        names = vars(sys.modules[name])
        for key, value in self._constants[name].items():
            now = names.get(key, _SETTINGS)
            if type(now) is not type(value) or now != value:
                names[key] = value


def _is_asked(module: str) -> bool:
    package = module.partition(".")[0]
    return not (
        package in _WITHOUT
        or package in sys.stdlib_module_names
        or package in sys.builtin_module_names
        or package.startswith("__")
    )


def _is_constant(name: str, value: Any) -> bool:
    return name.isupper() and not name.startswith("_") and isinstance(value, _PLAIN)
