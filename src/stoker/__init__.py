"""Stoker: a PyTorch data loader whose batches do not depend on its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.host import affinity as _affinity  # noqa: F401  # Remembers what it is at first.

if TYPE_CHECKING:
    from stoker.loader import DataLoader
    from stoker.options import REPLACE, SKIP
    from stoker.per_process import per_worker
    from stoker.records.packing import packed

__all__ = ["REPLACE", "SKIP", "DataLoader", "__version__", "packed", "per_worker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Imports the loader, and with it torch, when it is first asked for: the command isn't slow."""
    if name == "packed":
        from stoker.records.packing import packed

        return globals().setdefault(name, packed)
    if name == "per_worker":
        from stoker.per_process import per_worker

        return globals().setdefault(name, per_worker)
    if name not in ("DataLoader", "REPLACE", "SKIP"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stoker.loader import DataLoader
    from stoker.options import REPLACE, SKIP

    globals().update(DataLoader=DataLoader, REPLACE=REPLACE, SKIP=SKIP)
    return globals()[name]
