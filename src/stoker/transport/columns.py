"""Numbers that are to be a tensor, in a process that has no torch.

A column crosses as the tensor would: the main process can't tell one from the other.
"""

from __future__ import annotations

import io
import pickle
from array import array
from collections.abc import Sequence
from typing import Any

_KINDS: dict[type, tuple[str, int]] = {int: ("q", -3), float: ("d", -2), bool: ("b", -1)}
"""For each type of numbers how they lie in memory, and where `tensors.DTYPES` has their type."""


class Column:
    """A tensor of one dimension: int64 of ints, float64 of floats, or bool of bools.

    Args:
        values: At least one, all exactly of type `kind`.
        kind: One of the three.

    Attributes:
        view: Its bytes.
        code: Which type it is in `tensors.DTYPES`.

    Raises:
        OverflowError: An int does not fit into 64 bits.
    """

    __slots__ = ("_values", "code", "view")

    def __init__(self, values: Sequence[Any], kind: type) -> None:
        letter, self.code = _KINDS[kind]
        self._values = array(letter, values)
        self.view = memoryview(self._values).cast("B")

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a pickler that does not know columns."""
        return _tensor, (self.code, bytes(self.view))


def _tensor(code: int, data: bytes) -> Any:
    from stoker.transport.tensors import DTYPES, tensor_over

    count = len(data) // DTYPES[code].itemsize
    return tensor_over(bytearray(data), code, 0, (count,), None)


class ColumnPickler(pickle.Pickler):
    """Hands columns and large buffers to a `Packing`, which does not refer back to it."""

    def __init__(self, file: io.BytesIO, packing: Any) -> None:
        super().__init__(file, protocol=5, buffer_callback=packing.take_buffer)
        self._packing = packing

    def persistent_id(self, leaf: object) -> tuple[Any, ...] | None:
        if type(leaf) is Column:
            place: tuple[Any, ...] = self._packing.take_column(leaf)
            return place
        return None
