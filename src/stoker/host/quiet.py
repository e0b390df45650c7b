"""Warnings kept quiet for a moment, without what `warnings.catch_warnings` does besides.

When that ends, Python forgets which warnings it has shown, and shows the program's own again: once
for each loader, or each epoch. A filter that is put in and taken out by hand does not.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def quiet(category: type[Warning], message: str = "") -> Iterator[None]:
    """None of these warnings is shown, or an error, meanwhile; in any thread.

    Args:
        category: Of what class they are.
        message: A regular expression that their text begins with.
    """
    entry = ("ignore", re.compile(message, re.IGNORECASE), category, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # Somebody has cleared them all.
            filters.remove(entry)
