"""The three global random states (torch, ``random``, numpy): lent to the loader and given back.

Guarantees
    - After ``with streams.lent(seed)`` or ``with streams.watched(seed)`` ends, by return or
      by exception, the caller's three states are what they were, a pending Gaussian included.
    - After ``streams.lent(seed).to(act)`` that is so whenever Ctrl-C comes, and no lock stays
      taken.
    - While lent, everything drawn follows from the seeds given, and ``torch.initial_seed()``
      is the seed of the batch whichever way the batch is made.

A data set that draws nothing must not pay for seeding every sample (about 7 us each; a
ready-made sample costs under 1), and hardly for seeding every batch. So samples are first
read while the states are only watched: torch's is seeded, the others are not. `drawn`
tells whether any has moved, or has been looked at (a sample may draw and put the state
back, as ``torch.random.fork_rng`` does); if so, what was read has to be read again, with
every sample seeded.

States are compared by the raw words of their Mersenne twisters, read (never written) from
memory: 0.4 us against 6 us (`random`) and 28 us (numpy) through their own calls. Whether
the words are where they should be is checked once; if not, the slow calls serve.

One thread at a time lends them, whichever loader it makes a batch for; others wait. What
cannot be kept from them is a thread of the caller that draws from a global generator while
another thread makes a batch in-process: it draws from the lent state.
"""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import torch

from stoker.host.forks import at_fork

_TWISTER_BYTES = 625 * 4
# A twister that has moved differs in its position, or, after a whole turn of 624 words, in
# every word: the position and some words tell. `random` keeps its position first.
_TELLTALE_BYTES = 16 * 4
_TORCH_HEAD_BYTES = 24  # of a torch state: its seed, how many words are left, the next one
_np_random: Any = np.random  # its stubs leave out the global bit generator
# Bound before they are replaced by ones that count, see `_Looks`.
_getstate, _setstate = random.getstate, random.setstate
_get_state, _set_state = np.random.get_state, np.random.set_state
_PYTHON: Any = getattr(random, "_inst", random)
_SEED: Any = random.Random.__base__.seed  # type: ignore[union-attr]


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


def _python_address() -> int | None:
    """Where the words of `random`'s twister lie, or None where that can't be verified."""
    if type(_PYTHON) is not random.Random:
        return None
    address = id(_PYTHON) + object.__basicsize__
    index, *words = memoryview(ctypes.string_at(address, _TWISTER_BYTES)).cast("I").tolist()
    return address if (*words, index) == _PYTHON.getstate()[1] else None


_FRESH_TORCH_HEAD = _fresh_torch_head()
_PYTHON_ADDRESS = _python_address()


class _Torch:
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


class _Python:
    """The generator behind the functions of `random`."""

    def __init__(self) -> None:
        self._saved: Any = None
        self._saved_words: Any = None
        self._mark: Any = None

    def save(self) -> None:
        words = self._words()
        if words != self._saved_words:
            self._saved, self._saved_words = _getstate(), words

    def restore(self) -> None:
        if self._words() != self._saved_words:
            _setstate(self._saved)

    def watch(self) -> None:
        """Marks, and leaves the caller's state where it is: putting another there is dear."""
        self._mark = self._saved_words

    def seed(self, seed: int) -> None:
        """Seeds, as `random.seed` does, and marks."""
        _SEED(_PYTHON, seed)
        _PYTHON.gauss_next = None
        self._mark = self._words()

    def moved(self) -> bool:
        return bool(self._words() != self._mark)

    @staticmethod
    def _words() -> Any:
        if _PYTHON_ADDRESS is None:
            return _getstate()
        return ctypes.string_at(_PYTHON_ADDRESS, _TELLTALE_BYTES), _PYTHON.gauss_next


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


class _Numpy:
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
        self._mark = ctypes.string_at(self._address, _TWISTER_BYTES)

    def moved(self) -> bool:
        # A freshly seeded state has no pending Gaussian, so every draw takes words.
        return (
            _np_random.get_bit_generator() is not self._own
            or ctypes.string_at(self._address, _TWISTER_BYTES) != self._mark
        )


class _Looks:
    """Counts how often a state is read or set through a library's function, while lent.

    The functions are replaced while anything is lent, by whichever thread, and put back.
    """

    def __init__(self) -> None:
        self.count = 0
        self.counting: tuple[Any, ...] = (None,)
        self._originals = self.found()
        self.counting = tuple(self._counting(each) for each in self._originals)

    def found(self) -> tuple[Any, ...]:
        """The functions as they are now."""
        functions = (
            torch.get_rng_state,
            torch.set_rng_state,
            random.getstate,
            random.setstate,
            np.random.get_state,
            np.random.set_state,
        )
        if functions[0] is not self.counting[0]:
            self._originals = functions
        return functions

    def put(self, functions: tuple[Any, ...]) -> None:
        """Puts these in their place."""
        (
            torch.get_rng_state,
            torch.set_rng_state,
            random.getstate,
            random.setstate,
            np.random.get_state,
            np.random.set_state,
        ) = functions
        torch.random.get_rng_state = torch.get_rng_state
        torch.random.set_rng_state = torch.set_rng_state

    def reset(self) -> None:
        """Puts the libraries' own functions back; after a fork."""
        if torch.get_rng_state is self.counting[0]:
            self.put(self._originals)

    def _counting(self, original: Any) -> Any:
        @functools.wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return original(*args, **kwargs)

        return read


_LOOKS = _Looks()
_LENDING = threading.RLock()


def lending() -> threading.RLock:
    """Whose turn it is: one thread at a time lends the states, and may nest.

    A lock that is taken by ``with`` itself is released whenever Ctrl-C comes; one that a method
    takes may stay.
    """
    return _LENDING


def _after_fork_in_child() -> None:
    """A copy of this process has one thread: nobody lends anything, or holds a lock."""
    global _LENDING
    _LENDING = threading.RLock()
    _LOOKS.reset()


at_fork(after_in_child=_after_fork_in_child)


class GlobalStreams:
    """Lends the three global random states to the making of one batch at a time.

    One instance a maker of batches: a single instance is not reentrant, different
    instances nest (a data set that iterates a loader of its own). Never blocks; `to` and
    `lending` do.
    """

    def __init__(self) -> None:
        self._torch = _Torch()
        self._python = _Python()
        self._numpy = _Numpy()
        self._seed = 0
        self._watching = False
        self._looks = 0
        self._functions: tuple[Any, ...] = ()
        self._lent = 0  # How many of the four are; each is counted before it is touched.

    def lent(self, seed: int) -> GlobalStreams:
        """For `to` or ``with``; all three are seeded (64 bits)."""
        self._seed, self._watching = seed, False
        return self

    def watched(self, seed: int) -> GlobalStreams:
        """For `to` or ``with``; only torch's is seeded (64 bits)."""
        self._seed, self._watching = seed, True
        return self

    def to(self, act: Callable[..., Any], *given: Any) -> Any:
        """What it returns, with them lent: ``streams.lent(seed).to(act, *given)``.

        Waits for its turn. Ctrl-C at any moment leaves nothing lent; a ``with`` can't promise
        that, since Python looks for signals when ``__exit__`` begins.
        """
        with lending():
            try:
                self._borrow()
                return act(*given)
            finally:
                try:
                    self._give_back()
                except BaseException:
                    self._give_back()  # Twice is as good as once, and half of it is not.
                    raise

    def __enter__(self) -> None:
        try:
            self._borrow()
        except BaseException:
            self._give_back()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()

    def _borrow(self) -> None:
        self._torch.save()
        self._lent = 1
        self._python.save()
        self._lent = 2
        self._numpy.save()
        self._lent = 3
        self._numpy.take()
        self._functions = _LOOKS.found()
        self._lent = 4
        _LOOKS.put(_LOOKS.counting)
        self._looks = _LOOKS.count
        if self._watching:
            self._torch.seed(self._seed, self._seed)
            self._python.watch()
            self._numpy.rest()
        else:
            self.seed(self._seed)

    def _give_back(self) -> None:
        if self._lent > 3:
            _LOOKS.put(self._functions)
        if self._lent > 2:
            self._numpy.restore()
        if self._lent > 1:
            self._python.restore()
        if self._lent > 0:
            self._torch.restore()
        self._lent = 0

    def seed(self, seed: int) -> None:
        """Seeds the three anew (64 bits). Only while lent."""
        self._torch.seed(seed, self._seed)
        self._python.seed(seed)
        self._numpy.seed(seed)

    def drawn(self) -> bool:
        """Whether a state has moved or was read since they were seeded. Only while lent."""
        return (
            self._looks != _LOOKS.count
            or self._torch.moved()
            or self._python.moved()
            or self._numpy.moved()
        )

    def capture(self) -> Any:
        """The three states as they are now, for `replace` while they are lent again."""
        return self._torch.capture(), _getstate(), _get_state(legacy=False)

    def replace(self, state: Any) -> None:
        """Sets the three states to what `capture` returned. Only while lent."""
        torch_state, python_state, numpy_state = state
        self._torch.replace(torch_state)
        _setstate(python_state)
        _set_state(numpy_state)
