"""From what a target names to a loader. Runs the user's code."""

from __future__ import annotations

import inspect
from typing import Any

from stoker.errors import TargetError
from stoker.tuning.named import TARGET, is_loader, summary_of

BATCH_SIZE = 32


def make_loader(target: str, found: object, *, batch_size: int | None = None) -> Any:
    """The loader that ``found`` is, or returns when called; it is called once.

    Args:
        target: As the user gave it.
        found: What the target names.
        batch_size: Samples a batch, if `found` is a data set; None where nobody has said.

    Raises:
        TargetError: It is no loader and returns none, wants arguments, or raised; or a batch
            size was given for a loader, which has its own.
    """
    returned = ""
    if not (is_loader(found) or _is_dataset(found)):
        found, returned = _called(target, found), "what it returned "
    if is_loader(found):
        if batch_size is not None:
            raise _has_its_own(target, found, batch_size)
        return found
    if _is_dataset(found):
        return _loader_of(target, found, batch_size or BATCH_SIZE)
    raise _not_a_loader(target, returned, found)


def _called(target: str, found: object) -> object:
    if not callable(found):
        raise _not_a_loader(target, "it ", found)
    wanted = _wanted_arguments(found)
    if wanted:
        raise TargetError(
            f"'{target}' can't be called without arguments: it wants {', '.join(wanted)}.",
            doing="making the loader",
            change=f"name {TARGET.kind}",
        )
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"Calling '{target}' raised {summary_of(error)}", doing="making the loader"
        ) from error


def _has_its_own(target: str, loader: Any, batch_size: int) -> TargetError:
    size = loader.batch_size
    own = "its own batches" if size is None else f"a batch size of its own, {size}"
    return TargetError(
        f"'{target}' is a DataLoader with {own}: --batch-size {batch_size} can't be followed.",
        doing="making the loader",
        likely="--batch-size is for a target that is a data set",
        change="leave out --batch-size, name the data set, or change batch_size in the file",
    )


def _is_dataset(found: object) -> bool:
    from torch.utils.data import Dataset

    return isinstance(found, Dataset)


def _loader_of(target: str, dataset: Any, batch_size: int) -> Any:
    from torch.utils.data import DataLoader, IterableDataset

    doing = f"making a loader of the data set with batches of {batch_size}"
    iterable = isinstance(dataset, IterableDataset)
    try:
        if not iterable and len(dataset) == 0:
            raise _empty(target, doing)
        return DataLoader(dataset, batch_size=batch_size, shuffle=not iterable)
    except TargetError:
        raise
    except Exception as error:
        raise TargetError(
            f"No DataLoader can be made of '{target}': {summary_of(error)}",
            doing=doing,
            likely="a data set needs __len__ and __getitem__, or to be an IterableDataset",
            change=f"name {TARGET.kind}",
        ) from error


def _empty(target: str, doing: str) -> TargetError:
    return TargetError(
        f"The data set '{target}' is empty: its length is 0.",
        doing=doing,
        likely="it looks for its files in another folder, or a filter leaves none",
        change="name a data set with at least one sample",
    )


def _not_a_loader(target: str, which: str, found: object) -> TargetError:
    kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
    return TargetError(
        f"'{target}' is not a DataLoader: {which}is of type {kind}.",
        doing="making the loader",
        change=f"name {TARGET.kind}",
    )


def _wanted_arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature: calling will tell
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in optional
    ]
