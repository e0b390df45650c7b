"""What Stoker itself makes and iterates while it watches: no loader of the program's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_inside = threading.local()


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Loaders that this thread makes or iterates within are Stoker's own affair."""
    before = is_unwatched()
    _inside.on = True
    try:
        yield
    finally:
        _inside.on = before


def is_unwatched() -> bool:
    """Whether this thread is within `unwatched`."""
    return bool(getattr(_inside, "on", False))
