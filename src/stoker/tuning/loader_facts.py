"""What a loader of the user's program tells about itself."""

from __future__ import annotations

from typing import Any

import torch.utils.data

from stoker.options import AutoWorkers
from stoker.tuning.result import LoaderFacts


def is_iterable(loader: Any) -> bool:
    """Whether its data set is iterated and not indexed."""
    return isinstance(loader.dataset, torch.utils.data.IterableDataset)


def length_of(loader: Any) -> int | None:
    """``len(loader)`` where it has one; not asked of iterable data sets, whose answer is a guess
    and makes torch warn when it proves wrong.
    """
    if is_iterable(loader):
        return None
    try:
        return len(loader)
    except Exception:  # the user's own __len__ may raise anything; nothing depends on it
        return None


def facts_of(loader: Any) -> LoaderFacts:
    """The loader as its user made it."""
    kind = type(loader)
    return LoaderFacts(
        kind=f"{kind.__module__}.{kind.__qualname__}",
        num_workers=int(loader.num_workers),
        automatic=isinstance(loader.num_workers, AutoWorkers),
        batch_size=loader.batch_size,
        epoch_batches=length_of(loader),
        persistent_workers=bool(loader.persistent_workers),
        torch=str(torch.__version__),
        iterable=is_iterable(loader),
    )
