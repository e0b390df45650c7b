"""Stoker: a PyTorch data loader whose batches do not depend on its workers."""

from __future__ import annotations

from stoker.loader import DataLoader

__all__ = ["DataLoader", "__version__"]
__version__ = "0.1.0"
