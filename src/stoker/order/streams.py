"""The three global random states (torch, ``random``, numpy): lent to the loader and given back.

Guarantees
    - After ``with streams.lent(seed)`` ends, by return or by exception, the caller's three
      states are what they were, a pending Gaussian included.
    - Inside, everything drawn follows from the seeds given, and ``torch.initial_seed()``
      is the seed of the batch whichever way the batch is made.

A data set that draws nothing must not pay for seeding every sample (about 7 us each; a
ready-made sample costs under 1). So a batch is first made under the seed of the batch
alone, and `drawn` tells afterwards whether any state moved; if one did, the batch is made
again with every sample seeded.

`random` and numpy are compared by the raw words of their Mersenne twisters, read (never
written) from memory: 0.4 us against 6 and 28 us through their own calls. Whether the words
are where they should be is checked once; if not, the slow calls serve.

Assumes one thread at a time: a thread of the caller that draws from a global generator
while a batch is made in-process draws from the lent state, as it would with torch's loader.
"""

from __future__ import annotations

import ctypes
import random
from types import TracebackType
from typing import Any

import numpy as np
import torch

_TWISTER_BYTES = 625 * 4
_SEED_AND_POSITION_BYTES = 24  # head of a torch state: its seed, how many words are left, the next
_PYTHON: Any = getattr(random, "_inst", random)


def _torch_head(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), _SEED_AND_POSITION_BYTES)


def _torch_layout_is_known() -> bool:
    """Whether a torch state begins with its seed, and its head moves with every draw."""
    generator = torch.Generator()
    seed = 0x1234567
    generator.manual_seed(seed)
    fresh = _torch_head(generator.get_state())
    torch.rand(1, generator=generator)
    one = _torch_head(generator.get_state())
    torch.rand(623, generator=generator)
    whole_turn = _torch_head(generator.get_state())
    starts_with_seed = fresh[:8] == seed.to_bytes(8, "little")
    return starts_with_seed and len({fresh, one, whole_turn}) == 3


def _python_address() -> int | None:
    """Where the words of `random`'s twister lie, or None where that can't be verified."""
    if type(_PYTHON) is not random.Random:
        return None
    address = id(_PYTHON) + object.__basicsize__
    index, *words = memoryview(ctypes.string_at(address, _TWISTER_BYTES)).cast("I").tolist()
    return address if (*words, index) == _PYTHON.getstate()[1] else None


_TORCH_IS_KNOWN = _torch_layout_is_known()
_PYTHON_ADDRESS = _python_address()


class _Torch:
    """torch's default CPU generator."""

    def __init__(self) -> None:
        self._generator = torch.default_generator
        self._saved: torch.Tensor | None = None
        self._mark: Any = None

    def save(self) -> None:
        self._saved = self._generator.get_state()

    def restore(self) -> None:
        assert self._saved is not None
        self._generator.set_state(self._saved)

    def seed(self, seed: int, reads_as: int) -> None:
        """Seeds; ``torch.initial_seed()`` then reads as another seed."""
        self._generator.manual_seed(seed)
        if _TORCH_IS_KNOWN and seed != reads_as:
            state = self._generator.get_state()
            ctypes.memmove(state.data_ptr(), reads_as.to_bytes(8, "little"), 8)
            self._generator.set_state(state)

    def mark(self) -> None:
        self._mark = self._position()

    def moved(self) -> bool:
        return bool(self._position() != self._mark)

    def _position(self) -> Any:
        state = self._generator.get_state()
        return _torch_head(state) if _TORCH_IS_KNOWN else state.tolist()


class _Python:
    """The generator behind the functions of `random`."""

    def __init__(self) -> None:
        self._saved: Any = None
        self._saved_words: Any = None
        self._mark: Any = None

    def save(self) -> None:
        words = self._words()
        if words != self._saved_words:
            self._saved, self._saved_words = random.getstate(), words

    def restore(self) -> None:
        random.setstate(self._saved)

    @staticmethod
    def seed(seed: int) -> None:
        random.seed(seed)

    def mark(self) -> None:
        self._mark = self._words()

    def moved(self) -> bool:
        return bool(self._words() != self._mark)

    @staticmethod
    def _words() -> Any:
        if _PYTHON_ADDRESS is None:
            return random.getstate()
        return ctypes.string_at(_PYTHON_ADDRESS, _TWISTER_BYTES), _PYTHON.gauss_next


class _Numpy:
    """numpy's global generator, with its bit generator swapped for one of ours.

    Swapping costs 0.2 us and copying the state 28, but numpy forgets a pending Gaussian
    when its bit generator is swapped. Whether there is one is asked only when the
    caller's words have moved, or when there was one before.
    """

    def __init__(self) -> None:
        self._own = np.random.MT19937(0)
        self._address = self._own.ctypes.state_address
        self._user: Any = None
        self._user_words: bytes | None = None
        self._pending = True
        self._saved: Any = None
        self._mark = b""

    def save(self) -> None:
        user = np.random.get_bit_generator()
        words = None
        if type(user) is np.random.MT19937:
            words = ctypes.string_at(user.ctypes.state_address, _TWISTER_BYTES)
        if self._pending or words is None or words != self._user_words or user is not self._user:
            self._saved = np.random.get_state(legacy=False)
            self._pending = bool(self._saved["has_gauss"])
        self._user, self._user_words = user, words
        np.random.set_bit_generator(self._own)

    def restore(self) -> None:
        np.random.set_bit_generator(self._user)
        if self._pending:
            np.random.set_state(self._saved)

    @staticmethod
    def seed(seed: int) -> None:
        # Another word than torch's, whose twister would give the same numbers for it.
        np.random.seed((seed ^ 0x9E3779B9) & 0xFFFFFFFF)

    def mark(self) -> None:
        self._mark = ctypes.string_at(self._address, _TWISTER_BYTES)

    def moved(self) -> bool:
        # A freshly seeded state has no pending Gaussian, so every draw takes words.
        return (
            np.random.get_bit_generator() is not self._own
            or ctypes.string_at(self._address, _TWISTER_BYTES) != self._mark
        )


class GlobalStreams:
    """Lends the three global random states to the making of one batch at a time.

    One instance a maker of batches: a single instance is not reentrant, different
    instances nest (a data set that iterates a loader of its own). Never blocks.
    """

    def __init__(self) -> None:
        self._torch = _Torch()
        self._python = _Python()
        self._numpy = _Numpy()
        self._seed = 0

    def lent(self, seed: int) -> GlobalStreams:
        """Use as ``with streams.lent(seed):``; all three are seeded (64 bits), and marked."""
        self._seed = seed
        return self

    def __enter__(self) -> None:
        self._torch.save()
        self._python.save()
        self._numpy.save()
        self.seed(self._seed)
        self.mark()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._torch.restore()
        self._python.restore()
        self._numpy.restore()

    def seed(self, seed: int) -> None:
        """Seeds the three anew (64 bits). Only while lent."""
        self._torch.seed(seed, self._seed)
        self._python.seed(seed)
        self._numpy.seed(seed)

    def mark(self) -> None:
        """From now on `drawn` means: since here. Only while lent."""
        self._torch.mark()
        self._python.mark()
        self._numpy.mark()

    def drawn(self) -> bool:
        """Whether anything was drawn, or seeded, since the last mark. Only while lent."""
        return self._torch.moved() or self._python.moved() or self._numpy.moved()

    def capture(self) -> Any:
        """The three states as they are now, for `replace` while they are lent again."""
        return torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)

    def replace(self, state: Any) -> None:
        """Sets the three states to what `capture` returned. Only while lent."""
        torch_state, python_state, numpy_state = state
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
