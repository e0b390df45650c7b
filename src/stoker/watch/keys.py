"""Tells apart the loaders that one line of a program makes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

from stoker.tuning.answer import Site

Key = tuple[str, int, str, str, int | None, int | None]
MOST_A_LINE = 8
"""Kinds of loaders of one line; a data set that has another length every time is one kind."""


class Keys:
    """See the module: by class, length and batch size; the same data set is always the same."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, int], set[Key]] = defaultdict(set)
        self._of: dict[int, tuple[weakref.ref[Any], tuple[str, int, int | None], Key]] = {}

    def key(self, site: Site, loader: Any) -> Key:
        """What says which loaders are measured together."""
        dataset, line = loader.dataset, (site.file, site.line, loader.batch_size)
        known = self._of.get(id(dataset))
        if known is not None and known[0]() is dataset and known[1] == line:
            return known[2]
        key = self._new(site, loader)
        try:
            held = weakref.ref(dataset)
        except TypeError:
            return key
        if len(self._of) > 1000:
            self._of = {at: each for at, each in self._of.items() if each[0]() is not None}
        if len(self._of) <= 1000:
            self._of[id(dataset)] = held, line, key
        return key

    def _new(self, site: Site, loader: Any) -> Key:
        kinds = self._kinds[site.file, site.line]
        key = key_of(site, loader)
        if key not in kinds and len(kinds) >= MOST_A_LINE:
            return site.file, site.line, site.library, "", None, None
        kinds.add(key)
        return key


def key_of(site: Site, loader: Any) -> Key:
    """Line, class and length of the data set, and batch size."""
    kind = type(loader.dataset)
    try:
        length: int | None = len(loader.dataset)
    except Exception:
        length = None
    name = f"{kind.__module__}.{kind.__qualname__}"
    return site.file, site.line, site.library, name, length, loader.batch_size
