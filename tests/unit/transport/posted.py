"""Sends things as fresh workers are sent them, and opens them in this process."""

from __future__ import annotations

import io
import pickle
from typing import Any

from stoker.transport.page_table import AddressSpace
from stoker.transport.parcel import Packing, Parcel


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, packing: Packing) -> None:
        super().__init__(file, 5, buffer_callback=packing.take_buffer)
        self._packing = packing

    def reducer_override(self, thing: Any) -> Any:
        return self._packing.reduce(thing)


class Posted:
    """A thing that was packed."""

    def __init__(self, thing: Any) -> None:
        packing = Packing()
        file = io.BytesIO()
        _Pickler(file, packing).dump(thing)
        self.stream = file.getvalue()
        self.parcel: Parcel | None = packing.ship()

    def open(self) -> Any:
        """It, as another process would have it."""
        buffers = () if self.parcel is None else self.parcel.open()
        return pickle.loads(self.stream, buffers=buffers)


def posted(thing: Any) -> Any:
    return Posted(thing).open()


def is_moved(array: Any) -> bool:
    """Whether the middle of an array lies on pages of a parcel."""
    middle = array.ctypes.data + array.nbytes // 2
    return any("stoker-parcel" in area.path for area in AddressSpace().over(middle, middle + 1))
