"""A running checksum over batches: whether an iterable data set repeats itself.

What a worker's iterator has yielded can't be read a second time at will, so when the worker
dies, another runs the iterator again from its start. Nothing says that it yields the same: it
may read from a socket, or draw from a generator of its own. So each worker keeps a checksum of
what it has made, and the one that repeats it compares.

Seen of a batch are its structure, types, shapes, and of each tensor, array or text a bounded
sample of the values. Takes some 4 us for each tensor, whatever its size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from stoker.host.arriving import when_imported
from stoker.workers.tolerance import Nothing

if TYPE_CHECKING:
    import numpy as np
    import torch

_MOST_NODES = 256
_WHOLE_LENGTH = 32
_ENDS = 4
_PIECES = 4
_PIECE_BYTES = 64
_WHOLE_BYTES = 512

_Seen = tuple[int, Sequence[Any]]


class RunningDigest:
    """The checksum of the batches so far.

    Attributes:
        value: 64 bits; the same for the same batches in the same order, in any process with
            the same interpreter.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, batch: Any) -> int:
        """Takes a batch in; returns `value`. Never raises: what can't be looked at is its type."""
        left, value = [batch], self.value
        for _ in range(_MOST_NODES):
            if not left:
                break
            node = left.pop()
            try:
                fact, inside = (_EXACT.get(type(node)) or _see)(node)
            except Exception:  # An odd object is no reason to lose a batch.
                fact, inside = 1, ()
            value = hash((value, _KIND_CODES.get(type(node)) or _named(type(node)), fact))
            left += inside
        self.value = value
        return value

    def add_error(self, error: BaseException) -> int:
        """Takes in that a batch could not be made; returns `value`."""
        self.value = hash((self.value, _named(type(error))))
        return self.value


def _named(kind: type) -> int:
    return crc32(kind.__qualname__.encode())


def _see(node: Any) -> _Seen:
    """What is seen of an object that is of no common type itself, and what is inside it.

    Of unknown types only `__dict__` is seen: what they say of themselves may hold an address.
    """
    for base, see in _KINDS:
        if isinstance(node, base):
            return see(node)
    held = getattr(node, "__dict__", None)
    return _mapping(held) if held else (0, ())


def _tensor(tensor: torch.Tensor) -> _Seen:
    fact = hash((hash(tensor.shape), _DTYPE_CODES[tensor.dtype], tensor.is_cpu))
    if not tensor.is_cpu or tensor.layout is not _strided[0] or tensor.is_quantized:
        return fact, ()
    if tensor.is_contiguous():
        size_bytes = tensor.nbytes
        return hash((fact, _sampled(tensor.data_ptr(), size_bytes) if size_bytes else 0)), ()
    corners = [tensor.detach()[(end,) * tensor.dim()].item() for end in (0, -1)]
    return hash((fact, crc32(repr(corners).encode()))), ()


def _array(array: np.ndarray[Any, Any]) -> _Seen:
    fact = hash((array.shape, crc32(array.dtype.str.encode())))
    if array.dtype.hasobject:
        return fact, array.flat[:_ENDS].tolist()
    if not array.flags.c_contiguous:
        return hash((fact, crc32(array.flat[:_PIECE_BYTES].tobytes()))), ()
    return hash((fact, _sampled(array.ctypes.data, array.nbytes) if array.nbytes else 0)), ()


def _sampled(address: int, size_bytes: int) -> int:
    """The checksum of all of a small piece of memory, or of pieces from its start to its end."""
    if size_bytes <= _WHOLE_BYTES:
        return crc32(ctypes.string_at(address, size_bytes))
    last, value = size_bytes - _PIECE_BYTES, 0
    for piece in range(_PIECES):
        at = address + last * piece // (_PIECES - 1)
        value = crc32(ctypes.string_at(at, _PIECE_BYTES), value)
    return value


def _text(text: str) -> _Seen:
    ends = text[:_WHOLE_BYTES] + text[-_PIECE_BYTES:]
    return hash((len(text), crc32(ends.encode("utf-8", "surrogatepass")))), ()


def _data(data: bytes | bytearray) -> _Seen:
    return hash((len(data), crc32(data[:_WHOLE_BYTES]), crc32(data[-_PIECE_BYTES:]))), ()


def _plain(value: Any) -> _Seen:
    return crc32(repr(value).encode()), ()


def _mapping(mapping: Mapping[Any, Any]) -> _Seen:
    items = list(mapping.items())
    seen = items if len(items) <= _WHOLE_LENGTH else [*items[:_ENDS], *items[-_ENDS:]]
    return len(items), [each for item in seen for each in item]


def _sequence(sequence: Sequence[Any]) -> _Seen:
    length = len(sequence)
    if length <= _WHOLE_LENGTH // 2:
        return length, sequence
    return length, [*sequence[:_ENDS], *sequence[-_ENDS:]]


_DTYPE_CODES: dict[Any, int] = {}
_strided: list[Any] = []
_EXACT: dict[type, Callable[[Any], _Seen]] = {
    str: _text,
    bytes: _data,
    bytearray: _data,
    bool: _plain,
    int: _plain,
    float: _plain,
    complex: _plain,
    type(None): _plain,
    Nothing: _plain,
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
}
_KIND_CODES = {kind: _named(kind) for kind in _EXACT}
_KINDS: list[tuple[type, Callable[[Any], _Seen]]] = [(Mapping, _mapping), *_EXACT.items()]


def _torch_came() -> None:
    import torch

    kinds = [each for each in vars(torch).values() if isinstance(each, torch.dtype)]
    _DTYPE_CODES.update((dtype, crc32(str(dtype).encode())) for dtype in kinds)
    _strided.append(torch.strided)
    _knows(torch.Tensor, _tensor)


def _numpy_came() -> None:
    import numpy as np

    _knows(np.ndarray, _array)
    _KINDS.insert(0, (np.generic, _plain))


def _knows(kind: type, see: Callable[[Any], _Seen]) -> None:
    _EXACT[kind] = see
    _KIND_CODES[kind] = _named(kind)
    _KINDS.append((kind, see))


when_imported("numpy", _numpy_came)
when_imported("torch", _torch_came)
