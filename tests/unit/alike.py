"""Whether two batches are the same: structure, types, values, dtypes, shapes and layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def assert_alike(one: Any, other: Any, *, strides: bool = True) -> None:
    """Fails where `one` is not exactly `other`; `strides`: of dense tensors too."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        _assert_tensors(one, other, strides=strides)
    elif isinstance(one, np.ndarray):
        _assert_arrays(one, other)
    elif isinstance(one, Mapping):
        assert list(one) == list(other)
        for key in one:
            assert_alike(one[key], other[key], strides=strides)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_alike(left, right, strides=strides)
    elif dataclasses.is_dataclass(one):
        assert_alike(vars(one), vars(other), strides=strides)
    else:
        assert one == other or (one != one and other != other)


def _assert_tensors(one: torch.Tensor, other: torch.Tensor, *, strides: bool) -> None:
    for attribute in ("dtype", "layout", "requires_grad", "is_nested", "device"):
        assert getattr(one, attribute) == getattr(other, attribute), attribute
    if one.is_nested:
        for left, right in zip(one.unbind(), other.unbind(), strict=True):
            _assert_tensors(left, right, strides=strides)
        return
    assert one.shape == other.shape
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    elif strides and one.numel() and not _has_gaps(other):
        sized = [d for d in range(one.dim()) if one.shape[d] > 1]
        assert [one.stride(d) for d in sized] == [other.stride(d) for d in sized]
    assert _raw(one) == _raw(other)


def _has_gaps(tensor: torch.Tensor) -> bool:
    """Whether its elements are not exactly the elements of its memory, each once."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != extent:
            return True
        extent *= size
    return False


def _raw(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()


def _assert_arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    if other.flags.forc:
        assert one.flags.f_contiguous == other.flags.f_contiguous
    assert one.flags.writeable == other.flags.writeable
    np.testing.assert_array_equal(one, other)
