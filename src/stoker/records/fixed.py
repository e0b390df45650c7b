"""What says that a pack does not change, and what to do."""

from __future__ import annotations

from typing import Any, NoReturn

from stoker.errors import PackIsFixed

_CHANGE = "list(packed) or dict(packed), to have one that changes; stoker.packed() packs it again"


class Fixed:
    """Refuses what would change it. A copy of it is itself."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise _refusal()

    def __delitem__(self, key: Any) -> NoReturn:
        raise _refusal()

    def __getattr__(self, name: str) -> NoReturn:
        kind = type(self)
        words = f"{kind.__name__!r} object has no attribute {name!r}"
        if hasattr(list, name) or hasattr(dict, name):
            words += f": packed records do not change; {_CHANGE}"
        raise AttributeError(words, name=name, obj=self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _refusal() -> PackIsFixed:
    return PackIsFixed(
        "Packed records do not change: an item can't be set or deleted",
        doing="setting or deleting an item of what stoker.packed() gave",
        change=_CHANGE,
    )
