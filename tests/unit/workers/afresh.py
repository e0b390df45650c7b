"""What has been sent by value, in this process, as it would be in one that knows none of it."""

from __future__ import annotations

import weakref
from typing import Any
from unittest import mock

import cloudpickle.cloudpickle as cloudpickle  # type: ignore[import-untyped]

from stoker.workers import by_value


def sent(thing: Any) -> Any:
    """It again, from a pickle. Classes are made again, too: here nobody knows their numbers."""
    data = by_value.dumps(thing)
    with (
        mock.patch.object(
            cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", weakref.WeakValueDictionary()
        ),
        mock.patch.object(
            cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", weakref.WeakKeyDictionary()
        ),
    ):
        return by_value.loads(data)
