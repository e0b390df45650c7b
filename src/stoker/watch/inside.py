"""What happens in a process of the program once torch has been imported."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from stoker.watch.fallbacks import check_torch
from stoker.watch.settings import Settings

_MODES = {"tune": "stoker.watch.tuned", "run": "stoker.watch.serving"}
_installed = False


def install(settings: Settings) -> None:
    """Put the program's loaders under Stoker's care; once in a process and its forks.

    Raises:
        Exception: It could not be done; torch is then as it was.
    """
    global _installed
    if not _installed:
        _mode(settings).install(settings)
        _installed = True


def install_here() -> None:
    """The same, as this process's environment says.

    Raises:
        Exception: As `install`.
    """
    settings = Settings.here()
    if settings is not None:
        install(settings)


def prepare() -> None:
    """Import what `install_here` will want.

    Raises:
        Exception: As `install`.
    """
    settings = Settings.here()
    if settings is not None:
        _mode(settings)


def _mode(settings: Settings) -> Any:
    check_torch(str(sys.modules["torch"].__version__))
    return importlib.import_module(_MODES[settings.mode])
