"""Enumerations that go along by value: what their members were given when they were made.

cloudpickle makes members of their values alone, before the class has its functions. So what
``__init__`` and ``__new__`` have set on them is sent along.
"""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]

_OF_ANY = {"_value_", "_name_", "__objclass__", "_sort_order_"}
_cloudpickle: Any = cloudpickle.cloudpickle


def with_members(kind: Any, reduced: Any) -> Any:
    """What cloudpickle has for a class; of an enumeration, with its members' attributes."""
    if not isinstance(reduced, tuple) or reduced[0] is not _cloudpickle._make_skeleton_enum:
        return reduced
    given = {
        name: {key: value for key, value in vars(member).items() if key not in _OF_ANY}
        for name, member in kind.__members__.items()
    }
    if not any(given.values()):
        return reduced
    make, arguments, state, items, pairs, fill = reduced
    return make, arguments, (fill, state, given), items, pairs, _filled


def _filled(kind: Any, state: tuple[Any, Any, dict[str, dict[str, Any]]]) -> None:
    fill, attributes, given = state
    fill(kind, attributes)
    for name, values in given.items():
        vars(kind.__members__[name]).update(values)
