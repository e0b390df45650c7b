"""torch's global random state, for `stoker.order.streams`: imported when torch is."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from stoker.order.looks import Looks

_TORCH_HEAD_BYTES = 24  # of a torch state: its seed, how many words are left, the next one


def _torch_head(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), _TORCH_HEAD_BYTES)


def _fresh_torch_head() -> bytes | None:
    """The head of a freshly seeded torch state after its seed, or None.

    None where the head does not begin with the seed or does not move with every draw.
    """
    generator = torch.Generator()
    seed = 0x1234567
    generator.manual_seed(seed)
    fresh = _torch_head(generator.get_state())
    torch.rand(1, generator=generator)
    one = _torch_head(generator.get_state())
    torch.rand(623, generator=generator)
    whole_turn = _torch_head(generator.get_state())
    if fresh[:8] != seed.to_bytes(8, "little") or len({fresh, one, whole_turn}) < 3:
        return None
    return fresh[8:]


_FRESH_TORCH_HEAD = _fresh_torch_head()


class TorchStream:
    """torch's default CPU generator."""

    def __init__(self) -> None:
        self._generator = torch.default_generator
        self._saved = self._generator.get_state()
        self._mark: Any = None

    def save(self) -> None:
        self._saved = self._generator.get_state()

    def restore(self) -> None:
        self._generator.set_state(self._saved)

    def capture(self) -> torch.Tensor:
        return self._generator.get_state()

    def replace(self, state: torch.Tensor) -> None:
        self._generator.set_state(state)

    def seed(self, seed: int, reads_as: int) -> None:
        """Seeds, and marks; ``torch.initial_seed()`` then reads as another seed."""
        self._generator.manual_seed(seed)
        if _FRESH_TORCH_HEAD is None:
            self._mark = self._generator.get_state().tolist()
            return
        shown = reads_as.to_bytes(8, "little")
        self._mark = shown + _FRESH_TORCH_HEAD
        if seed != reads_as:
            state = self._generator.get_state()
            ctypes.memmove(state.data_ptr(), shown, 8)
            self._generator.set_state(state)

    def moved(self) -> bool:
        state = self._generator.get_state()
        if _FRESH_TORCH_HEAD is None:
            return bool(state.tolist() != self._mark)
        return bool(_torch_head(state) != self._mark)


def _found() -> tuple[Any, ...]:
    return torch.get_rng_state, torch.set_rng_state


def _put(functions: tuple[Any, ...]) -> None:
    torch.get_rng_state, torch.set_rng_state = functions
    torch.random.get_rng_state, torch.random.set_rng_state = functions


LOOKS = Looks(_found, _put)
