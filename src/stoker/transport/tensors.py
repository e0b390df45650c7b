"""Tensors on their way through a pickle stream, for `stoker.transport.layout`.

Apart, since a worker whose data set needs no torch has none: imported when there is one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import torch


def _crosses(dtype: torch.dtype) -> bool:
    """Whether a tensor of this type can be built over foreign memory."""
    try:
        torch.frombuffer(bytearray(16), dtype=dtype)
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


DTYPES: tuple[torch.dtype, ...] = tuple(
    sorted(
        filter(_crosses, {x for x in vars(torch).values() if isinstance(x, torch.dtype)}), key=str
    )
)
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
DTYPES += (torch.int64, torch.float64, torch.bool)  # See `columns`.


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes, dtype, shape and strides are all there is to it."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.dtype in DTYPE_CODES
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg() or tensor.__dict__)
    )


def dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """None for a contiguous tensor; the strides to keep for another dense one (channels last).

    A tensor with gaps or overlaps is sent as its contiguous copy: None as well.
    """
    if tensor.is_contiguous():
        return None
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != extent:
            return None
        extent *= size
    return tuple(tensor.stride())


class TensorPickler(pickle.Pickler):
    """Hands tensors and large buffers to a `Packing`, which does not refer back to it."""

    def __init__(self, file: io.BytesIO, packing: Any) -> None:
        super().__init__(file, protocol=5, buffer_callback=packing.take_buffer)
        self._packing = packing

    def persistent_id(self, leaf: object) -> tuple[Any, ...] | None:
        if isinstance(leaf, torch.Tensor):
            if _is_plain(leaf):
                place: tuple[Any, ...] = self._packing.take_tensor(leaf)
                return place
            if leaf.device.type != "cpu":
                self._packing.devices.add(str(leaf.device))
        return None


def tensor_over(
    memory: Any, code: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> torch.Tensor:
    count = 1
    for size in shape:
        count *= size
    flat = torch.frombuffer(memory, dtype=DTYPES[code], count=count, offset=offset)
    return flat.view(shape) if strides is None else flat.as_strided(shape, strides)


class Unpacking(pickle.Unpickler):
    """The receiving side of `Packing`; leaves up to `small_bytes` are copied."""

    def __init__(
        self, stream: bytes, buffers: Iterator[Any], memory: Any, copy: bool, small_bytes: int
    ) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._memory = memory
        self._view = memoryview(memory).cast("B")
        self._copy, self._small_bytes = copy, small_bytes
        self._built: dict[tuple[Any, ...], torch.Tensor] = {}

    def persistent_load(self, leaf: Any) -> torch.Tensor:
        # The same leaf twice is one tensor here too.
        built = self._built.get(leaf)
        if built is None:
            built = self._built[leaf] = self._build(*leaf)
        return built

    def _build(
        self, code: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...] | None
    ) -> torch.Tensor:
        dtype = DTYPES[code]
        size_bytes = dtype.itemsize
        for size in shape:
            size_bytes *= size
        if size_bytes == 0:
            return torch.empty(shape, dtype=dtype)
        if size_bytes > self._small_bytes and not self._copy:
            return tensor_over(self._memory, code, offset, shape, strides)
        own = bytearray(self._view[offset : offset + size_bytes])
        return tensor_over(own, code, 0, shape, strides)
