"""What Stoker's loader takes beyond torch's: validated when it is given."""

from __future__ import annotations

import enum
import multiprocessing
import operator
import os
import sys
from typing import TYPE_CHECKING, Any

from stoker.errors import ArgumentError, ArgumentTypeError
from stoker.sizes import size_bytes

if TYPE_CHECKING:
    import torch

_SEED_LIMIT = 1 << 64
AUTO = "auto"
WORKER_METHODS = (AUTO, "fork", "fresh", "spawn", "forkserver")
_NOT_YET = ("thread", "ray")
FROZEN = frozenset(
    {
        *("seed", "memory_limit", "worker_method", "max_restarts"),
        *("on_timeout", "on_error", "max_errors"),
    }
)
"""Attributes of a loader that can't be set once it is made."""
ON_TIMEOUT = ("raise", "retry", "skip")
DEBUG_VARIABLE = "STOKER_DEBUG"
_LIMITS = "memory_limit='4GB' or another size, a number of bytes, or None"
_METHODS = "worker_method='auto', or 'fresh' for new processes, or another of these"
_ON_TIMEOUT = "on_timeout='raise' for an error, 'retry' to make it again, 'skip' to leave it out"
_ON_ERROR = (
    "on_error='raise' for an error, 'skip' to leave the sample out, 'replace' to read another, or "
    "a function such as lambda index, error: stoker.SKIP"
)
_MAX_ERRORS = "max_errors=100 samples, 0.01 of them, or None for any number"
_SEED = "seed=0, or another number from 0 to 2**64 - 1; or None for torch's global generator"
_NO = ("", "0", "false", "no", "off")


class Instead(enum.Enum):
    """What a function given as ``on_error`` may return instead of a sample.

    Attributes:
        SKIP: The sample is left out.
        REPLACE: Another sample is read in its place.
    """

    SKIP = "skip"
    REPLACE = "replace"


SKIP, REPLACE = Instead.SKIP, Instead.REPLACE


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


class WouldPersist(int):
    """A False in place of a True, where there are no workers that could persist.

    Epochs share a base seed all the same, as those of persistent workers do.
    """

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
            raise ArgumentTypeError(
                f"num_workers option should be an int or 'auto', but got num_workers={value!r}",
                change="num_workers='auto', or a number from 0 on",
            )
        return AutoWorkers(0)
    return value


def _index(value: Any) -> int | None:
    """The integer that a value is; None where it is none, or a bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several
        return None


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
                change=_LIMITS,
            )
        limit = size
    else:
        number = _index(value)
        if number is None:
            raise ArgumentTypeError(
                "memory_limit option should be an int (bytes), a string or None, "
                f"but got memory_limit={value!r}",
                change=_LIMITS,
            )
        limit = number
    if limit <= 0:
        raise ArgumentError(
            f"memory_limit option should be positive, but got memory_limit={value!r}",
            change=_LIMITS,
        )
    return limit


def worker_method(value: Any, context: Any) -> Any:
    """Checks the argument ``worker_method``.

    Args:
        value: As given.
        context: As given for ``multiprocessing_context``: None, a name, or a context.

    Returns:
        One of `WORKER_METHODS`.

    Raises:
        TypeError: It is no string.
        ArgumentError: It is another one, is not to be had here, or `context` says otherwise.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(
            f"worker_method option should be a string, but got worker_method={value!r}",
            change=_METHODS,
        )
    if value not in WORKER_METHODS:
        not_yet = "; there is no such worker yet" if value in _NOT_YET else ""
        raise ArgumentError(
            f"worker_method option should be one of {', '.join(map(repr, WORKER_METHODS))}, but "
            f"got worker_method={value!r}{not_yet}",
            change=_METHODS,
        )
    if value not in (AUTO, "fresh") and value not in multiprocessing.get_all_start_methods():
        raise ArgumentError(
            f"worker_method={value!r} is not to be had on {sys.platform}",
            change="worker_method='auto', or 'fresh'",
        )
    named = context if isinstance(context, str) else getattr(context, "_name", None)
    if context is not None and value not in (AUTO, named):
        raise ArgumentError(
            f"worker_method option is mutually exclusive with multiprocessing_context: got "
            f"worker_method={value!r} and multiprocessing_context={context!r}",
            change=f"worker_method={value!r} alone, or multiprocessing_context= alone",
        )
    return value


def max_restarts(value: Any) -> int:
    """Checks the argument ``max_restarts``.

    Returns:
        The number.

    Raises:
        TypeError: It is no integer.
        ArgumentError: It is negative.
    """
    number = _index(value)
    if number is None:
        raise ArgumentTypeError(
            f"max_restarts option should be an int, but got max_restarts={value!r}",
            change="max_restarts=3, or a number from 0 on; 0 replaces no worker",
        )
    if number < 0:
        raise ArgumentError(
            f"max_restarts option should be non-negative, but got max_restarts={number}",
            change="max_restarts=3, or a number from 0 on; 0 replaces no worker",
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
        raise ArgumentTypeError(
            f"on_timeout option should be a string, but got on_timeout={value!r}",
            change=_ON_TIMEOUT,
        )
    if value not in ON_TIMEOUT:
        raise ArgumentError(
            f"on_timeout option should be 'raise', 'retry' or 'skip', but got on_timeout={value!r}",
            change=_ON_TIMEOUT,
        )
    return value


def on_error(value: Any) -> Any:
    """Checks the argument ``on_error``.

    Returns:
        None for "raise", an `Instead` for "skip" and "replace", else the function.

    Raises:
        TypeError: It is neither a string nor callable.
        ArgumentError: It is another string.
    """
    if isinstance(value, str):
        if value == "raise":
            return None
        try:
            return Instead(value)
        except ValueError:
            raise ArgumentError(
                "on_error option should be 'raise', 'skip', 'replace' or a function of an index "
                f"and an exception, but got on_error={value!r}",
                change=_ON_ERROR,
            ) from None
    if not callable(value):
        raise ArgumentTypeError(
            "on_error option should be 'raise', 'skip', 'replace' or a function of an index and "
            f"an exception, but got on_error={value!r}",
            change=_ON_ERROR,
        )
    return value


def max_errors(value: Any, on_error: Any) -> int | float | None:
    """Checks the argument ``max_errors``.

    Args:
        value: As given.
        on_error: As `on_error` returns it.

    Returns:
        None, a number of samples, or a share of them as a float between 0 and 1.

    Raises:
        TypeError: It is no number.
        ArgumentError: It is out of range, or there is nothing that it could bound.
    """
    if value is None:
        return None
    most = float(value) if isinstance(value, float) else _index(value)
    if most is None:
        raise ArgumentTypeError(
            "max_errors option should be an int (samples an epoch), a float (a share of them) or "
            f"None, but got max_errors={value!r}",
            change=_MAX_ERRORS,
        )
    if most < 0 or (isinstance(most, float) and not 0 < most < 1):
        raise ArgumentError(
            "max_errors option should be an int from 0, or a float above 0 and below 1, "
            f"but got max_errors={value!r}",
            change=_MAX_ERRORS,
        )
    if on_error is None:
        raise ArgumentError(
            f"max_errors option bounds what on_error lets pass, but got max_errors={value!r} "
            "with on_error='raise'",
            change="on_error='skip' or 'replace', or leave out max_errors=",
        )
    return most


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
    number = _index(value)
    if number is None:
        raise ArgumentTypeError(
            f"seed option should be an int or None, but got seed={value!r}", change=_SEED
        )
    if not 0 <= number < _SEED_LIMIT:
        raise ArgumentError(
            f"seed option should be in [0, 2**64), but got seed={number}",
            change=_SEED,
        )
    return number


def debug(value: Any) -> bool | None:
    """Checks the argument ``debug``.

    Raises:
        TypeError: It is neither None nor a bool.
    """
    if value is not None and not isinstance(value, bool):
        raise ArgumentTypeError(
            f"debug option should be a bool or None, but got debug={value!r}",
            change="debug=True, False, or None for what STOKER_DEBUG says",
        )
    return value


def debugs(value: bool | None) -> bool:
    """Whether a loader with this argument ``debug`` makes its batches in the main process."""
    if value is not None:
        return value
    return os.environ.get(DEBUG_VARIABLE, "").strip().lower() not in _NO


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
        import torch

        return torch.Generator().manual_seed(seed)
    if generator.initial_seed() % _SEED_LIMIT != seed:
        raise ArgumentError(
            f"seed option is mutually exclusive with generator: seed={seed}, but the generator "
            f"was seeded with {generator.initial_seed()}",
            change="seed= alone, or generator= alone",
        )
    return generator


def replacing_in_a_stream() -> ArgumentError:
    """The error for ``on_error="replace"`` where there are no indices."""
    return ArgumentError(
        "on_error='replace' reads another index of the data set, and an iterable data set has none",
        change="on_error='skip', or a function that returns a value",
    )


def prefetch_of_zero() -> ArgumentError:
    """The error for ``prefetch_factor=0``, which torch takes and fails on later."""
    return ArgumentError(
        "prefetch_factor option should be at least 1, but got prefetch_factor=0",
        change="prefetch_factor=2, or more; or num_workers=0 to load nothing in advance",
    )
