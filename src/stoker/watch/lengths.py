"""How many batches an epoch of a loader has, as PyTorch's own iterator counts them."""

from __future__ import annotations

from typing import Any

from stoker.tuning.loader_facts import is_iterable


def length_known(loader: Any, counted: int | None) -> int | None:
    """Batches of one epoch; None where that is not known, or it never ends.

    A loader's own ``__len__`` may count something else: what PyTorch's iterator goes through
    is its index sampler.

    Args:
        loader: The program's loader.
        counted: What an earlier epoch had.
    """
    if is_iterable(loader):
        return counted if counted is not None else _of_data_set(loader)
    try:
        length: int = len(loader._index_sampler)
        return length
    except Exception:  # a sampler without a length; or the user's own __len__ raises
        return counted


def _of_data_set(loader: Any) -> int | None:
    """Not ``len(loader)``, which makes PyTorch warn where it proves wrong."""
    try:
        samples: int = len(loader.dataset)
    except Exception:
        return None
    if loader.batch_size is None:
        return samples
    whole, rest = divmod(samples, loader.batch_size)
    return int(whole + bool(rest and not loader.drop_last))
