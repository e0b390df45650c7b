"""Why a loader can't be Stoker's, known before it is tried. No torch."""

from __future__ import annotations

import functools
import re
from types import CodeType

from stoker.errors import StokerError

OLDEST = (2, 8)
# What torch's iterators ask of a loader, and Stoker answers in its own way.
_PRIVATE = (
    "_get_iterator",
    "_index_sampler",
    "_auto_collation",
    "_iterator",
    "multiprocessing_context",
    "num_workers",
)


def check_torch(version: str) -> None:
    """Refuse a torch that Stoker's loader is not made for.

    Raises:
        StokerError: It is too old.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StokerError(f"PyTorch {version} is older than {oldest}, the first that Stoker knows")


@functools.lru_cache(maxsize=256)
def taken_over(kind: type, base: type) -> str:
    """Why a class derived from `base` has to run torch's own methods; empty where it hasn't."""
    for each in kind.__mro__[: kind.__mro__.index(base)]:
        for name in _PRIVATE:
            if name in vars(each):
                return f"{each.__name__}.{name} replaces a private part of PyTorch's loader"
        own = vars(each).get("__iter__")
        if own is not None and not _goes_on(getattr(own, "__code__", None)):
            return f"{each.__name__}.__iter__ replaces PyTorch's and never calls it"
    return ""


def _goes_on(code: CodeType | None) -> bool:
    """Whether a function, or one inside it, speaks of another ``__iter__``."""
    if code is None:
        return False
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return "__iter__" in code.co_names or any(map(_goes_on, inner))
