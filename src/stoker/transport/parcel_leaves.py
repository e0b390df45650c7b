"""Arrays and tensors as large buffers that pickle can hand out, and how they are made again.

numpy hands out contiguous arrays of its own class by itself, Arrow its buffers. Added here:

- Tensors in the CPU's memory: their storages, so that two views of one storage stay so; with
  strides, dtype, gradient flag and class as torch itself pickles them. Those in memory that torch
  shares between processes are left to torch, and stay shared.
- Arrays with gaps, steps backwards, or broadcast: all they span, if it is at most twice what
  they hold; otherwise a contiguous copy.
- Arrays of dates, and of types that others have added to numpy, which know no buffers.
- ``np.memmap``: as the class it is, over the same part of the same file where that can be.

Nothing here imports numpy or torch: an array is there only if the program has imported it.
"""

from __future__ import annotations

import ctypes
import sys
from pickle import PickleBuffer
from typing import Any, NamedTuple

LARGE_BYTES = 64 * 1024
"""Smaller buffers stay in the pickle stream."""

_SPAN_AT_MOST = 2


class Span(NamedTuple):
    """Memory that a leaf lies in.

    Attributes:
        memory: It, as a buffer.
        pointer: Where the block begins that holds it; 0 if not known.
    """

    memory: Any
    pointer: int


def reduced(thing: Any, spans: dict[int, Span]) -> Any:
    """How to pickle an array, tensor or storage; NotImplemented for what pickle does well.

    Args:
        thing: Anything.
        spans: Gets the memory that is handed out, by the identity of its buffer.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        if isinstance(thing, torch.Tensor):
            return thing.__reduce_ex__(5) if _is_plain(thing, torch) else NotImplemented
        if isinstance(thing, torch.storage.TypedStorage):
            return _typed, (thing._untyped_storage, thing.dtype)
        if isinstance(thing, torch.UntypedStorage) and _is_own(thing):
            return _untyped, (_bytes_of(thing, spans), len(thing))
    if numpy is not None and type(thing) in (numpy.ndarray, numpy.memmap):
        return _reduced_array(thing, numpy, spans)
    return NotImplemented


def _is_plain(tensor: Any, torch: Any) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not (tensor.requires_grad and not tensor.is_leaf)
        and _is_own(tensor.untyped_storage())
    )


def _is_own(storage: Any) -> bool:
    return storage.device.type == "cpu" and not storage.is_shared()


def _bytes_of(storage: Any, spans: dict[int, Span]) -> PickleBuffer:
    pointer = storage.data_ptr() if len(storage) else 0
    memory: Any = ctypes.c_ubyte * len(storage)
    memory = memory.from_address(pointer) if pointer else memory()
    spans[id(memory)] = Span((memory, storage), pointer)
    return PickleBuffer(memory)


def _untyped(data: Any, size_bytes: int) -> Any:
    import torch

    if size_bytes >= LARGE_BYTES:
        return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()
    own = torch.empty(size_bytes, dtype=torch.uint8)
    if size_bytes:
        own.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return own.untyped_storage()


def _typed(storage: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _reduced_array(thing: Any, numpy: Any, spans: dict[int, Span]) -> Any:
    is_mapped = type(thing) is numpy.memmap
    if thing.dtype.hasobject or thing.nbytes < LARGE_BYTES:
        return NotImplemented
    if not is_mapped and _hands_itself_out(thing):
        return NotImplemented
    low, high = _reach(thing)
    if high - low > _SPAN_AT_MOST * thing.nbytes:
        thing = thing.copy()
        low, high = _reach(thing)
    memory = (ctypes.c_ubyte * (high - low)).from_address(low)
    # The array itself too: it keeps the memory.
    spans[id(memory)] = Span((memory, thing), block_of(thing))
    first = _address(thing) - low
    mapped = (thing.filename, thing.offset, thing.mode) if is_mapped else None
    layout = (thing.dtype, thing.shape, thing.strides, first, thing.flags.writeable)
    return _array, (PickleBuffer(memory), layout, mapped)


def _hands_itself_out(array: Any) -> bool:
    """Whether numpy's own way needs no help: not with gaps, nor dates and types of extensions."""
    try:
        return bool(memoryview(array).contiguous)
    except (ValueError, BufferError, TypeError, NotImplementedError):
        return False


def _reach(array: Any) -> tuple[int, int]:
    """The first address of an array and the first behind it."""
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    start = _address(array)
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return start + low, start + high + array.itemsize


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _array(data: Any, layout: tuple[Any, ...], mapped: tuple[Any, ...] | None) -> Any:
    import numpy

    dtype, shape, strides, first, writeable = layout
    kind = numpy.ndarray if mapped is None else numpy.memmap
    array: Any = numpy.ndarray.__new__(kind, shape, dtype, data, first, strides)
    if mapped is not None:
        array.filename, array.offset, array.mode = mapped
    if not writeable:
        array.flags.writeable = False
    return array


def block_of(thing: Any) -> int:
    """Where the memory begins that an array lies in, as it was allocated; 0 if not known."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    while numpy is not None and isinstance(thing, numpy.ndarray):
        if thing.base is None:
            return _address(thing) if thing.flags.owndata else 0
        thing = thing.base
    if torch is not None and isinstance(thing, torch.Tensor) and thing.device.type == "cpu":
        return int(thing.untyped_storage().data_ptr())
    return 0
