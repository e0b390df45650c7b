"""The user's loader again, with another number of workers. Runs in a trial's process."""

from __future__ import annotations

import inspect
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

ONLY_WITH_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


def with_workers(loader: DataLoader[Any], num_workers: int) -> DataLoader[Any]:
    """The same loader with ``num_workers`` workers.

    It is built anew by its own class where every argument of the constructor can be read
    from an attribute of the same name; else the attributes of ``loader`` itself are set.
    Arguments that torch refuses without workers are left out at 0.

    Raises:
        Exception: Whatever the constructor of the user's own class raises.
    """
    arguments = _arguments(loader)
    if arguments is None:
        return _set_in_place(loader, num_workers)
    if num_workers == 0:
        arguments = {key: arguments[key] for key in arguments if key not in ONLY_WITH_WORKERS}
    arguments["num_workers"] = num_workers
    rebuilt: DataLoader[Any] = type(loader)(**arguments)
    return rebuilt


def _arguments(loader: DataLoader[Any]) -> dict[str, Any] | None:
    """Arguments that make ``loader`` again; None when its class does not show them."""
    names = _parameter_names(type(loader))
    if names is None or "num_workers" not in names:
        return None
    left_out = _said_by_another(loader)
    arguments = {}
    for name in names - left_out:
        if not hasattr(loader, name):
            return None
        arguments[name] = getattr(loader, name)
    if loader.num_workers == 0:
        for name in ONLY_WITH_WORKERS:
            arguments.pop(name, None)
    return arguments


def _parameter_names(kind: type) -> set[str] | None:
    """Names the constructor takes, torch's too where it passes **kwargs on."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
            return None
        passes_on = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        names |= {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
        if not passes_on:
            return names
    return None


def _said_by_another(loader: DataLoader[Any]) -> set[str]:
    """Arguments that others already say: torch takes a sampler or shuffle, but not both."""
    if isinstance(loader.dataset, IterableDataset):
        return {"shuffle", "sampler", "batch_sampler"}
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"shuffle", "sampler", "batch_size", "drop_last"}
    return {"shuffle", "batch_sampler"} | ({"drop_last"} if loader.batch_size is None else set())


def _set_in_place(loader: DataLoader[Any], num_workers: int) -> DataLoader[Any]:
    """Past ``__setattr__`` for what torch freezes: no iterator has been made from it yet."""
    values: dict[str, Any] = {"_iterator": None, "num_workers": num_workers}
    if num_workers == 0:
        loader.multiprocessing_context = None
        values |= {name: ONLY_WITH_WORKERS[name] for name in ("prefetch_factor", "timeout")}
        values["persistent_workers"] = False
    elif loader.prefetch_factor is None:
        values["prefetch_factor"] = 2
    for name, value in values.items():
        object.__setattr__(loader, name, value)
    return loader
