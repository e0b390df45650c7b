"""What is done when this process is copied; nothing, on systems that copy none."""

from __future__ import annotations

import os
from collections.abc import Callable


def at_fork(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """Has functions called at every fork from now on, as `os.register_at_fork` does.

    Args:
        before: In this process, before it is copied.
        after_in_parent: In this process, when it has been.
        after_in_child: In the copy.
    """
    if not hasattr(os, "register_at_fork"):
        return
    given = {
        "before": before,
        "after_in_parent": after_in_parent,
        "after_in_child": after_in_child,
    }
    os.register_at_fork(**{name: act for name, act in given.items() if act is not None})
