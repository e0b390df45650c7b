"""What Stoker's loader takes beyond torch's: validated when it is given."""

from __future__ import annotations

from typing import Any

import torch

from stoker.errors import ArgumentError

_SEED_LIMIT = 1 << 64


def seed(value: Any) -> int | None:
    """Checks the argument ``seed``.

    Returns:
        None, or the seed as an int in [0, 2**64).

    Raises:
        TypeError: It is neither None nor an integer.
        ArgumentError: It is out of range (a ValueError).
    """
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"seed option should be an int or None, but got seed={value!r}")
    number: int = value.__index__()
    if not 0 <= number < _SEED_LIMIT:
        raise ArgumentError(
            f"seed option should be in [0, 2**64), but got seed={number}",
            change="seed=",
        )
    return number


def own_generator(seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    """The generator a loader with these two arguments draws from.

    Both may be given when they agree: a library that rebuilds a loader from its attributes
    passes the loader's own generator on.

    Raises:
        ArgumentError: Both are given and `generator` was not seeded with `seed`.
    """
    if seed is None:
        return generator
    if generator is None:
        return torch.Generator().manual_seed(seed)
    if generator.initial_seed() % _SEED_LIMIT != seed:
        raise ArgumentError(
            f"seed option is mutually exclusive with generator: seed={seed}, but the generator "
            f"was seeded with {generator.initial_seed()}",
            change="leave out seed= or generator=",
        )
    return generator


def prefetch_of_zero() -> ArgumentError:
    """The error for ``prefetch_factor=0``, which torch takes and fails on later."""
    return ArgumentError(
        "prefetch_factor option should be at least 1 with workers, but got prefetch_factor=0",
        change="prefetch_factor=, or num_workers=0 to load nothing in advance",
    )
