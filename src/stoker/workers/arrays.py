"""Whether samples are likely arrays: then workers need torch, which makes tensors of them.

A data set of arrays need not refer to torch, and yet each of its workers would import torch at its
first batch. So for the default collate functions it is looked at what the data set holds, and
which packages its code names; none of that code is run. Where the guess is wrong, one import in
the template was for nothing, or each worker imports torch for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stoker.host.arriving import classes
from stoker.workers.lean import Lean

_GIVE_ARRAYS = frozenset({"numpy", "pandas", "cv2", "h5py", "zarr", "scipy", "skimage"})
_MAKE_NUMBERS = frozenset({"int", "float", "bool", "str", "len", "item", "tolist"})
_MOST_FUNCTIONS = 200


def with_what_it_needs(job: Any) -> Any:
    """A `Job` that says whether a template is to import torch; for the main process.

    Args:
        job: One that was `lightened`.
    """
    if job.needs_torch or not isinstance(job.collate_fn, Lean):
        return job
    return replace(job, needs_torch=likely_arrays(job.dataset))


def likely_arrays(dataset: Any) -> bool:
    """Whether a data set, or what it holds, has arrays or code that names what gives them."""
    from stoker.workers.reach import held  # Loads torch, which a worker may not need.

    waiting: deque[FunctionType] = deque()
    arrays = classes("numpy.ndarray", "numpy.generic")
    for thing in held((dataset,), _is_stokers):
        if _is_stokers(thing):
            continue
        if isinstance(thing, arrays) or _package(type(thing)) in _GIVE_ARRAYS:
            if not _makes_numbers(dataset):
                return True
            continue
        waiting.extend(_functions(thing))
    seen = set[int]()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function = waiting.popleft()
        if id(function.__code__) in seen:
            continue
        seen.add(id(function.__code__))
        for value in _named(function):
            if _package(value) in _GIVE_ARRAYS:
                return True
            waiting.extend(_functions(value))
    return False


def _makes_numbers(dataset: Any) -> bool:
    """Whether its samples look as if they were plain numbers that it makes of what it holds."""
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    return code is not None and not _MAKE_NUMBERS.isdisjoint(code.co_names)


def _is_stokers(thing: Any) -> bool:
    """Whether it is a `stoker.packed`: it has arrays inside, and gives what it was given."""
    return _package(type(thing)) == "stoker"


def _package(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return name.partition(".")[0] if isinstance(name, str) else ""


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The functions of the user's that a thing is, or whose class has them."""
    from stoker.workers.reach import is_own

    if isinstance(thing, FunctionType):
        if is_own(thing.__module__):
            yield thing
        return
    for kind in (thing if isinstance(thing, type) else type(thing)).__mro__:
        if is_own(kind.__module__):
            methods = vars(kind).items()  # Its constructor has run.
            yield from (
                each for name, each in methods
                if name != "__init__" and isinstance(each, FunctionType)
            )  # fmt: skip


def _named(function: FunctionType) -> Iterator[Any]:
    """What the code of a function, and of those inside of it, names of its module's."""
    codes = deque([function.__code__])
    while codes:
        code = codes.popleft()
        known = function.__globals__
        yield from (known[name] for name in code.co_names if name in known)
        codes.extend(each for each in code.co_consts if isinstance(each, CodeType))
