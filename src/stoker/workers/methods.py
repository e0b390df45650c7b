"""How the workers of a loader are to come up: what its arguments say."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch.multiprocessing

from stoker.errors import ProgramUnguarded
from stoker.host import rerun
from stoker.workers.fresh import FreshContext


def context_of(loader: Any) -> Any:
    """The context for the next workers of a loader: one of multiprocessing's, or torch's module.

    Args:
        loader: With torch's ``multiprocessing_context``, and maybe our ``worker_method``.

    Raises:
        ProgramUnguarded: This is a copy of a frozen application that should be a worker.
    """
    if rerun.is_stray():
        raise ProgramUnguarded(
            f"No worker can be started: {rerun.NOT_CALLED}",
            doing="starting workers of a frozen application",
            likely="it does not call multiprocessing.freeze_support()",
            change=rerun.CALL,
        )
    if loader.multiprocessing_context is not None:
        return loader.multiprocessing_context
    method = getattr(loader, "worker_method", "auto")
    if method == "fresh" or (method == "auto" and _is_fresh_by_itself()):
        return FreshContext()
    return torch.multiprocessing if method == "auto" else multiprocessing.get_context(method)


def _is_fresh_by_itself() -> bool:
    """Whether nobody has said how processes start, and the system would not copy this one."""
    default = multiprocessing.get_all_start_methods()[0]
    chosen = multiprocessing.get_start_method(allow_none=True)
    forks = default == "fork" and sys.platform == "linux"
    return not forks and chosen in (None, default)
