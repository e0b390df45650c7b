"""torch's arguments, checked where torch checks none or says no name.

torch takes many a wrong value, and fails in the middle of an epoch, or in a worker. Here it is
refused at once, by name. What works in torch, as odd as it may be, is taken.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

from stoker.errors import ArgumentError, ArgumentTypeError

_TO_GIVE = {
    "num_workers": "num_workers='auto', or a number from 0 on",
    "prefetch_factor": "prefetch_factor=None, or a number of batches from 1 on",
    "collate_fn": "collate_fn=None, or a function of a list of samples: its name, not a call",
    "worker_init_fn": "worker_init_fn=None, or a function of a number: its name, not a call",
    "sampler": "sampler=None, or what gives indices: a torch.utils.data.Sampler, a list or a range",
    "batch_sampler": "batch_sampler=None, or what gives lists of indices: a "
    "torch.utils.data.BatchSampler, or a list of lists",
    "pin_memory_device": "pin_memory_device='', or a device such as 'cuda' or 'cuda:0'",
    "batch_size": "batch_size=None for single samples, or a number from 1 on",
    "timeout": "timeout=0 to wait for as long as it takes, or a number of seconds above 0",
    "generator": "generator=None, or torch.Generator().manual_seed(...); or seed= with a number",
}
_FLAGS = ("shuffle", "pin_memory", "drop_last", "persistent_workers", "in_order")


def check(dataset: Any, given: dict[str, Any], *, iterable: bool) -> None:
    """Checks what the constructor was given, but for what torch refuses by name itself.

    Args:
        dataset: The data set.
        given: The other arguments of torch's loader, by name.
        iterable: Whether the data set is iterable-style.

    Raises:
        ArgumentTypeError: One is of a type that can never work (a TypeError).
        ArgumentError: One is out of range (a ValueError).
    """
    for name in _FLAGS:
        _check_flag(name, given[name])
    for name in ("num_workers", "prefetch_factor"):
        if given[name] is not None or name == "num_workers":
            _check_count(name, given[name])
    for name in ("collate_fn", "worker_init_fn"):
        if given[name] is not None and not callable(given[name]):
            raise _wrong_type(name, given[name], "a function")
    for name in ("sampler", "batch_sampler"):
        if given[name] is not None and not _is_iterable(given[name]):
            raise _wrong_type(name, given[name], "an iterable")
    _check_timeout(given["timeout"])
    _check_generator(given["generator"])
    device = given["pin_memory_device"]
    if device is not None and not isinstance(device, (str, torch.device)):
        raise _wrong_type("pin_memory_device", device, "a string")
    _check_batch_size(given["batch_size"])
    if given["shuffle"] and not iterable and given["sampler"] is None:
        _check_shuffled(dataset)


def _check_flag(name: str, value: Any) -> None:
    try:
        bool(value)
        if name == "shuffle":  # torch looks for it in a set.
            hash(value if value else None)
    except Exception:
        raise _wrong_type(name, value, "a bool") from None


def _check_count(name: str, value: Any) -> None:
    if not hasattr(value, "__index__"):
        raise _wrong_type(name, value, "an int")
    try:
        value.__index__()
    except TypeError:  # an array of several
        raise _wrong_type(name, value, "an int") from None


def _check_batch_size(value: Any) -> None:
    try:
        bool(value != 1)  # As torch looks whether it was given beside batch_sampler.
    except Exception:
        raise _wrong_type("batch_size", value, "an int or None") from None
    if isinstance(value, int) and value > sys.maxsize:
        raise ArgumentError(
            f"batch_size option is too large: batch_size={value}", change=_TO_GIVE["batch_size"]
        )


def _check_timeout(value: Any) -> None:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        seconds = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise _wrong_type("timeout", value, "a number of seconds") from None
    if math.isnan(seconds):
        raise ArgumentError(
            "timeout option should be a number, but got nan", change=_TO_GIVE["timeout"]
        )


def _check_generator(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, torch.Generator):
        raise _wrong_type("generator", value, "a torch.Generator")
    if value.device.type != "cpu":
        raise ArgumentError(
            f"generator option should be on the CPU, but got one on {value.device}",
            change="generator=torch.Generator()",
        )


def _check_shuffled(dataset: Any) -> None:
    try:
        length = len(dataset)
    except (TypeError, AttributeError, NotImplementedError) as error:
        raise ArgumentTypeError(
            f"shuffle option needs a dataset with a length, but {type(dataset).__name__} has "
            f"none: {error}",
            change="shuffle=False, a sampler in sampler=, or a dataset with __len__",
        ) from None
    if length == 0:
        raise ArgumentError(
            # torch's words.
            "num_samples should be a positive integer value, but got num_samples=0",
            doing="making a sampler for shuffle=True",
            likely="the dataset is empty: its length is 0",
            change="a dataset that holds samples, or shuffle=False for what may be empty",
        )


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def _wrong_type(name: str, value: Any, wanted: str) -> ArgumentTypeError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ArgumentTypeError(
        f"{name} option should be {wanted}, but got {name}={shown} ({type(value).__name__})",
        change=_TO_GIVE.get(name, f"{name}=True or {name}=False"),
    )
