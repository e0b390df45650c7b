"""A batch as one piece of memory and a small envelope.

The structure of a batch (any nesting of any picklable types) goes through pickle. Plain
CPU tensors are taken out of the stream on the way, and so are the large buffers of
whatever supports pickle protocol 5 (numpy, Arrow, pandas); both lie in the memory of a
slot, one after the other. Everything else stays in the stream.

Copies: a tensor that was collated into the slot is not copied at all, any other leaf once.
The receiving side builds large leaves over the slot without a copy, and copies small ones
out, so that keeping the labels of a batch does not keep its images.
"""

from __future__ import annotations

import functools
import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.host.arriving import is_here
from stoker.transport.columns import Column, ColumnPickler
from stoker.transport.unbuilt import Unbuilt

if TYPE_CHECKING:
    import torch

ALIGNMENT_BYTES = 64
SMALL_BYTES = 32 * 1024
"""Leaves up to this size are copied out of a slot; streams and batches up to it skip the slot."""
_IN_STREAM_BYTES = 512


class Region(NamedTuple):
    """Part of a slot's memory: offset from its start and length, in bytes."""

    offset: int
    size_bytes: int


class Envelope(NamedTuple):
    """What crosses the pipe for one batch.

    Attributes:
        stream: The pickle stream, or where in the memory it lies.
        buffers: Where the out-of-band buffers of the stream lie.
        memory: The memory itself when the batch is small, or None when it is in a slot.
    """

    stream: bytes | Region
    buffers: tuple[Region, ...]
    memory: bytes | None


@dataclass(frozen=True, slots=True)
class Placed:
    """A leaf and where it goes; `source` is None when it is there already."""

    region: Region
    source: torch.Tensor | memoryview | None
    dtype_code: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None


@functools.cache
def _tensors() -> Any:
    """The module for them; imports torch."""
    from stoker.transport import tensors

    return tensors


class Packing:
    """The sending side: walks a batch and decides where each leaf goes.

    Args:
        batch: Anything picklable.
        home: Address range (start, size in bytes) of the slot the batch was collated in, or
            None; tensors found inside it stay where they are.
        reserved_bytes: How much of the slot's start is taken already.

    Attributes:
        end: The first byte behind everything.
        in_home: Whether a tensor lies in the slot already.
        devices: Where tensors lie that are not in the CPU's memory.

    Raises:
        Exception: What pickle raises for something it cannot carry.
    """

    def __init__(self, batch: object, home: tuple[int, int] | None, reserved_bytes: int) -> None:
        self._home = home
        self._seen: dict[int, tuple[torch.Tensor, tuple[Any, ...]]] = {}
        self.placed: list[Placed] = []
        self.buffers: list[Region] = []
        self.end = reserved_bytes
        self.in_home = False
        self.devices: set[str] = set()
        file = io.BytesIO()
        if is_here("torch"):
            _tensors().TensorPickler(file, self).dump(batch)
        else:
            ColumnPickler(file, self).dump(batch)
        self.stream: bytes | Region = file.getvalue()
        if len(self.stream) > SMALL_BYTES:
            source = memoryview(self.stream)
            self.stream = self._reserve(len(self.stream))
            self.placed.append(Placed(self.stream, source))

    def take_tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """Places a tensor; returns what stands for it in the stream."""
        known = self._seen.get(id(tensor))
        if known is None:
            # With the tensor itself: were it freed, another could have its id.
            known = self._seen[id(tensor)] = (tensor, self._place(tensor))
        return known[1]

    def take_column(self, column: Column) -> tuple[Any, ...]:
        """Places what is to be a tensor; returns what stands for it in the stream."""
        region = self._reserve(column.view.nbytes)
        self.placed.append(Placed(region, column.view))
        return column.code, region.offset, (len(column),), None

    def _place(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        size_bytes = tensor.numel() * tensor.element_size()
        shape, strides = tuple(tensor.shape), _tensors().dense_strides(tensor)
        code = _tensors().DTYPE_CODES[tensor.dtype]
        if size_bytes == 0:
            return code, -len(self._seen), shape, None  # a number of its own: no other's twin
        at_home = self._offset_at_home(tensor, size_bytes, strides)
        if at_home is not None:
            self.in_home = True
            region = Region(at_home, size_bytes)
        else:
            region = self._reserve(size_bytes)
        self.placed.append(Placed(region, tensor, code, shape, strides))
        return code, region.offset, shape, strides

    def _offset_at_home(
        self, tensor: torch.Tensor, size_bytes: int, strides: tuple[int, ...] | None
    ) -> int | None:
        if self._home is None or (strides is None and not tensor.is_contiguous()):
            return None
        offset = tensor.data_ptr() - self._home[0]
        inside = 0 <= offset and offset + size_bytes <= self._home[1]
        return offset if inside and offset % tensor.element_size() == 0 else None

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Takes a buffer out of the stream (returns False) or leaves it in (True)."""
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes <= _IN_STREAM_BYTES:
            return True
        region = self._reserve(raw.nbytes)
        self.buffers.append(region)
        self.placed.append(Placed(region, raw))
        return False

    def _reserve(self, size_bytes: int) -> Region:
        offset = -(-self.end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.end = offset + size_bytes
        return Region(offset, size_bytes)

    @property
    def size_bytes(self) -> int:
        """What the batch takes, wherever it lies: its tensors, buffers, and a long stream."""
        return sum(leaf.region.size_bytes for leaf in self.placed)

    def write(self, memory: Any, *, same_slot: bool) -> None:
        """Copies the leaves into `memory`; those collated there stay when it is the same slot."""
        view = memoryview(memory).cast("B")
        start = self._home[0] if same_slot and self._home else None
        for leaf in self.placed:
            offset, size_bytes = leaf.region
            if isinstance(leaf.source, memoryview):
                view[offset : offset + size_bytes] = leaf.source
            elif leaf.source is not None and leaf.source.data_ptr() - offset != start:
                over = _tensors().tensor_over
                target = over(memory, leaf.dtype_code, offset, leaf.shape, leaf.strides)
                target.copy_(leaf.source)

    def envelope(self, memory: bytes | None) -> Envelope:
        return Envelope(self.stream, tuple(self.buffers), memory)


def size_bytes(batch: object) -> int:
    """What a batch would take on its way from a worker; 0 for one that cannot be sent."""
    try:
        return Packing(batch, None, 0).size_bytes
    except Exception:  # Whatever a batch's own types raise; it stays where it is.
        return 0


def unpack(envelope: Envelope, memory: Any, *, copy: bool = False) -> Any:
    """Builds the batch.

    Args:
        envelope: What `Packing.envelope` made.
        memory: The lease on the slot, or the envelope's own memory.
        copy: Whether large leaves too get memory of their own, one piece each.

    Returns:
        The batch. Its large leaves keep `memory` alive unless `copy`.

    Raises:
        Unbuilt: Something in it can't be rebuilt; its cause is what was raised.
    """
    view = memoryview(memory).cast("B")

    def piece(region: Region) -> Any:
        part = view[region.offset : region.offset + region.size_bytes]
        return bytearray(part) if copy or region.size_bytes <= SMALL_BYTES else part

    stream = envelope.stream
    if isinstance(stream, Region):
        stream = bytes(view[stream.offset : stream.offset + stream.size_bytes])
    try:
        buffers = map(piece, envelope.buffers)
        return _tensors().Unpacking(stream, buffers, memory, copy, SMALL_BYTES).load()
    except Exception as error:  # Whatever the code of its types does.
        again = _tensors().Unpacking(b"", iter(()), memory, True, SMALL_BYTES)
        buffers = map(piece, envelope.buffers)
        raise Unbuilt.of(stream, buffers, again.persistent_load) from error
