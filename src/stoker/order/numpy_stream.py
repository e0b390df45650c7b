"""numpy's global random state, for `stoker.order.streams`: imported when numpy is."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from stoker.order.looks import TWISTER_BYTES, Looks

_np_random: Any = np.random  # its stubs leave out the global bit generator
# Bound before they are replaced by ones that count, see `Looks`.
_get_state, _set_state = np.random.get_state, np.random.set_state


def _pending_offset() -> int | None:
    """Where a numpy `RandomState` keeps its pending Gaussian, or None if that isn't sure.

    C lays it out as an int that tells whether there is one, and a double, 8 bytes apart.
    """
    probe = np.random.RandomState(0)
    size_bytes = type(probe).__basicsize__

    def memory() -> bytes:
        return ctypes.string_at(id(probe), size_bytes)

    probe.randn()
    pending = struct.pack("d", probe.get_state(legacy=False)["gauss"])
    at = memory().find(pending) - 8
    told = [memory()[at : at + 4]]
    probe.randn()
    told.append(memory()[at : at + 4])
    probe.randn()
    told.append(memory()[at : at + 4])
    one, none = struct.pack("i", 1), struct.pack("i", 0)
    return at if at > 0 and told == [one, none, one] else None


_PENDING_OFFSET = _pending_offset()
_NUMPY: Any = getattr(np.random.mtrand, "_rand", None)


def _gaussian_pending() -> bool:
    """Whether numpy's global state has a pending Gaussian (0.3 us; else 28)."""
    if _PENDING_OFFSET is None or type(_NUMPY) is not np.random.RandomState:
        return bool(_get_state(legacy=False)["has_gauss"])
    return ctypes.string_at(id(_NUMPY) + _PENDING_OFFSET, 4) != b"\0\0\0\0"


class NumpyStream:
    """numpy's global generator, with its bit generator swapped for one of ours.

    Swapping costs 0.2 us and copying the state 28, but numpy forgets a pending Gaussian
    when its bit generator is swapped: only where there is one is the state copied.
    """

    def __init__(self) -> None:
        self._own = np.random.MT19937(0)
        self._address = self._own.ctypes.state_address
        self._user: Any = None
        self._saved: Any = None
        self._mark = b""
        self._rested = False

    def save(self) -> None:
        self._saved = _get_state(legacy=False) if _gaussian_pending() else None
        self._user = _np_random.get_bit_generator()

    def take(self) -> None:
        _np_random.set_bit_generator(self._own)

    def restore(self) -> None:
        _np_random.set_bit_generator(self._user)
        if self._saved is not None:
            _set_state(self._saved)

    def rest(self) -> None:
        """Takes up a fixed state, and marks; nothing to do where it was not left."""
        if not self._rested or self.moved():
            self.seed(0)
            self._rested = True

    def seed(self, seed: int) -> None:
        """Seeds, and marks."""
        self._rested = False
        # Another word than torch's, whose twister would give the same numbers for it.
        np.random.seed((seed ^ 0x9E3779B9) & 0xFFFFFFFF)
        self._mark = ctypes.string_at(self._address, TWISTER_BYTES)

    def moved(self) -> bool:
        # A freshly seeded state has no pending Gaussian, so every draw takes words.
        return (
            _np_random.get_bit_generator() is not self._own
            or ctypes.string_at(self._address, TWISTER_BYTES) != self._mark
        )

    def capture(self) -> Any:
        return _get_state(legacy=False)

    def replace(self, state: Any) -> None:
        _set_state(state)


def _found() -> tuple[Any, ...]:
    return np.random.get_state, np.random.set_state


def _put(functions: tuple[Any, ...]) -> None:
    np.random.get_state, np.random.set_state = functions


LOOKS = Looks(_found, _put)
