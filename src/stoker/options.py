"""What Stoker's loader takes beyond torch's: validated when it is given."""

from __future__ import annotations

from typing import Any

import torch

from stoker.errors import ArgumentError
from stoker.sizes import size_bytes

_SEED_LIMIT = 1 << 64
AUTO = "auto"
ON_TIMEOUT = ("raise", "retry", "skip")


class AutoWorkers(int):
    """A number of workers that was chosen automatically, and says so.

    Reads as the int it is. A library that rebuilds a loader from its attributes passes it on,
    and the new loader goes on choosing.
    """

    def __repr__(self) -> str:
        return f"{int(self)} (auto)"


class AutoFlag(int):
    """A False that nobody has asked for: the loader does what it finds best."""

    def __repr__(self) -> str:
        return "False"


def num_workers(value: Any) -> Any:
    """Checks the argument ``num_workers``.

    Returns:
        An `AutoWorkers` for "auto" and for a number that was chosen automatically, else the
        value, which torch checks.

    Raises:
        TypeError: It is a string, and not "auto".
    """
    if isinstance(value, AutoWorkers):
        return AutoWorkers(0)
    if isinstance(value, str):
        if value != AUTO:
            raise TypeError(
                f"num_workers option should be an int or 'auto', but got num_workers={value!r}"
            )
        return AutoWorkers(0)
    return value


def memory_limit(value: Any) -> int | None:
    """Checks the argument ``memory_limit``.

    Returns:
        None, or the limit in bytes.

    Raises:
        TypeError: It is neither None, an integer nor a string.
        ArgumentError: It is not positive, or a string that is no size.
    """
    if value is None:
        return None
    if isinstance(value, str):
        size = size_bytes(value)
        if size is None:
            raise ArgumentError(
                f"memory_limit option should be a size such as '500MB', '4GB' or '4GiB', "
                f"but got memory_limit={value!r}",
                change="memory_limit=",
            )
        limit = size
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            "memory_limit option should be an int (bytes), a string or None, "
            f"but got memory_limit={value!r}"
        )
    else:
        limit = value.__index__()
    if limit <= 0:
        raise ArgumentError(
            f"memory_limit option should be positive, but got memory_limit={value!r}",
            change="memory_limit=",
        )
    return limit


def max_restarts(value: Any) -> int:
    """Checks the argument ``max_restarts``.

    Returns:
        The number.

    Raises:
        TypeError: It is no integer.
        ArgumentError: It is negative.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"max_restarts option should be an int, but got max_restarts={value!r}")
    number: int = value.__index__()
    if number < 0:
        raise ArgumentError(
            f"max_restarts option should be non-negative, but got max_restarts={number}",
            change="max_restarts=; 0 replaces no worker",
        )
    return number


def on_timeout(value: Any) -> Any:
    """Checks the argument ``on_timeout``.

    Returns:
        "raise", "retry" or "skip".

    Raises:
        TypeError: It is no string.
        ArgumentError: It is another one (a ValueError).
    """
    if not isinstance(value, str):
        raise TypeError(f"on_timeout option should be a string, but got on_timeout={value!r}")
    if value not in ON_TIMEOUT:
        raise ArgumentError(
            f"on_timeout option should be 'raise', 'retry' or 'skip', but got on_timeout={value!r}",
            change="on_timeout=",
        )
    return value


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
