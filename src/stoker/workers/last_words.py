"""The end of what a worker writes to its standard error, kept for when it dies.

What it writes goes where it went before; only what Python code writes is kept beside that. What a
compiled library writes, to the descriptor itself, is not seen.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from stoker.workers.blackbox import BlackBox

_KEPT = 2048  # characters


def keep_last_words(box: BlackBox) -> None:
    """In a worker, once: from now on the box has them."""
    stream: Any = sys.stderr
    write = getattr(stream, "write", None)
    if write is None or not box.is_there:
        return
    said = ""

    def write_and_keep(text: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal said
        with contextlib.suppress(Exception):  # What is no text is refused below, or taken.
            said = (said + text)[-_KEPT:]
            box.keep(said)
        return write(text, *args, **kwargs)

    with contextlib.suppress(AttributeError, TypeError):  # A stream that can't be given one.
        stream.write = write_and_keep
